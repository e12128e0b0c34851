"""Crops are as often tall as wide: the logarithm of width over height is uniform, as in torchvision's RandomResizedCrop."""

import math

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from sao.core.random import uniform
from sao.data.augmentation import Augmentation, SmallAugmentation, frame_windows, windows

N = 4000
WIDEST = math.log(4 / 3)


def drawn() -> Tensor:
    return uniform(0, "windows", 0, slice(0, N), (22,), "cpu")


def assert_log_uniform(ratios: Tensor) -> None:
    """Within [3/4, 4/3], by its mean and by its whole distribution."""
    logs = ratios.double().log()
    assert float(logs.abs().max()) <= WIDEST + 0.01
    assert abs(float(logs.mean())) < 4 * WIDEST / math.sqrt(3 * N)
    assert kstest(logs.numpy(), "uniform", args=(-WIDEST, 2 * WIDEST)).pvalue > 1e-3


def test_windows_of_an_image_are_as_often_tall_as_wide():
    """So small a share of so large an image that every window fits and rounding does not show."""
    _, _, height, width = windows(drawn(), (0.1, 0.2), 4000, 4000).unbind(1)
    assert_log_uniform(width / height)
    shares = height * width / 4000**2
    assert kstest(shares.numpy(), "uniform", args=(0.1, 0.1)).pvalue > 1e-3


@pytest.mark.parametrize("aspect", [0.5, 1.0, 3.0])
def test_windows_of_a_frame_are_as_often_tall_as_wide_in_the_picture(aspect):
    """Before it was squashed to a square."""
    aspects = torch.full((N,), aspect)
    _, _, height, width = frame_windows(drawn(), 0.01, aspects).unbind(1)
    small = height * width < 0.1  # these fit whatever their shape is
    assert int(small.sum()) > 100
    logs = (aspect * width / height)[small].double().log()
    assert float(logs.abs().max()) <= WIDEST + 1e-5
    assert abs(float(logs.mean())) < 4 * WIDEST / math.sqrt(3 * len(logs))


def test_places_are_uniform_over_where_a_window_fits():
    top, left, height, width = windows(drawn(), (0.1, 0.2), 4000, 3000).unbind(1)
    for start, length, side in ((top, height, 4000), (left, width, 3000)):
        assert float(start.min()) >= 0
        assert float((start + length).max()) <= side
        assert kstest((start / (side - length)).numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(("crop", "largest"), [(0.1, 0.2), (0.3, 0.5)])
def test_small_views_show_no_more_than_the_largest_share(crop, largest):
    """Two ramps tell how much of the width and of the height a view shows: their slopes shrink with the side that is left."""
    across = torch.linspace(-0.9, 0.9, 32).expand(300, 1, 32, 32)
    shown = []
    view = SmallAugmentation(crop=crop, largest=largest, size=8, jitter=None, grey=0, blur=0, solarise=0, flip=False)
    for ramp, axis in ((across, 3), (across.mT, 2)):
        made = view(ramp.clone(), 0, "view", 0, 300)
        assert made.shape == (300, 1, 8, 8)
        inner = made.movedim(axis, -1)[:, 0, 4]
        shown.append((inner[:, 5] - inner[:, 2]) / 3 * 8 / (1.8 * 32 / 31))
    shares = shown[0] * shown[1]
    assert crop - 0.05 < float(shares.min()) < crop + 0.05
    assert largest - 0.05 < float(shares.max()) < largest + 0.05
    whole = Augmentation(crop=crop)(across.clone(), 0, "view", 0, 300)
    assert whole.shape == across.shape
