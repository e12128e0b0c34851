"""DDPM: three whole steps against a reference, the way back against diffusers', and that it goes on as every method."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import generative
import product
import pytest
import reference_ddpm
import reference_step
import tiny
import torch
from test_controls import inputs, untrained
from test_structural_step import assert_alike

from sao.evaluation.extract import extract
from sao.methods import Batch
from sao.methods.base import normal_rows
from sao.methods.ddpm import DDPM, TIMES, Diffusion, ways_back

OPTIMISER = product.Optimiser(3e-3, (0.4, 0.9), 0.2)


ddpm = partial(tiny.method_of, DDPM, method="ddpm")


def built(augmented: bool, limit: float | None, ema: float, dropout: float) -> DDPM:
    own = {"ema_decay": ema, "clip_grad_norm": limit, "optimiser": vars(OPTIMISER), "augmentation": {"flip": augmented}}
    encoder = {"name": "unet", "channels": 8, "blocks": 1, "attention": [8], "dropout": dropout}
    return generative.built(DDPM, (1, 8, 8), product.SAMPLES, 5, encoder, name="ddpm", **own)


@pytest.mark.parametrize(
    ("augmented", "limit", "ema", "dropout"), [(True, 0.01, 0.9999, 0.3), (False, None, 0.15, 0.0), (False, 1e6, 0.9, 0.1)]
)
def test_three_steps_are_those_of_the_reference(augmented, limit, ema, dropout):
    method = built(augmented, limit, ema, dropout)
    networks = product.stock(method.network.network), product.stock(method._used.network)
    optimiser = reference_step.AdamW(**vars(OPTIMISER))
    expected = reference_ddpm.DDPM(networks[0], reference_step.EMA(networks[1], 0.0), optimiser, limit, ema)
    for number, batch in enumerate(product.batches(product.BaselineOptions(batch=5), 3)):
        images = method.augmentation(batch, method.seed, "ddpm", number, 5)
        assert torch.equal(images, batch) == (not augmented)
        noise = normal_rows(images.shape[1:], method.batch, method.seed, "diffusion/noise", number, images)
        times = (1000 * method._uniform(images, number, "times", ())).long().tolist()
        factors = dropped(method, images, number)
        assert (len(factors) > 5) == (dropout > 0)
        with product.gradients_before_updates(method, {"": method.network.network}) as gradients:
            scalars = method.step(Batch(batch, torch.arange(5)), number)
        assert_alike(scalars, expected.step(images, noise, times, factors, number), f"step {number}, logged")
        shorter = 1.0 if limit is None else min(1.0, limit / float(scalars["network/gradient_norm"]))
        assert (shorter < 1) == (limit == 0.01)
        longest = {name: shorter * gradient for name, gradient in expected.gradients.items()}
        assert_alike(gradients, longest, f"step {number}, gradient")
        assert_alike(method.network.network.state_dict(), networks[0].state_dict(), f"step {number}, after it", rtol=1e-8)
        of_ema = method._used.network.state_dict()
        assert_alike(of_ema, networks[1].state_dict(), f"step {number}, ema", rtol=1e-8)


def dropped(method: DDPM, images: torch.Tensor, step: int) -> dict[str, torch.Tensor]:
    """The factors of each layer with dropout, from the shapes that a pass has in it."""
    shapes: dict[str, tuple[int, ...]] = {}

    def draw(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        shapes[name] = shape
        return torch.ones(len(images), *shape, dtype=torch.float64)

    method.network.predicted_noise(images, torch.zeros(len(images), dtype=torch.long), draw)
    share = {layer.name: layer.share for layer in method.network.dropouts}
    numbers = {name: method._uniform(images, step, name, shape) for name, shape in shapes.items()}
    return {name: (values >= share[name]).double() / (1 - share[name]) for name, values in numbers.items()}


# --- the way to noise and back ------------------------------------------------------------------------------------------------


def test_an_image_is_hardly_noised_where_features_are_taken_and_nothing_is_left_of_it_at_the_end():
    diffusion = Diffusion()
    assert float(diffusion.signal[10]) == pytest.approx(0.9989, abs=5e-5)
    assert float(diffusion.deviation[10]) == pytest.approx(0.0468, abs=5e-5)
    assert float(diffusion.signal[TIMES - 1]) < 0.01


@pytest.mark.parametrize(("steps", "variance", "name"), [(1000, "large", "fixed_large"), (7, "small", "fixed_small")])
def test_the_way_back_is_that_of_diffusers(steps, variance, name):
    """Mean and deviation of every step that is made, against a library's step without noise and with it."""
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    scheduler = DDPMScheduler(TIMES, 1e-4, 0.02, "linear", variance_type=name)
    scheduler.alphas_cumprod = (1 - torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64)).cumprod(0)  # its own are rough
    ways = ways_back(steps)
    scheduler.set_timesteps(timesteps=[now for now, _ in ways])
    images, noise = torch.randn(2, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compared = ways if steps < 100 else [*ways[:3], *ways[500:503], *ways[-3:]]
    for now, before in compared:
        mean, deviation = Diffusion().back(images, noise, now, before, variance)
        expected = scheduler.step(noise, now, images, generator=torch.Generator().manual_seed(1), return_dict=False)[0]
        drawn = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        assert (deviation == 0) == (before is None) == (now == 0)
        torch.testing.assert_close(mean + deviation * drawn, expected, rtol=1e-9, atol=1e-9)


def test_times_of_the_way_back():
    assert ways_back(1) == [(999, None)]
    assert ways_back(3) == [(999, 500), (500, 0), (0, None)]
    assert [now for now, _ in ways_back(TIMES)] == list(range(TIMES))[::-1]


def test_samples_depend_on_their_own_latents_alone():
    method = ddpm()
    latents = torch.randn(4, 1, 8, 8)
    together = method.decode(latents)
    torch.testing.assert_close(method.decode(latents), together, rtol=0, atol=0)
    torch.testing.assert_close(method.decode(latents[[2, 0]]), together[[2, 0]], rtol=1e-4, atol=1e-5)
    assert together.abs().max() <= 1
    assert not torch.allclose(method.decode(latents[:1] + 1e-3), together[:1], atol=0.05)  # other noise on the way
    assert not torch.allclose(ddpm(method__sampling_steps=5).decode(latents), together, atol=0.05)
    assert not torch.allclose(ddpm(method__sampling_variance="large").decode(latents), together, atol=0.05)


def test_samples_of_a_network_that_knows_the_image_are_that_image(monkeypatch):
    method, image = ddpm(method__sampling_steps=20), inputs()[:1]

    def noise_of(images: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        signal, deviation = method.diffusion.signal[times[0]], method.diffusion.deviation[times[0]]
        return (images - signal * image) / deviation

    monkeypatch.setattr(method._used, "predicted_noise", noise_of)
    torch.testing.assert_close(method.decode(torch.randn(3, 1, 8, 8)), image.expand(3, -1, -1, -1), rtol=0, atol=1e-3)


# --- features and learning ----------------------------------------------------------------------------------------------------


def test_features_are_of_the_ema_and_do_not_depend_on_the_chunk():
    method = ddpm()
    method.step(tiny.batch(), 0)
    samples, device = tiny.dataset().test, torch.device("cpu")
    whole = extract(method.features, samples, device)
    torch.testing.assert_close(
        torch.from_numpy(extract(method.features, samples, device, chunk=7)), torch.from_numpy(whole), rtol=1e-4, atol=1e-5
    )
    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter.zero_()
    assert (extract(method.features, samples, device) == whole).all()
    method.use_raw_weights()
    assert not extract(method.features, samples, device).any()


def test_features_are_taken_from_noised_images_at_their_time():
    method = ddpm(method__feature_time=300)
    times = torch.full((16,), 299)
    noised = method.diffusion.noised(inputs(), method.feature_noise.expand(16, -1, -1, -1), times)
    expected = method._used.features_at(noised, times)
    torch.testing.assert_close(method.features(inputs()), expected)
    assert float(method.feature_noise.std()) == pytest.approx(1, abs=0.3)
    assert not torch.equal(method.feature_noise, ddpm(seed=1).feature_noise)
    assert "feature_noise" not in method.state_dict()  # the seed is enough to make it
    assert not torch.allclose(ddpm().features(inputs()), method.features(inputs()), atol=1e-4)


def test_the_untrained_control_begins_with_the_same_backbone():
    times = torch.zeros(16, dtype=torch.long)
    torch.testing.assert_close(untrained("ddpm").features(inputs()), ddpm()._used.features_at(inputs(), times))


def test_times_are_spread_over_the_whole_way():
    method = ddpm(train__batch=512)
    times = TIMES * method._uniform(inputs(), 0, "times", ())
    assert times.shape == (512,)
    assert times.min() < 20
    assert times.max() > 980


def test_passes_are_compiled_where_that_is_asked_for():
    method = ddpm()
    assert not method.compiled
    method.compile_networks()
    assert method.compiled


def test_the_loss_falls_on_digits():
    method = ddpm(train__batch=64, method__optimiser__learning_rate=3e-3, encoder__channels=16)
    losses = [float(method.step(tiny.batch(step, 64), step)["network/noise"]) for step in range(60)]
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])


def test_libraries_are_imported_where_networks_are_built_and_ask_nobody(tmp_path: Path):
    """In a process of its own, because this one has imported them: no name is looked up and nothing is connected to."""
    program = """
import socket, sys

def refuse(*arguments, **options):
    raise SystemExit(f"asked for {arguments}")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = socket.socket.connect_ex = refuse
import sao.config
from sao.methods.encoders import UNetOptions, ViTOptions

early = {"timm", "diffusers", "huggingface_hub"} & set(sys.modules)
assert not early, early
ViTOptions(width=8, depth=1, heads=2).build((1, 8, 8))
UNetOptions(channels=4, blocks=1).build((1, 8, 8))
assert {"timm", "diffusers"} <= set(sys.modules)
print("built")
"""
    environment = {**os.environ, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "built\n", "")
    assert not list(tmp_path.iterdir())
