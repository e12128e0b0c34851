"""StyleGAN2-ADA: whole steps against a slow reference, the controller of p against a simulation, and what each option does."""

import copy
from functools import partial

import generative
import pytest
import reference_generative
import tiny
import torch
from reference_step import AdamW
from test_structural_step import assert_alike
from torch import Tensor

from sao.data.adaptive import augmented, draws_for
from sao.methods.optimisers import AdamW as AdamWOptions
from sao.methods.stylegan2 import Adam, StyleGAN2, lazily

BATCH, SHAPE = 4, (3, 8, 8)
ADAPTIVE = {"half_life": 60, "half_life_ramp": 3.0, "target": 0.1, "adapt_every": 2, "adapt_images": 50}


def built(**options) -> StyleGAN2:
    small = {"width": 4, "latent_size": 3, "group": 2, "penalty_weight": 0.7, "penalty_every": 2, **ADAPTIVE}
    players = {"discriminator_optimiser": generative.DISCRIMINATOR, "generator_optimiser": generative.GENERATOR}
    return generative.built(StyleGAN2, SHAPE, 100, BATCH, name="stylegan2", **{**small, **players, **options})


new_method = partial(tiny.method_of, StyleGAN2, method="stylegan2")


def lazy(options: dict, every: int) -> AdamW:
    """As if the steps between two penalties were one more."""
    share = every / (every + 1)
    first, second = options["betas"]
    return AdamW(share * options["learning_rate"], (first**share, second**share), options["weight_decay"])


@pytest.mark.parametrize("p", [0.0, 0.6])
def test_steps_are_those_of_the_reference(p):
    method = built()
    method.probability.fill_(p)
    player = reference_generative.Player
    expected = reference_generative.StyleGAN2(
        player(copy.deepcopy(method.discriminator), lazy(generative.DISCRIMINATOR, 2)),
        player(copy.deepcopy(method.generator), lazy(generative.GENERATOR, 4)),
        copy.deepcopy(method.ema_generator.network),
        p,
        BATCH,
        penalty_weight=0.7,
        penalty_every=2,
        half_life=60,
        ramp=3.0,
        target=0.1,
        adapt_every=2,
        adapt_images=50,
    )
    images = generative.images(6 * BATCH, SHAPE)
    for number in range(5):
        real = images[number * BATCH : (number + 1) * BATCH]

        def augment(images: Tensor, p: float, purpose: str, number: int = number) -> Tensor:
            draws = draws_for(BATCH, generative.SEED, purpose, number, images)
            return augmented(images, torch.tensor(p, dtype=torch.float64), draws)

        def generate(network, player: str, number: int = number) -> Tensor:
            latents = generative.drawn(f"{player} latents", number, BATCH, 3)
            return network(latents, generative.drawn(f"{player} noise", number, BATCH, network.noise_size))

        scalars, gradients = generative.step(method, real, number)
        before = len(expected.discriminator.gradients)
        logged = expected.step(real, number, augment, generate)
        assert_alike({k: v.double() for k, v in scalars.items()}, {k: v.double() for k, v in logged.items()}, f"step {number}")
        both = zip(gradients["discriminator"], expected.discriminator.gradients[before:], strict=True)
        for index, (found, own) in enumerate(both):
            assert_alike(found, own, f"step {number}, update {index} of the discriminator")
        assert len(gradients["discriminator"]) == (2 if number % 2 == 0 else 1)
        assert_alike(gradients["generator"][0], expected.generator.gradients[-1], f"step {number}, generator")
        assert_alike(
            generative.state(d=method.discriminator, g=method.generator, ema=method.ema_generator.network),
            generative.state(d=expected.discriminator.network, g=expected.generator.network, ema=expected.ema),
            f"step {number}, after it",
            rtol=1e-8,
        )


