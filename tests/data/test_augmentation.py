"""Augmentation: each sample its own, a function of (seed, purpose, step), and the same however many processes share a batch."""

import importlib
import itertools
import math

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from sao.core import distributed
from sao.core.random import uniform
from sao.data import augmentation as transforms
from sao.data.augmentation import Augmentation, SmallAugmentation, frame_windows, jitter_parameters, windows
from sao.runtime.torchvision_import import import_torchvision

import_torchvision()
torchvision = importlib.import_module("torchvision.transforms.functional")
kornia = importlib.import_module("kornia")
BICUBIC = importlib.import_module("torchvision.transforms").InterpolationMode.BICUBIC
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


@pytest.mark.parametrize("name", ["flip", "crop", "jitter", "blur", "solarise", "all"])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_sample_has_its_own_draw(name, channels):
    one = pictures(1, channels).expand(32, -1, -1, -1).clone()
    asked = {"flip": True, "crop": 0.5, "jitter": JITTER, "blur": 0.5, "solarise": 0.5}
    augmentation = EVERYTHING if name == "all" else Augmentation.model_validate({name: asked[name]})
    changed = augmentation(one, 3, "a", 0, 32)
    assert (changed.shape, changed.dtype, changed.requires_grad) == (one.shape, one.dtype, False)
    assert -1 <= changed.min() <= changed.max() <= 1
    assert len({tuple(image.flatten().tolist()) for image in changed}) >= 2
    assert not torch.equal(changed, one)


def test_flips_are_flips_of_about_half():
    images = pictures(200)
    changed = Augmentation(flip=True)(images, 3, "a", 0, 200)
    same, turned = (torch.isclose(changed, other, atol=1e-5).flatten(1).all(1) for other in (images, images.flip(3)))
    assert bool((same ^ turned).all())
    assert 70 < int(turned.sum()) < 130


