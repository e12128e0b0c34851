"""Checkpoints that survive a kill at any moment: written aside, synced, checksummed, renamed; never unpickled.

checkpoints/step-00001234/method.safetensors      parameters, EMAs and buffers
                          optimisers.safetensors  moments, named OPTIMISER/PARAMETER/QUANTITY
                          state.json              step and checksums
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from sao.errors import InputError, typed
from sao.methods import Method
from sao.runtime.files import delete, opened, own_path, read_json, write_text, written_folder

FORMAT = 2  # 1 was written by version 0.2, with other names of networks
# Names of networks in format 1, at the beginning of a tensor's name or after a dot, and their names today.
RENAMED = {"average_": "ema_", "partner.": "teacher."}
T = TypeVar("T")
METHOD, OPTIMISERS, STATE = "method.safetensors", "optimisers.safetensors", "state.json"


def save(folder: Path, method: Method, step: int, keep: int) -> None:
    """Write the state after `step` steps and remove all but the latest `keep` checkpoints."""
    target = folder / _name(step)
    tensors = {
        METHOD: {name: value.detach().contiguous() for name, value in method.state_dict().items()},
        OPTIMISERS: _optimiser_tensors(method.optimisers),
    }
    try:
        for unfinished in folder.glob(".*writing-*"):  # of a process that was killed
            delete(unfinished, folder.parent)
        with written_folder(target, folder.parent) as temporary:
            _write(temporary, tensors, step)
            if target.exists():  # a damaged one, whose steps were made again
                delete(target, folder.parent)
        # One that is newer than this was damaged and passed over: it must not push a good one out.
        for old in [path for path in steps_in(folder) if path.name <= target.name][:-keep]:
            delete(old, folder.parent)
    except (OSError, SafetensorError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
        raise InputError(f"checkpoint {target} cannot be written ({reason}); those before it are kept") from None


def save_some(folder: Path, tensors: dict[str, Tensor], step: int, uses: Sequence[str], half: bool) -> None:
    """A checkpoint with only the weights that these uses need; `half` stores floats in half precision."""
    kept = {name: value.half() if half and value.is_floating_point() else value for name, value in tensors.items()}
    with written_folder(folder / _name(step), folder.parent) as temporary:
        _write(temporary, {METHOD: kept}, step, uses=list(uses))


def _write(folder: Path, tensors: dict[str, dict[str, Tensor]], step: int, **more: Any) -> None:
    for name, content in tensors.items():
        save_file(content, folder / name)
    state = {"format": FORMAT, "step": step, "checksums": {name: _checksum(folder / name) for name in tensors}, **more}
    write_text(folder / STATE, json.dumps(state, indent=1) + "\n", inside=_run_of(folder))


def uses_of(path: Path) -> list[str] | None:
    """The uses of a checkpoint that holds some weights; None for a whole one."""
    with _explained(path):
        return _state(path).get("uses")


def load_latest(folder: Path, method: Method, report: Callable[[str], None]) -> int:
    """Restore the latest whole checkpoint and return its step; a damaged one is reported and passed over."""
    return latest(folder, report, lambda path: load(path, method))


def latest(folder: Path, report: Callable[[str], None], use: Callable[[Path], T]) -> T:
    """What a function makes of the latest checkpoint that it does not refuse; those before are tried in turn."""
    reasons: list[str] = []
    for path in reversed(steps_in(folder)):
        try:
            return use(path)
        except InputError as error:
            reasons.append(str(error))
            report(f"{error}; trying the one before")
    if not reasons:
        raise InputError(
            f"{folder.parent} has no checkpoint yet: wait until the training that makes it has written its first "
            f"(log.checkpoint_every), or go on with `{typed('resume', folder.parent)}`"
        )
    raise InputError(
        f"there is no usable checkpoint in {folder} ({'; '.join(reasons)}): start again with `sao train … --overwrite`"
    )


def load(path: Path, method: Method) -> int:
    step = checked_step(path, (METHOD, OPTIMISERS))
    with _explained(path):
        stored, moments = (_loaded(path / name) for name in (METHOD, OPTIMISERS))
    tensors = {name: stored[old] for name, old in _current_names(path, stored).items()}
    try:
        method.load_state_dict(tensors)
        _load_moments(method.optimisers, moments)
    except (RuntimeError, ValueError, LookupError):
        raise other_network(path) from None
    return step


def checked_step(path: Path, names: Sequence[str]) -> int:
    """The step of a checkpoint of which these files are whole."""
    with _explained(path):
        state = _state(path)
        format_, step, checksums = state["format"], int(state["step"]), state["checksums"]
        for name in names:
            if _checksum(path / name) != checksums[name]:
                raise InputError(f"checkpoint {path} is damaged ({name} does not match its checksum)")
    if format_ not in (1, FORMAT) or path.name != _name(step):
        raise InputError(f"checkpoint {path} is damaged ({STATE} says format {format_} and step {step})")
    return step


def weights_checksum(path: Path) -> str:
    """What a checkpoint says of its parameters, averages and buffers."""
    with _explained(path):
        return str(_state(path)["checksums"][METHOD])


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Of parameters, EMAs and buffers; none of them is read."""
    with _weights(path) as (file, stored):
        return {name: tuple(file.get_slice(old).get_shape()) for name, old in stored.items()}


def some_tensors(path: Path, names: Sequence[str]) -> dict[str, Tensor]:
    """Some of the parameters, EMAs and buffers; the others are not read."""
    with _weights(path) as (file, stored):
        return {name: file.get_tensor(stored[name]) for name in names}


@contextmanager
def _weights(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The file of weights, and the stored names of its tensors."""
    with _explained(path), own_path(path / METHOD, _run_of(path)) as opened_path, safe_open(opened_path, "pt") as file:
        yield file, _current_names(path, file.keys())


def current_name(name: str) -> str:
    """Today's name of a tensor that version 0.2 named."""
    for old, new in RENAMED.items():
        name = re.sub(rf"(^|\.){re.escape(old)}", rf"\g<1>{new}", name)
    return name


def other_network(path: Path) -> InputError:
    return InputError(f"checkpoint {path} is of another network than config.yaml describes")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"checkpoint {path} is damaged ({_reason(error)})") from None


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
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        for key, value in moments.items():
            owner, index, quantity = key.split("/")
            if owner == name:
                parameter = parameters[int(index)]
                if value.shape == parameter.shape:
                    # In the parameter's own memory format: fused optimisers go through both in the order of the bytes.
                    value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
                state["state"].setdefault(int(index), {})[quantity] = value
        optimiser.load_state_dict(state)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{Path(error.filename).name}: {error.strerror}"
    if isinstance(error, KeyError | TypeError | json.JSONDecodeError | UnicodeDecodeError):
        return f"{STATE} cannot be read"
    return str(error).splitlines()[0]


def _current_names(path: Path, stored: Iterable[str]) -> dict[str, str]:
    """The stored name of each tensor by its name today: an older version may have written the checkpoint."""
    older = _state(path)["format"] == 1
    return {current_name(name) if older else name: name for name in stored}


def _run_of(path: Path) -> Path:
    """The folder of the run that a checkpoint, RUN/checkpoints/step-…, is in."""
    return path.parents[1]


def _state(path: Path) -> dict[str, Any]:
    return read_json(path / STATE, _run_of(path))


def _loaded(file: Path) -> dict[str, Tensor]:
    with own_path(file, _run_of(file.parent)) as path:
        return load_file(path)


def _checksum(file: Path) -> str:
    with opened(file, inside=_run_of(file.parent)) as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()
