"""encoder.start patches: the first convolution begins as whitened k-means patches of the training images."""

import numpy as np
import pytest
import tiny
import torch
from torch import Tensor

from sao.core import distributed
from sao.data.loader import Batches
from sao.evaluation import patches
from sao.evaluation.patches import Patches
from sao.methods import Method, encoders
from sao.methods.encoders import patch_filters


@pytest.fixture(autouse=True)
def _few_patches(monkeypatch):
    monkeypatch.setattr(patches, "SAMPLE", 20_000)


def images(count: int = 40, size: int = 8, channels: int = 3) -> Tensor:
    """In which neighbouring pixels are alike, in [-1, 1]."""
    noise = torch.rand(count, channels, size + 2, size + 2, generator=torch.Generator().manual_seed(0))
    return 2 * torch.nn.functional.avg_pool2d(noise, 3, stride=1) - 1


def batches() -> Batches:
    return Batches(tiny.dataset().train, torch.device("cpu"))


def stems(method: Method) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items() if name.endswith("encoder.stem.weight")}


@pytest.mark.parametrize("patch", [1, 2])
def test_a_response_is_the_centroid_times_the_whitened_patch(patch):
    """Position by position, from the definitions; all filters have one scale."""
    pictures = images()
    random = torch.randn(5, 3 * patch**2, 3, 3, generator=torch.Generator().manual_seed(1))
    filters = patch_filters(pictures, random, patch, seed=3)
    side = 3 * patch
    pixels = pictures.add(1).mul(127.5).permute(0, 2, 3, 1).numpy()
    fitted = Patches.fit(pixels, np.arange(len(pixels)), 5, 3, side)
    unshuffled = torch.nn.functional.pixel_unshuffle(pictures[:4], patch)
    found = torch.nn.functional.conv2d(unshuffled, filters)
    ratios = []
    for image in range(4):
        for y in range(found.shape[2]):
            for x in range(found.shape[3]):
                pixels = pictures[image, :, y * patch : y * patch + side, x * patch : x * patch + side].flatten()
                for number, centroid in enumerate(fitted.centroids):
                    expected = torch.dot(centroid, fitted.whitening @ (pixels - pixels.mean()))
                    ratios.append(found[image, number, y, x] / expected if expected.abs() > 0.01 else torch.tensor(torch.nan))
    ratio = torch.stack(ratios)
    ratio = ratio[~ratio.isnan()]
    assert len(ratio) > 50
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-2, atol=0)


def test_responses_deviate_as_much_as_those_of_random_filters():
    pictures = images(300)
    random = torch.randn(5, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    filters = patch_filters(pictures, random, 1, seed=3)
    deviations = []
    for weight in (random, filters):
        responses = torch.nn.functional.conv2d(pictures, weight).transpose(0, 1).flatten(1)
        deviations.append(responses.var(dim=1).mean().sqrt())
    assert deviations[1] == pytest.approx(float(deviations[0]), rel=0.03)


def test_every_copy_of_the_encoder_starts_from_the_same_patches():
    for name in ("structural", "byol"):
        method = tiny.method(method=name, encoder__start="patches")
        before = stems(method)
        method.refresh(batches(), 0)
        after = stems(method)
        first, *others = after.values()
        assert others, name
        assert all(torch.equal(first, other) for other in others)
        assert not any(torch.equal(before[key], after[key]) for key in before)


def test_the_start_is_a_function_of_the_seed_and_happens_once():
    method, again, other = (tiny.method(encoder__start="patches", seed=seed) for seed in (0, 0, 1))
    for one in (method, again, other):
        one.refresh(batches(), 0)
    assert all(torch.equal(value, stems(again)[name]) for name, value in stems(method).items())
    assert not any(torch.equal(value, stems(other)[name]) for name, value in stems(method).items())
    with torch.no_grad():
        for value in method.parameters():
            value.zero_()
    method.refresh(batches(), 1)
    assert all(not value.any() for value in stems(method).values())


def test_without_the_option_nothing_is_read():
    method = tiny.method()
    before = stems(method)
    method.refresh(None, 0)  # pyright: ignore[reportArgumentType]
    assert all(torch.equal(before[name], value) for name, value in stems(method).items())


def test_processes_take_the_filters_of_the_first(monkeypatch):
    method, first = tiny.method(encoder__start="patches"), torch.randn(4, 1, 3, 3)
    monkeypatch.setattr(distributed, "is_main", lambda: False)
    monkeypatch.setattr(distributed, "total", lambda tensor: tensor + first)
    monkeypatch.setattr(encoders, "patch_filters", lambda *arguments: pytest.fail("the first process does it"))
    method.refresh(batches(), 0)
    assert all(torch.equal(value, first) for value in stems(method).values())
