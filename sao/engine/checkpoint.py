"""Checkpoints that survive a kill at any moment: written aside, synced, checksummed, renamed; never unpickled.

checkpoints/step-00001234/method.safetensors      parameters, averages and buffers
                          optimisers.safetensors  moments, named OPTIMISER/PARAMETER/QUANTITY
                          state.json              step and checksums
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from sao.errors import InputError
from sao.methods import Method

FORMAT = 1


def save(folder: Path, method: Method, step: int, keep: int) -> Path:
    """Write the state after `step` steps and remove all but the newest `keep` checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{step:08d}"
    temporary = folder / f".writing-{step:08d}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    tensors = {
        "method.safetensors": {name: value.detach().contiguous() for name, value in method.state_dict().items()},
        "optimisers.safetensors": _optimiser_tensors(method.optimisers),
    }
    for name, content in tensors.items():
        save_file(content, temporary / name)
    state = {"format": FORMAT, "step": step, "checksums": {name: _checksum(temporary / name) for name in tensors}}
    (temporary / "state.json").write_text(json.dumps(state, indent=1))
    for path in (*temporary.iterdir(), temporary):
        _sync(path)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    _sync(folder)
    for old in steps_in(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def load_newest(folder: Path, method: Method, report: Callable[[str], None]) -> int:
    """Restore the newest whole checkpoint and return its step; a damaged one is reported and passed over."""
    for path in reversed(steps_in(folder)):
        try:
            return load(path, method)
        except InputError as error:
            report(f"{error}; trying the one before")
    raise InputError(f"there is no usable checkpoint in {folder}: start again with `sao train … --overwrite`")


def load(path: Path, method: Method) -> int:
    try:
        state = json.loads((path / "state.json").read_text())
        for name, expected in state["checksums"].items():
            if _checksum(path / name) != expected:
                raise InputError(f"checkpoint {path} is damaged ({name} does not match its checksum)")
        tensors = load_file(path / "method.safetensors")
        moments = load_file(path / "optimisers.safetensors")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"checkpoint {path} is damaged ({str(error).splitlines()[0]})") from None
    try:
        method.load_state_dict(tensors)
    except RuntimeError:
        raise InputError(f"checkpoint {path} is of another network than config.yaml describes") from None
    _load_moments(method.optimisers, moments)
    return state["step"]


def steps_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def size_on_disk(method: Method) -> int:
    """Bytes of one checkpoint once training runs: two moments for each trained parameter."""
    held = sum(value.numel() * value.element_size() for value in method.state_dict().values())
    trained = {id(p): p for o in method.optimisers.values() for group in o.param_groups for p in group["params"]}
    return held + sum(2 * p.numel() * p.element_size() for p in trained.values())


def _optimiser_tensors(optimisers: dict[str, Optimizer]) -> dict[str, Tensor]:
    return {
        f"{name}/{index}/{quantity}": torch.as_tensor(value).detach().contiguous()
        for name, optimiser in optimisers.items()
        for index, quantities in optimiser.state_dict()["state"].items()
        for quantity, value in quantities.items()
    }


def _load_moments(optimisers: dict[str, Optimizer], moments: dict[str, Tensor]) -> None:
    for name, optimiser in optimisers.items():
        state = optimiser.state_dict()
        state["state"] = {}
        for key, value in moments.items():
            owner, index, quantity = key.split("/")
            if owner == name:
                state["state"].setdefault(int(index), {})[quantity] = value
        optimiser.load_state_dict(state)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
