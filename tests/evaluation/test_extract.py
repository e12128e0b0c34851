"""Features a chunk at a time."""

import numpy as np
import pytest
import torch

from sao.data.dataset import Images
from sao.evaluation.extract import extract


@pytest.mark.parametrize(("size", "chunks"), [(8, [50]), (128, [16, 16, 16, 2])])
def test_large_images_pass_in_smaller_chunks_with_the_same_result(size, chunks):
    images = Images(np.random.default_rng(0).integers(0, 256, (50, size, size, 3), dtype=np.uint8))
    seen = []

    def function(inputs: torch.Tensor) -> torch.Tensor:
        seen.append(len(inputs))
        return inputs.flatten(1)[:, :5]

    found = extract(function, images, torch.device("cpu"))
    assert seen == chunks
    assert np.array_equal(found, images.inputs(slice(None)).flatten(1)[:, :5].numpy())