@pytest.mark.parametrize(("crop", "largest"), [(0.1, 0.2), (0.3, 0.5), (0.25, 1.0), (0.9, 1.0)])
def test_views_show_shares_from_the_smallest_to_the_largest(crop, largest):
    """Two ramps tell how much of the width and of the height a view shows: their slopes shrink with the side that is left."""
    across, shown = torch.linspace(-0.9, 0.9, 32).expand(400, 1, 32, 32), []
    view, side = Augmentation(crop=crop), 32
    if largest < 1:
        side = 8
        view = SmallAugmentation(crop=crop, largest=largest, size=side, jitter=None, grey=0, blur=0, solarise=0, flip=False)
    for ramp, axis in ((across, 3), (across.mT, 2)):
        made = view(ramp.clone(), 0, "view", 0, 400)
        assert made.shape == (400, 1, side, side)
        inner = made.movedim(axis, -1)[:, 0, side // 2]
        shown.append((inner[:, 5 * side // 8] - inner[:, side // 4]) / 3 * 8 / (1.8 * 32 / 31))
    shares = shown[0] * shown[1]
    assert crop - 0.05 < float(shares.min()) < crop + 0.05
    assert largest - 0.05 < float(shares.max()) < largest + 0.05


# --- windows: the logarithm of width over height is uniform, as in torchvision's RandomResizedCrop ----------------------

N = 4000
WIDEST = math.log(4 / 3)


def drawn() -> Tensor:
    return uniform(0, "windows", 0, slice(0, N), (22,), "cpu")


def test_windows_are_distributed_as_torchvisions():
    """Shares of the area, shapes and places."""
    crops = importlib.import_module("torchvision.transforms").RandomResizedCrop
    found = windows(drawn(), (0.08, 1.0), 24, 32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        expected = torch.tensor([crops.get_params(torch.zeros(3, 24, 32), (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(N)])
    top, left, height, width = found.unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (top + height <= 24) & (left + width <= 32)).all())
    for own, other in zip(found.T, expected.T, strict=True):
        assert kstest(own.numpy(), other.numpy()).pvalue > 1e-3


def test_windows_of_an_image_are_as_often_tall_as_wide():
    """So small a share of so large an image that every window fits and rounding does not show."""
    _, _, height, width = windows(drawn(), (0.1, 0.2), 4000, 4000).unbind(1)
    logs = (width / height).double().log()
    assert float(logs.abs().max()) <= WIDEST + 0.01
    assert abs(float(logs.mean())) < 4 * WIDEST / math.sqrt(3 * N)
    assert kstest(logs.numpy(), "uniform", args=(-WIDEST, 2 * WIDEST)).pvalue > 1e-3
    shares = height * width / 4000**2
    assert kstest(shares.numpy(), "uniform", args=(0.1, 0.1)).pvalue > 1e-3


@pytest.mark.parametrize("aspect", [0.5, 1.0, 3.0])
def test_windows_of_a_frame_are_as_often_tall_as_wide_in_the_picture(aspect):
    """Before it was squashed to a square."""
    _, _, height, width = frame_windows(drawn(), 0.01, torch.full((N,), aspect)).unbind(1)
    small = height * width < 0.1  # these fit whatever their shape is
    assert int(small.sum()) > 100
    logs = (aspect * width / height)[small].double().log()
    assert float(logs.abs().max()) <= WIDEST + 1e-5
    assert abs(float(logs.mean())) < 4 * WIDEST / math.sqrt(3 * len(logs))


def test_places_are_uniform_over_where_a_window_fits():
    top, left, height, width = windows(drawn(), (0.1, 0.2), 4000, 3000).unbind(1)
    for start, length, side in ((top, height, 4000), (left, width, 3000)):
        assert 0 <= float(start.min()) <= float((start + length).max()) <= side
        assert kstest((start / (side - length)).numpy(), "uniform").pvalue > 1e-3


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


# --- draws ---------------------------------------------------------------------------------------------------------------


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
    for other in ((3, "b", 5), (3, "a", 6), (4, "a", 5)):
        assert not torch.equal(EVERYTHING(images, *other, 32), expected)


@pytest.mark.parametrize(("processes", "batch"), [(2, 10), (3, 10), (2, 4)])
def test_a_process_augments_its_rows_as_the_whole_batch_would(processes, batch, monkeypatch):
    images = pictures(batch)
    whole = EVERYTHING(images, 3, "a", 1, batch)
    bounds = [batch * rank // processes for rank in range(processes + 1)]
    for first, last in itertools.pairwise(bounds):
        rows = slice(first, last)
        monkeypatch.setattr(distributed, "local_slice", lambda batch, rows=rows: rows)
        torch.testing.assert_close(EVERYTHING(images[rows], 3, "a", 1, batch), whole[rows], atol=1e-6, rtol=0)


# --- the changes against torchvision's and kornia's, one image at a time ----------------------------------------------


def noise(n: int, channels: int = 3, height: int = 16, width: int = 16, seed: int = 0) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(seed))


def values(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


def all_of(images: Tensor) -> Tensor:
    """Every sample is chosen."""
    return torch.ones(len(images), dtype=torch.bool)


def in_order(images: Tensor) -> Tensor:
    """Brightness, contrast, saturation, hue for every sample."""
    return values(0.1, 0.2, 0.3, 0.4).repeat(len(images), 1)


def close(found: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, (16, 16)), (16, 16, (9, 9)), (12, 20, (8, 24))])
def test_crops_are_torchvisions(height, width, size):
    """Windows at every border, of one pixel, the whole image; where they shrink, too."""
    windows = [(0, 0, height, width), (3, 5, 7, 4), (height - 1, width - 1, 1, 1), (2, 0, 5, width), (0, 4, height, 6)]
    images = noise(len(windows), height=height, width=width)
    found = transforms.crop(images, torch.tensor(windows), size)
    for image, window, own in zip(images, windows, found, strict=True):
        expected = torchvision.resized_crop(image[None], *window, list(size), BICUBIC, antialias=True)[0]
        close(own, expected.clamp(0, 1))


def test_flip_grey_and_solarise_change_those_that_are_chosen():
    images, chosen = noise(4), torch.tensor([True, False, True, False])
    changes = {
        transforms.flip: torchvision.hflip,
        transforms.grey: lambda image: kornia.color.rgb_to_grayscale(image).expand_as(image),
        transforms.solarise: lambda image: torchvision.solarize(image, 0.5),
    }
    for own, theirs in changes.items():
        found = own(images, chosen)
        close(found[chosen], theirs(images[chosen]), atol=1e-6)
        assert torch.equal(found[~chosen], images[~chosen])
        assert not torch.equal(found[chosen], images[chosen])


def test_solarise_inverts_what_pil_inverts():
    """Bytes from 128 on."""
    pixels = torch.arange(256).reshape(1, 1, 16, 16)
    found = transforms.solarise(pixels / 255, torch.tensor([True])) * 255
    close(found, torch.where(pixels >= 128, 255 - pixels, pixels).float(), atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (14, 20)])
def test_blurs_are_torchvisions_and_kornias(height, width):
    sigma = values(0.1, 0.5, 1.3, 2.0)
    images = noise(4, height=height, width=width)
    found = transforms.blur(images, sigma, all_of(images))
    for image, width_of, own in zip(images, sigma.tolist(), found, strict=True):
        close(own, torchvision.gaussian_blur(image[None], [13, 13], [width_of, width_of])[0])
        close(own, kornia.filters.gaussian_blur2d(image[None], (13, 13), (width_of, width_of), "reflect")[0])
    half = transforms.blur(images, sigma, torch.tensor([True, False, True, False]))
    assert torch.equal(half[1::2], images[1::2])
    assert torch.equal(half[::2], found[::2])


def test_a_blur_that_reaches_over_a_small_image_keeps_its_brightness():
    images = torch.full((2, 1, 4, 4), 0.3)
    close(transforms.blur(images, values(2.0, 2.0), all_of(images)), images)


ORDERS = list(itertools.permutations(range(4)))


def test_jitter_is_torchvisions_in_every_order():
    images = noise(len(ORDERS))
    generator = torch.Generator().manual_seed(1)
    factors = torch.rand(len(ORDERS), 4, generator=generator) * 1.6 + 0.2
    factors[:, 3] = torch.rand(len(ORDERS), generator=generator) - 0.5
    places = torch.tensor([[order.index(operation) for operation in range(4)] for order in ORDERS])
    operations = [getattr(torchvision, f"adjust_{name}") for name in ("brightness", "contrast", "saturation", "hue")]
    found = transforms.jitter(images, factors, places.float(), all_of(images))
    for order, image, factor, own in zip(ORDERS, images, factors.tolist(), found, strict=True):
        for operation in order:
            image = operations[operation](image, factor[operation])
        close(own, image, atol=2e-3)  # its weight of red is 0.2989
    assert torch.equal(transforms.jitter(images, factors, places.float(), ~all_of(images)), images)


@pytest.mark.parametrize("operation", range(4))
def test_each_part_of_the_jitter_is_kornias(operation):
    """The weights of red, green and blue included."""
    strengths = values(0.0, 0.3, 1.0, 1.7) if operation < 3 else values(-0.5, -0.2, 0.0, 0.37)
    images, factors = noise(4), values(1.0, 1.0, 1.0, 0.0).repeat(4, 1)
    factors[:, operation] = strengths
    found = transforms.jitter(images, factors, in_order(images), all_of(images))
    enhance = kornia.enhance
    expected = [
        lambda: images * strengths.reshape(4, 1, 1, 1),
        lambda: enhance.adjust_contrast_with_mean_subtraction(images, strengths),
        lambda: enhance.adjust_saturation_with_gray_subtraction(images, strengths),
        lambda: enhance.adjust_hue(images, 2 * torch.pi * strengths),
    ][operation]()
    close(found, expected.clamp(0, 1), atol=1e-5)


def test_grey_and_black_pixels_have_no_hue_to_turn():
    images = torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), 0.6), torch.ones(3, 4, 4)])
    factors = values(1.0, 1.0, 1.0, 0.3).repeat(3, 1)
    close(transforms.jitter(images, factors, in_order(images), all_of(images)), images, atol=1e-6)


def test_jitter_of_one_channel_is_brightness_and_contrast():
    images = noise(2, channels=1)
    factors = torch.tensor([[0.7, 1.6, 0.1, 0.4], [1.4, 0.5, 0.2, -0.3]])
    order = torch.tensor([[0.1, 0.8, 0.0, 0.0], [0.8, 0.1, 0.0, 0.0]])
    found = transforms.jitter(images, factors, order, all_of(images))
    first = torchvision.adjust_contrast(torchvision.adjust_brightness(images[0], 0.7), 1.6)
    second = torchvision.adjust_brightness(torchvision.adjust_contrast(images[1], 0.5), 1.4)
    close(found, torch.stack([first, second]))


def test_any_precision_stays_as_it_is():
    images, chosen = noise(2).double(), torch.tensor([True, True])
    changed = [
        transforms.crop(images, torch.tensor([[0.0, 1.0, 5.0, 6.0]] * 2), (16, 16)),
        transforms.blur(images, values(1.0, 2.0), chosen),
        transforms.jitter(images, torch.ones(2, 4), in_order(images), chosen),
        *(change(images, chosen) for change in (transforms.grey, transforms.solarise, transforms.flip)),
    ]
    assert all(image.dtype == torch.float64 for image in changed)
