"""Which device, how many threads, which precision."""

import time

import torch

from sao.errors import InputError


def choose_device(name: str) -> torch.device:
    """ "auto" takes an accelerator where there is one."""
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        # Metal has no float64 and lacks operators that the Jacobian needs.
        return torch.device("cpu") if accelerator is None or accelerator.type == "mps" else accelerator
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"train.device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def choose_bfloat16(name: str, device: torch.device, worthwhile: float = 1.5) -> bool:
    """Whether passes are made in bfloat16; "auto" measures a matrix product, because some devices only imitate it, slowly."""
    if name == "auto":
        return product_seconds(torch.float32, device) > worthwhile * product_seconds(torch.bfloat16, device)
    return name == "bfloat16"


def product_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """The fastest of five products of square matrices."""
    size = 256 if device.type == "cpu" else 4096
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    seconds = []
    for _ in range(6):  # the first also pays for warming up
        started = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # reading a value waits for the device
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def set_threads(threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
