"""In which precision a pass is computed: torch's autocast, and the rounding of factors to TF32, where a device has them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


@contextmanager
def cheaper(bfloat16: bool, tf32: bool, device: torch.device) -> Iterator[None]:
    """Around a forward pass that may be made in bfloat16, or with the factors of its products rounded to TF32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext():
        _round_factors("high" if tf32 else before[0], tf32 or before[1])
        try:
            yield
        finally:
            _round_factors(*before)


@contextmanager
def exact_products() -> Iterator[None]:
    """Inside, products of float32 matrices and convolutions are made in float32 on every device; torch's default for the
    latter is TF32 where a GPU has it.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    _round_factors("highest", False)
    try:
        yield
    finally:
        _round_factors(*before)


def _round_factors(of_matrices: str, of_convolutions: bool) -> None:
    torch.set_float32_matmul_precision(of_matrices)
    torch.backends.cudnn.allow_tf32 = of_convolutions


def full_precision(device: torch.device) -> AbstractContextManager:
    """Around what must keep the precision of its tensors, whatever is around it."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
