"""Whoever prepares images by the constants of an exported file feeds the network what it was trained on."""

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from sao.data.dataset import pixels_to_inputs
from sao.export.plain_source import FOR_IMAGES, HEAD
from sao.runtime.torchvision_import import import_torchvision


def encoder_class(channels: int) -> Any:
    """Of the Python file that an export writes, around a network that gives back its input."""
    facts = {"description": "", "buffers": [], "body": "        return inputs", "last": "x.flatten(1)", "features": 16}
    facts |= {"maps": [], "as_map": "y"}
    names: dict[str, Any] = {"__file__": "encoder.py", "__name__": "exported"}
    exec((HEAD + FOR_IMAGES).format(**facts, shape=(channels, 4, 4)), names)
    return names["Encoder"]


@pytest.mark.parametrize("channels", [1, 3])
def test_mean_and_std_on_pixels_from_0_to_1_are_what_bytes_become(channels):
    encoder = encoder_class(channels)({})
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 4, 4, channels), dtype=np.uint8))
    import_torchvision()
    transforms = importlib.import_module("torchvision.transforms.functional")
    stated = torch.stack([transforms.normalize(transforms.to_tensor(one.numpy()), encoder.mean, encoder.std) for one in pixels])
    torch.testing.assert_close(stated, encoder.prepared(pixels), rtol=0, atol=1e-6)
    torch.testing.assert_close(pixels_to_inputs(pixels), encoder.prepared(pixels), rtol=0, atol=1e-6)
    torch.testing.assert_close(encoder(stated), encoder(pixels), rtol=0, atol=1e-6)
    about = encoder.pretrained_cfg
    assert (about["mean"], about["std"], about["input_size"]) == (encoder.mean, encoder.std, (channels, 4, 4))
