"""Augmentation: each sample its own, a function of (seed, purpose, step), and the same however many processes share a batch."""

import importlib

import pytest
import torch
from scipy.stats import kstest

from sao import distributed
from sao.data import augmentation as transforms
from sao.data.augmentation import Augmentation, jitter_parameters, windows
from sao.randomness import uniform
from sao.torchvision_import import import_torchvision

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


def test_windows_are_distributed_as_torchvisions():
    """Shares of the area, shapes and places."""
    import_torchvision()
    crops = importlib.import_module("torchvision.transforms").RandomResizedCrop
    image, n = torch.zeros(3, 24, 32), 3000
    draws = uniform(0, "windows", 0, slice(0, n), (22,), "cpu")
    found = windows(draws, (0.08, 1.0), 24, 32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        expected = torch.tensor([crops.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(n)])
    top, left, height, width = found.unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (top + height <= 24) & (left + width <= 32)).all())
    for own, other in zip(found.T, expected.T, strict=True):
        assert kstest(own.numpy(), other.numpy()).pvalue > 1e-3


def test_a_window_that_never_fits_is_the_whole_image():
    """All attempts are the whole area at the widest shape."""
    draws = torch.ones(1, 22) - 2.0**-24
    assert windows(draws, (0.08, 1.0), 16, 16).tolist() == [[0, 0, 16, 16]]


def test_the_first_window_that_fits_is_taken():
    draws = torch.full((1, 22), 0.5)
    draws[0, :2] = 1 - 2.0**-24  # as large as the image, and in the first attempt too wide for it
    draws[0, 10] = 0.0
    draws[0, 2] = 0.0
    assert windows(draws, (0.25, 1.0), 16, 16)[0, 2:].tolist() == [16, 16]
    draws[0, 1] = 0.0
    assert windows(draws, (0.25, 1.0), 16, 16)[0].tolist() == [4, 4, 8, 8]


@pytest.mark.parametrize("strength", [0.4, 1.3])
def test_factors_are_drawn_from_torchvisions_ranges(strength):
    draws = uniform(0, "jitter", 0, slice(0, 4000), (9,), "cpu")
    factors, order, chosen = jitter_parameters(draws, (strength, 0.2, 0.0, 0.3))
    ranges = [(max(0, 1 - strength), 1 + strength), (0.8, 1.2), (1, 1), (-0.3, 0.3)]
    for column, (low, high) in zip(factors.T, ranges, strict=True):
        assert float(column.min()) == pytest.approx(low, abs=2e-3)
        assert float(column.max()) == pytest.approx(high, abs=2e-3)
        assert float(column.mean()) == pytest.approx((low + high) / 2, abs=0.03)
    assert abs(int(chosen.sum()) - 3200) < 4.5 * 26
    counts = torch.bincount((order.argsort(1) * torch.tensor([64, 16, 4, 1])).sum(1), minlength=256)
    assert int((counts > 0).sum()) == 24
    assert float(counts[counts > 0].min()) > 110  # of 167 on average


@pytest.mark.parametrize("name", ["grey", "blur", "solarise"])
def test_as_many_images_are_changed_as_the_probability_says(name):
    images = pictures(400)
    changed = Augmentation.model_validate({name: 0.3})(images, 3, "a", 0, 400)
    count = int((changed - images).abs().flatten(1).amax(1).gt(1e-4).sum())
    assert abs(count - 120) < 4.5 * 9.2


def test_one_change_does_not_depend_on_which_others_are_made():
    images = pictures()
    flipped = Augmentation(flip=True)(images, 3, "a", 0, 32)
    both = Augmentation(flip=True, solarise=0.5)(images, 3, "a", 0, 32)
    solarised = Augmentation(solarise=0.5)(images, 3, "a", 0, 32)
    which = (flipped - images).abs().flatten(1).amax(1) > 1e-4
    torch.testing.assert_close(both, torch.where(which[:, None, None, None], solarised.flip(3), solarised))


def test_changes_come_in_the_order_of_the_published_baselines(monkeypatch):
    called = []
    for name in ("crop", "jitter", "grey", "blur", "solarise", "flip"):
        monkeypatch.setattr(transforms, name, lambda images, *_, name=name: called.append(name) or images)
    EVERYTHING(pictures(), 3, "a", 0, 32)
    assert called == ["crop", "jitter", "grey", "blur", "solarise", "flip"]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_device_without_memory_can_make_views(channels):
    """So nothing is read back, and nothing is left on the host."""
    images = torch.empty(10, channels, 16, 16, device="meta")
    changed = EVERYTHING(images, 3, "a", 1, 10)
    assert changed.shape == images.shape
    assert changed.device.type == "meta"


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


@pytest.mark.parametrize(("processes", "batch"), [(2, 10), (3, 10), (2, 4)])
def test_a_process_augments_its_rows_as_the_whole_batch_would(processes, batch, monkeypatch):
    images = pictures(batch)
    whole = EVERYTHING(images, 3, "a", 1, batch)
    bounds = [batch * rank // processes for rank in range(processes + 1)]
    for rank in range(processes):
        rows = slice(bounds[rank], bounds[rank + 1])
        monkeypatch.setattr(distributed, "local_slice", lambda batch, rows=rows: rows)
        torch.testing.assert_close(EVERYTHING(images[rows], 3, "a", 1, batch), whole[rows], atol=1e-6, rtol=0)
