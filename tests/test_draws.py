"""Every random purpose has a name and numbers of its own, and the step's number goes into all of them."""

from collections import Counter
from itertools import combinations

import pytest
import tiny
import torch
from torch import Tensor

from sao.core import random as randomness
from sao.data import adaptive
from sao.data.augmentation import Augmentation
from sao.data.loader import Batches
from sao.methods import METHODS
from sao.training.step import make_step

STEPS = (3, 6)  # in which every method does all that it ever does in a step
# Purposes that are not of a step: the order of an epoch, and which samples are clustered, how, before a step.
NOT_OF_A_STEP = {"epoch", "clusters", "clustered rows"}
FLIPPED = {"method__augmentation__flip": "true"}
BOTH_FLIPPED = {**FLIPPED, "method__augment_generated": "true"}
CASES = {name: {"method": name} for name in METHODS if name != "random"}
CASES |= {f"{name}, augmented": {"method": name, **BOTH_FLIPPED} for name in ("structural", "hinge", "biggan")}
CASES |= {f"{name}, augmented": {"method": name, **FLIPPED} for name in ("bigbigan", "ddpm", "supervised")}
CASES |= {"structural, one pass": {"method": "structural", "method__one_pass": "true", **BOTH_FLIPPED}}
CASES |= {"structural, micro-batches": {"method": "structural", "method__micro_batch": 5, **BOTH_FLIPPED}}
CASES |= {"ddpm, dropout": {"method": "ddpm", "encoder": "unet", "encoder__channels": 8, "encoder__dropout": 0.1}}
CASES |= {"swav, small views": {"method": "swav", "method__small_views__count": 2, "method__small_views__size": 8}}
DRAWN_AGAIN = {("genrep", "latents")}  # for the same thing: both views of an image are of one latent


def drawn_in(step: int, monkeypatch, options: dict) -> tuple[list[tuple[str, int]], dict[str, Tensor]]:
    """(purpose, step) of every draw in a step, in order, and the numbers that the purposes got."""
    method, names, values = tiny.method(**options), [], {}
    derived, makers = randomness.derived_seed, {name: getattr(randomness, name) for name in ("uniform", "normal")}

    def named(seed: int, purpose: str, step: int = 0) -> int:
        names.append((purpose, step))
        return derived(seed, purpose, step)

    def kept(maker):
        def make(seed: int, purpose: str, *arguments) -> Tensor:
            values[purpose] = maker(seed, purpose, *arguments)
            return values[purpose].clone()

        return make

    with monkeypatch.context() as patched:
        patched.setattr(randomness, "derived_seed", named)
        for name, maker in makers.items():
            patched.setattr(randomness, name, kept(maker))
        make_step(method, Batches(tiny.framed().train, torch.device("cpu")), 0, 16, step)
    return names, values


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_each_purpose_of_a_step_draws_once_and_anew_in_each_step(options, monkeypatch):
    found = {step: drawn_in(step, monkeypatch, options) for step in STEPS}
    for step, (names, _) in found.items():
        of_step = [(purpose, number) for purpose, number in names if purpose not in NOT_OF_A_STEP]
        assert of_step
        assert {number for _, number in of_step} == {step}, of_step
        twice = {(options["method"], purpose) for (purpose, _), count in Counter(of_step).items() if count > 1}
        assert twice <= DRAWN_AGAIN
    (_, first), (_, second) = found.values()
    assert first.keys() == second.keys()
    assert [purpose for purpose in first if torch.equal(first[purpose], second[purpose])] == []
    numbers = [(purpose, values.flatten()) for purpose, values in first.items()]
    alike = [(one, other) for (one, a), (other, b) in combinations(numbers, 2) if torch.equal(a[:8], b[:8])]
    assert alike == []


CHANGES = {"crop": 0.3, "jitter": (0.8, 0.8, 0.8, 0.2), "grey": 0.5, "blur": 0.5, "solarise": 0.5, "flip": True}


def test_no_two_changes_of_an_image_use_the_same_numbers(monkeypatch):
    """They would happen to the same images."""
    images = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    numbers = randomness.uniform(0, "test", 0, slice(0, 32), (100,), "cpu")  # more than are asked for

    def changed(augmentation: Augmentation, column: int | None) -> Tensor:
        moved = numbers.clone()
        if column is not None:
            moved[:, column] = (moved[:, column] + 0.37) % 1
        with monkeypatch.context() as patched:
            patched.setattr(randomness, "uniform", lambda seed, purpose, step, rows, shape, device: moved[:, : shape[0]])
            return augmentation(images, 0, "test", 0, len(images))

    used = {}
    for name, value in CHANGES.items():
        augmentation = Augmentation.model_validate({name: value})
        plain = changed(augmentation, None)
        used[name] = {column for column in range(100) if not torch.equal(changed(augmentation, column), plain)}
    assert used.keys() == Augmentation.model_fields.keys()
    assert all(used.values())
    assert [(one, other) for one, other in combinations(used, 2) if used[one] & used[other]] == []


def test_no_two_adaptive_changes_of_an_image_use_the_same_numbers():
    """With one gate open at a time; a gate itself decides about one change alone."""
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    drawn, half = adaptive.draws_for(4, 0, "test", 0, images), torch.tensor(0.5)

    def changed(gate: int | None, column: int | None = None) -> Tensor:
        gates, uniforms, normals = torch.ones_like(drawn.gates), drawn.uniforms.clone(), drawn.normals.clone()
        if gate is not None:
            gates[:, gate] = 0
        if column is not None and column < uniforms.shape[1]:
            uniforms[:, column] = (uniforms[:, column] + 0.37) % 1
        elif column is not None:
            normals[:, column - uniforms.shape[1]] += 1
        return adaptive.augmented(images, half, adaptive.Draws(gates, uniforms, normals))

    count = drawn.uniforms.shape[1] + drawn.normals.shape[1]
    nothing = changed(None)
    used = {}
    for gate in range(drawn.gates.shape[1]):
        plain = changed(gate)
        used[gate] = {column for column in range(count) if not torch.equal(changed(gate, column), plain)}
    torch.testing.assert_close(nothing, images, rtol=0, atol=1e-5)
    assert [(one, other) for one, other in combinations(used, 2) if used[one] & used[other]] == []
    assert set().union(*used.values()) == set(range(count))
