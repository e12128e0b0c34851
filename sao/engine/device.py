"""Which device, how many threads."""

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


def set_threads(threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
