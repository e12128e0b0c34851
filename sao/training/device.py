"""Which device, how many threads, which precision."""

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sao.config import Train
from sao.core import distributed
from sao.core.precision import exact_products
from sao.errors import InputError
from sao.methods import Method


def choose_device(name: str) -> torch.device:
    """ "auto" takes an accelerator where there is one."""
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        # Metal has no float64 and lacks operators that the Jacobian needs.
        return torch.device("cpu") if accelerator is None or accelerator.type == "mps" else accelerator
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"train.device {name!r} cannot be used here ({reason}): set --train.device cpu, or another") from None
    return device


def fixed_choices(train: Train) -> dict[str, str]:
    """Device and precision as they are decided where a run begins: stored with it, so that it goes on as it began."""
    device = choose_device(train.device)
    check_compiler(train, device)
    precision = "bfloat16" if choose_bfloat16(train.precision, device) else "float32"
    return {"device": device.type if train.device == "auto" else train.device, "precision": precision}


def choose_bfloat16(name: str, device: torch.device, worthwhile: float = 1.5) -> bool:
    """Whether passes run in bfloat16; "auto" measures a matrix product, because some devices emulate it slowly."""
    if name == "auto":
        return product_seconds(torch.float32, device) > worthwhile * product_seconds(torch.bfloat16, device)
    return name == "bfloat16"


def check_compiler(train: Train, device: torch.device) -> None:
    """Whether networks can be compiled here, where that is wanted; it takes some seconds the first time."""
    if train.compile and distributed.world_size() > 1:
        raise InputError("train.compile is for one process: what processes exchange within a pass was not tried with it")
    if train.compile and (reason := _compiles(device)) is not None:
        raise InputError(f"train.compile cannot be used here ({reason}): leave it off, or install what is missing")


@functools.cache
def _compiles(device: torch.device) -> str | None:
    """Why not; None where it works."""
    try:
        torch.compile(lambda numbers: numbers.sin() + 1)(torch.zeros(8, device=device))
    except Exception as error:  # of the compiler of C++ or of Triton, whichever the device needs
        return str(error).strip().splitlines()[0]
    return None


def set_precision(method: Method, train: Train, bfloat16: bool) -> None:
    """Set the precision of the passes without Jacobian norms, and whether they are compiled."""
    method.autocast_bfloat16, method.autocast_tf32 = bfloat16, train.tf32
    if train.compile:
        method.compile_networks()


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


@contextmanager
def numerics(train: Train) -> Iterator[None]:
    """Around the steps of a run: exact products, and deterministic ones where wanted; an operator that has none is named."""
    before = torch.are_deterministic_algorithms_enabled()
    if train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs to give the same bits each time
        torch.use_deterministic_algorithms(True)
    try:
        with exact_products():
            yield
    except RuntimeError as error:
        if not train.deterministic or "deterministic" not in str(error):
            raise
        reason = str(error).partition(". ")[0]
        raise InputError(f"train.deterministic cannot be kept here ({reason}): leave it off, or take another device") from None
    finally:
        torch.use_deterministic_algorithms(before)
