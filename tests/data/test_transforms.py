"""Changes of images against torchvision's and kornia's, one image at a time."""

import importlib
import itertools

import pytest
import torch
from torch import Tensor

from sao.data import augmentation as transforms
from sao.torchvision_import import import_torchvision

import_torchvision()
torchvision = importlib.import_module("torchvision.transforms.functional")
kornia = importlib.import_module("kornia")
BICUBIC = importlib.import_module("torchvision.transforms").InterpolationMode.BICUBIC


def noise(n: int, channels: int = 3, height: int = 16, width: int = 16, seed: int = 0) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(seed))


def values(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


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
    found = transforms.blur(images, sigma, torch.tensor([True] * 4))
    for image, width_of, own in zip(images, sigma.tolist(), found, strict=True):
        close(own, torchvision.gaussian_blur(image[None], [13, 13], [width_of, width_of])[0])
        close(own, kornia.filters.gaussian_blur2d(image[None], (13, 13), (width_of, width_of), "reflect")[0])
    half = transforms.blur(images, sigma, torch.tensor([True, False, True, False]))
    assert torch.equal(half[1::2], images[1::2])
    assert torch.equal(half[::2], found[::2])


def test_a_blur_that_reaches_over_a_small_image_keeps_its_brightness():
    images = torch.full((2, 1, 4, 4), 0.3)
    close(transforms.blur(images, values(2.0, 2.0), torch.tensor([True, True])), images)


ORDERS = list(itertools.permutations(range(4)))


def test_jitter_is_torchvisions_in_every_order():
    images = noise(len(ORDERS))
    generator = torch.Generator().manual_seed(1)
    factors = torch.rand(len(ORDERS), 4, generator=generator) * 1.6 + 0.2
    factors[:, 3] = torch.rand(len(ORDERS), generator=generator) - 0.5
    places = torch.tensor([[order.index(operation) for operation in range(4)] for order in ORDERS])
    operations = [
        torchvision.adjust_brightness,
        torchvision.adjust_contrast,
        torchvision.adjust_saturation,
        torchvision.adjust_hue,
    ]
    found = transforms.jitter(images, factors, places.float(), torch.ones(len(ORDERS), dtype=torch.bool))
    for order, image, factor, own in zip(ORDERS, images, factors.tolist(), found, strict=True):
        for operation in order:
            image = operations[operation](image, factor[operation])
        close(own, image, atol=2e-3)  # its weight of red is 0.2989
    none = transforms.jitter(images, factors, places.float(), torch.zeros(len(ORDERS), dtype=torch.bool))
    assert torch.equal(none, images)


@pytest.mark.parametrize("operation", range(4))
def test_each_part_of_the_jitter_is_kornias(operation):
    """The weights of red, green and blue included."""
    strengths = values(0.0, 0.3, 1.0, 1.7) if operation < 3 else values(-0.5, -0.2, 0.0, 0.37)
    images, factors = noise(4), values(1.0, 1.0, 1.0, 0.0).repeat(4, 1)
    factors[:, operation] = strengths
    order = values(0.1, 0.2, 0.3, 0.4).repeat(4, 1)
    found = transforms.jitter(images, factors, order, torch.tensor([True] * 4))
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
    order = values(0.1, 0.2, 0.3, 0.4).repeat(3, 1)
    close(transforms.jitter(images, factors, order, torch.tensor([True] * 3)), images, atol=1e-6)


def test_jitter_of_one_channel_is_brightness_and_contrast():
    images = noise(2, channels=1)
    factors = torch.tensor([[0.7, 1.6, 0.1, 0.4], [1.4, 0.5, 0.2, -0.3]])
    order = torch.tensor([[0.1, 0.8, 0.0, 0.0], [0.8, 0.1, 0.0, 0.0]])
    found = transforms.jitter(images, factors, order, torch.tensor([True, True]))
    first = torchvision.adjust_contrast(torchvision.adjust_brightness(images[0], 0.7), 1.6)
    second = torchvision.adjust_brightness(torchvision.adjust_contrast(images[1], 0.5), 1.4)
    close(found, torch.stack([first, second]))


def test_any_precision_stays_as_it_is():
    images, chosen = noise(2).double(), torch.tensor([True, True])
    order = values(0.1, 0.2, 0.3, 0.4).repeat(2, 1)
    changed = [
        transforms.crop(images, torch.tensor([[0.0, 1.0, 5.0, 6.0]] * 2), (16, 16)),
        transforms.blur(images, values(1.0, 2.0), chosen),
        transforms.jitter(images, torch.ones(2, 4), order, chosen),
        transforms.grey(images, chosen),
        transforms.solarise(images, chosen),
        transforms.flip(images, chosen),
    ]
    assert all(image.dtype == torch.float64 for image in changed)
