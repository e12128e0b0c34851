"""Augmentation: each sample its own, a function of (seed, purpose, step), and the same however many processes share a batch."""

import pytest
import torch

from sao import distributed
from sao.data.augmentation import Augmentation

JITTER = (0.4, 0.4, 0.4, 0.1)
EVERYTHING = Augmentation(flip=True, crop=0.5, jitter=JITTER, grey=0.2, blur=0.5, solarise=0.2)


def pictures(n: int = 32, channels: int = 3) -> torch.Tensor:
    """Smooth pictures, all different, in [-1, 1]."""
    ramp = torch.linspace(-1, 1, 16)
    phase = torch.arange(n * channels).reshape(n, channels, 1, 1) * 0.37
    return torch.sin(2 * ramp[None, None, :, None] + 3 * ramp[None, None, None, :] + phase)


def test_nothing_asked_nothing_done():
    images, vectors = pictures(), torch.randn(8, 5)
    assert Augmentation()(images, 3, "a", 0, 32) is images
    assert EVERYTHING(vectors, 3, "a", 0, 8) is vectors


@pytest.mark.parametrize(
    "augmentation",
    [
        Augmentation(flip=True),
        Augmentation(crop=0.5),
        Augmentation(jitter=JITTER),
        Augmentation(blur=0.5),
        Augmentation(solarise=0.5),
        EVERYTHING,
    ],
    ids=["flip", "crop", "jitter", "blur", "solarise", "all"],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_sample_has_its_own_draw(augmentation, channels):
    one = pictures(1, channels).expand(32, -1, -1, -1).clone()
    changed = augmentation(one, 3, "a", 0, 32)
    assert changed.shape == one.shape
    assert changed.dtype == one.dtype
    assert not changed.requires_grad
    assert changed.min() >= -1
    assert changed.max() <= 1
    assert len({tuple(image.flatten().tolist()) for image in changed}) >= 2
    assert not torch.equal(changed, one)


def test_flips_are_flips_of_about_half():
    images = pictures(200)
    changed = Augmentation(flip=True)(images, 3, "a", 0, 200)
    mirrored = images.flip(3)
    same = torch.isclose(changed, images, atol=1e-5).flatten(1).all(1)
    turned = torch.isclose(changed, mirrored, atol=1e-5).flatten(1).all(1)
    assert bool((same ^ turned).all())
    assert 70 < int(turned.sum()) < 130


def test_crops_keep_to_the_area():
    """A ramp tells how much of the picture a crop shows: the slope shrinks with the side that is left."""
    ramp = torch.linspace(-1, 1, 32).expand(400, 1, 32, 32).clone()
    for smallest in (0.25, 0.9):
        changed = Augmentation(crop=smallest)(ramp, 3, "a", 0, 400)
        slope = (changed[:, 0, :, 28] - changed[:, 0, :, 3]).mean(1) / float(ramp[0, 0, 0, 28] - ramp[0, 0, 0, 3])
        # Width over side for aspect ratios from 3/4 to 4/3 is at least sqrt(area * 3/4).
        assert float(slope.min()) > (smallest * 3 / 4) ** 0.5 - 0.02
        assert float(slope.max()) < 1.02
        assert float(slope.min()) < (smallest * 3 / 4) ** 0.5 + 0.15


def test_jitter_is_the_one_that_the_baselines_of_the_paper_were_trained_with():
    """torchvision's: brightness is a factor, contrast is about the grey mean of an image, saturation about its grey."""
    images = (pictures(64) + 1) / 2
    jitter = Augmentation(jitter=JITTER)._transforms(images)[0]
    torch.manual_seed(0)
    drawn = jitter.forward_parameters(images.shape)
    drawn["hue_factor"].zero_()
    expected = images
    for which in drawn["order"].tolist():
        grey = (expected * torch.tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)).sum(1, keepdim=True)
        towards = [torch.zeros_like(grey), grey.mean((2, 3), keepdim=True), grey, expected][which]
        name = ["brightness", "contrast", "saturation", "hue"][which]
        expected = torch.lerp(towards.expand_as(expected), expected, drawn[f"{name}_factor"].reshape(-1, 1, 1, 1)).clamp(0, 1)
    chosen = drawn["batch_prob"].bool()
    assert 35 < int(chosen.sum()) < 64
    changed = jitter(images, params=drawn)
    torch.testing.assert_close(changed[chosen], expected[chosen], atol=1e-3, rtol=0)
    assert torch.equal(changed[~chosen], images[~chosen])


def test_a_draw_depends_on_seed_purpose_and_step_and_on_nothing_else():
    images = pictures()
    expected = EVERYTHING(images, 3, "a", 5, 32)
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    assert torch.equal(EVERYTHING(images, 3, "a", 5, 32), expected)
    assert torch.equal(torch.random.get_rng_state(), before)
    for other in (EVERYTHING(images, 3, "b", 5, 32), EVERYTHING(images, 3, "a", 6, 32)):
        assert not torch.equal(other, expected)
    assert not torch.equal(EVERYTHING(images, 4, "a", 5, 32), expected)


def test_generators_of_accelerators_are_left_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    EVERYTHING(pictures(4), 3, "a", 1, 4)
    assert seeded == []


@pytest.mark.parametrize(("processes", "batch"), [(2, 10), (3, 10), (2, 4)])  # 4: as many as colour operations, and axes
def test_a_process_augments_its_rows_as_the_whole_batch_would(processes, batch, monkeypatch):
    images = pictures(batch)
    whole = EVERYTHING(images, 3, "a", 1, batch)
    bounds = [batch * rank // processes for rank in range(processes + 1)]
    for rank in range(processes):
        rows = slice(bounds[rank], bounds[rank + 1])
        monkeypatch.setattr(distributed, "local_slice", lambda batch, rows=rows: rows)
        torch.testing.assert_close(EVERYTHING(images[rows], 3, "a", 1, batch), whole[rows], atol=1e-6, rtol=0)
