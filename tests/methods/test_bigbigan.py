"""BigBiGAN: whole steps against a slow reference, who moves when, and an encoder that does not collapse."""

import copy
from functools import partial

import generative
import pytest
import reference_generative
import tiny
import torch
from reference_step import EMA, AdamW
from test_structural_step import assert_alike
from torch import Tensor

from sao.methods.bigbigan import BigBiGAN

BATCH, SHAPE, LATENT = 6, (1, 8, 8), 4
OPTIMISERS = {
    "discriminator": generative.DISCRIMINATOR,
    "generator": generative.GENERATOR,
    "encoder": {"learning_rate": 4e-3, "betas": (0.3, 0.8), "weight_decay": 0.05},
}
SMALL = {"width": 3, "joint_width": 5, "joint_depth": 2, "head_width": 6, "head_depth": 2, "ema_decay": 0.8}


def built(**options) -> BigBiGAN:
    players = {f"{name}_optimiser": values for name, values in OPTIMISERS.items()}
    own = {**SMALL, **players, "generator": {"width": 4, "depth": 1, "latent_size": LATENT}, **options}
    encoder = {"name": "resnet", "widths": [4, 8], "blocks": 1}
    return generative.built(BigBiGAN, SHAPE, 100, BATCH, encoder, name="bigbigan", **own)


new_method = partial(tiny.method_of, BigBiGAN, method="bigbigan")


@pytest.mark.parametrize("discriminator_steps", [1, 2])
def test_steps_are_those_of_the_reference(discriminator_steps):
    method = built(discriminator_steps=discriminator_steps)
    networks = {name: copy.deepcopy(getattr(method, name)) for name in OPTIMISERS}
    players = {name: reference_generative.Player(networks[name], AdamW(**options)) for name, options in OPTIMISERS.items()}
    emas = [EMA(copy.deepcopy(a.network), 0.8) for a in (method.ema_generator, method.ema_encoder)]
    expected = reference_generative.BigBiGAN(*players.values(), *emas, discriminator_steps)  # pyright: ignore[reportCallIssue]
    images = generative.images(3 * BATCH, SHAPE)
    for number in range(3):

        def draws(purpose: str, number: int = number) -> tuple[Tensor, Tensor]:
            first, second = (generative.drawn(f"{purpose} {what}", number, BATCH, LATENT) for what in ("latents", "deviations"))
            return first, second

        real = images[number * BATCH : (number + 1) * BATCH]
        scalars, gradients = generative.step(method, real, number)
        assert_alike(scalars, expected.step(real, draws), f"step {number}, logged")
        for name, player in players.items():
            updates = discriminator_steps if name == "discriminator" else 1
            assert len(gradients[name]) == updates
            for found, own in zip(gradients[name], player.gradients[-updates:], strict=True):
                assert_alike(found, own, f"step {number}, gradient of {name}")
        own = {name: getattr(method, name) for name in OPTIMISERS}
        found, wanted = (
            generative.state(**players, ema_g=one.ema_generator.network, ema_e=one.ema_encoder.network)
            for players, one in ((own, method), (networks, expected))
        )
        assert_alike(found, wanted, f"step {number}, after it", rtol=1e-8)


def test_no_term_of_the_compared_steps_is_empty_and_hinges_are_on_both_sides():
    method, images = built(), generative.images(BATCH, SHAPE)
    scores, fakes, _ = method._scored(*method._pairs(images, "generator", 0))
    assert bool((scores < 1).any())
    scalars, _ = generative.step(method, images, 0)
    assert all(abs(float(value)) > 1e-4 for value in scalars.values())
    assert scores.shape == fakes.shape == (BATCH, 3)


def test_augmented_images_are_what_everybody_sees():
    plain, flipped = new_method(), new_method(method__augmentation__flip="true")
    assert plain.step(tiny.batch(), 0)["discriminator/image"] != flipped.step(tiny.batch(), 0)["discriminator/image"]


def test_everybody_moves_and_the_emas_follow():
    method = new_method()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    tiny.make_steps(method, 0, 1)
    after = method.state_dict()
    for name, parameter in method.named_parameters():
        if name.startswith("ema_"):
            continue
        assert parameter.requires_grad
        assert not torch.equal(before[name], after[name]), name
        if not name.startswith("discriminator."):
            player, _, rest = name.partition(".")
            expected = before[name].lerp(after[name], 0.01)
            torch.testing.assert_close(after[f"ema_{player}.network.{rest}"], expected)


def test_the_features_are_those_of_the_ema_encoder():
    method = new_method()
    tiny.make_steps(method, 0, 2)
    images = tiny.batch().inputs
    network = method.ema_encoder.network
    torch.testing.assert_close(method.features(images), network.features(images))  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(method.embeddings(images), network(images)[0])
    assert not method.features(images.requires_grad_()).requires_grad


@pytest.mark.slow
def test_it_learns_a_little_on_digits():
    """Samples come nearer to the digits in the mean image; so few steps say nothing of the encoder."""
    rates = {f"method__{player}_optimiser__learning_rate": 2e-3 for player in OPTIMISERS}
    method = new_method(method__ema_decay=0.9, **rates)
    before = generative.distance_to_digits(method)
    tiny.make_steps(method, 0, 60)
    assert generative.distance_to_digits(method) < 0.7 * before
