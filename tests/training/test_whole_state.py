"""A checkpoint holds all that a method keeps from one step to the next, whatever the step is that it was made after."""

import pytest
import tiny
import torch

from sao.methods import METHODS
from sao.training import checkpoint


@pytest.mark.parametrize("name", METHODS)
def test_every_buffer_comes_back(name, tmp_path):
    """Also those that a state would not name: whoever reads one in a step must find it again."""
    method, restored = tiny.method(method=name), tiny.method(method=name)
    tiny.make_steps(method, 0, 1)  # within the rhythms of several steps that methods have
    checkpoint.save(tmp_path, method, 1, keep=1)
    checkpoint.load_latest(tmp_path, restored, report=print)
    found = dict(restored.named_buffers())
    lost = [key for key, value in method.named_buffers() if not torch.equal(found[key], value)]
    assert [key for key in lost if not key.startswith("health.")] == []  # which begins anew: what is broken is never saved