def test_p_follows_the_simulated_controller():
    method = new_method(method__adapt_every=3, method__adapt_images=480, method__target=0.3)
    p, signs = 0.0, []
    generator = torch.Generator().manual_seed(2)
    seen = []
    for step in range(60):
        # At first surely real, later surely not, then in doubt.
        offset = 1.0 if step < 24 else -1.0 if step < 45 else 0.3
        scores = torch.randn(16, generator=generator) + offset
        found = method._adapt(scores, step)
        signs.append(sum((score > 0) - (score < 0) for score in scores.tolist()) / 16)
        if step % 3 == 2:
            mean = sum(signs[-3:]) / 3
            p = max(0.0, p + (0.1 if mean > 0.3 else -0.1))  # 3 steps of 16 images of 480
        assert float(found["augmentation/p"]) == pytest.approx(p, abs=1e-6)
        assert float(found["augmentation/real_sign"]) == pytest.approx(signs[-1])
        seen.append(p)
    assert max(seen) > 0.7
    assert min(seen[24:]) == 0


def test_a_target_of_one_leaves_the_images_alone():
    method = new_method(method__target=1)
    for step in range(4):
        method._adapt(torch.ones(16), step)
    assert float(method.probability) == 0


@pytest.mark.parametrize("stopped", [1, 2, 3])
def test_p_and_what_it_counts_survive_a_stop(stopped, tmp_path):
    """Between two changes of p, and between two penalties."""

    def begun() -> StyleGAN2:
        method = new_method()
        method.probability.fill_(0.3)
        return method

    assert float(generative.assert_resumed_is_equal(tmp_path, begun, stopped, 6).get_buffer("probability")) != 0.3


def test_the_ema_forgets_by_images():
    method = new_method(method__half_life=64, method__half_life_ramp=0.5, train__batch=16)
    assert method._decay(0) == 0
    assert method._decay(1) == 0.5 ** (16 / 8)
    assert method._decay(4) == 0.5 ** (16 / 32)
    assert method._decay(100) == 0.5 ** (16 / 64)
    tiny.make_steps(method, 0, 1)
    averaged = [*method.ema_generator.network.parameters()]
    torch.testing.assert_close(averaged, [*method.generator.parameters()], rtol=0, atol=0)  # nothing to average yet


def test_rates_and_memory_are_scaled_for_the_additional_updates():
    assert lazily(AdamWOptions(learning_rate=0.1, betas=(0.5, 0.9)), 1).betas == (0.5**0.5, 0.9**0.5)
    method = new_method(method__penalty_every=16)
    (discriminator,), (generator,) = (method.optimisers[name].param_groups for name in ("discriminator", "generator"))
    assert (Adam().learning_rate, Adam().betas) == (0.0025, (0.0, 0.99))
    assert discriminator["lr"] == pytest.approx(0.0025 * 16 / 17)
    assert discriminator["betas"] == pytest.approx((0.0, 0.99 ** (16 / 17)))
    assert generator["lr"] == pytest.approx(0.0025 * 4 / 5)
    assert generator["betas"] == pytest.approx((0.0, 0.99 ** (4 / 5)))


def test_without_a_weight_there_is_no_penalty():
    method = new_method(method__penalty_weight=0)
    assert "discriminator/gradient_penalty" not in method.step(tiny.batch(), 0)
    assert "discriminator/gradient_penalty" in new_method().step(tiny.batch(), 0)
    assert "discriminator/gradient_penalty" not in new_method().step(tiny.batch(), 1)


def test_it_learns_a_little_on_digits():
    """Samples come nearer to the digits in the mean image, and p has begun to move."""
    rates = {f"method__{player}_optimiser__learning_rate": 0.005 for player in ("discriminator", "generator")}
    method = new_method(method__width=16, method__adapt_images=8000, method__half_life=100, **rates)
    before = generative.distance_to_digits(method)
    scalars = tiny.make_steps(method, 0, 45)
    assert generative.distance_to_digits(method) < 0.7 * before
    assert max(float(one["augmentation/p"]) for one in scalars) > 0
    assert scalars[-1]["discriminator/spread"] > 0.05
