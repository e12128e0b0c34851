"""Files that are written only after they have computed the same as `sao` does."""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from sao.errors import InputError
from sao.export.check import Inputs, Run, check, run_of
from sao.export.plain import write_folder
from sao.export.whole import Whole
from sao.networks.cpu import portable
from sao.runtime.files import written, written_folder

ENDINGS = {".onnx": "ONNX", ".pt2": "a torch.export program", "": "a folder of plain PyTorch"}
PLAIN_FILES = r"weights\.safetensors|encoder\.py|generator\.py"  # of a folder of plain PyTorch
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OPSET = 20


def check_can_write(target: Path, any_size: bool = False) -> None:
    """Before anything is computed: whether the ending is known and what it needs is there."""
    if any_size and target.suffix == "":
        raise InputError(f"--any-size is for .onnx and .pt2: {target} would be a folder of plain PyTorch")
    if target.suffix not in ENDINGS:
        raise InputError(f"{target} must end in .onnx or .pt2, or have no ending, for a folder")
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if target.suffix == ".onnx" and missing:
        raise InputError(f"writing .onnx needs {', '.join(missing)}: pip install 'sao[export]', or write .pt2 or a folder")


def write(target: Path, whole: Whole, inputs: Inputs, description: str, overwrite: bool = False) -> tuple[float, Run]:
    """Write the file or folder if it agrees with `sao` on these inputs; the largest difference, and what runs the file.

    A folder that is there is replaced only with `overwrite`, or if it is empty.
    """
    check_can_write(target, len(whole.free_axes) > 1)
    with _quiet():
        match target.suffix:
            case ".onnx":
                return _write_file(target, whole, inputs, _save_onnx, open_onnx)
            case ".pt2":
                return _write_file(target, whole, inputs, _save_program, open_program)
            case _:
                return _write_folder(target, whole, inputs, description, overwrite)


def program_of(module: torch.nn.Module, example: torch.Tensor, free_axes: Sequence[int] = (0,)) -> ExportedProgram:
    """The module as a graph of torch's own operators, for a batch of any length."""
    free = {axis: Dim(("batch", "height", "width")[axis], min=1) for axis in free_axes}
    with portable(), torch.no_grad():
        return torch.export.export(module, (example,), dynamic_shapes=(free,), strict=False)


def _write_file(
    target: Path, whole: Whole, inputs: Inputs, save: Callable[[Path, Whole], None], opened: Callable[[Path], Run]
) -> tuple[float, Run]:
    with written(target) as temporary:
        _explained(whole, lambda: save(temporary, whole))
        run = opened(temporary)
        return check(whole, run, inputs), run


def _write_folder(target: Path, whole: Whole, inputs: Inputs, description: str, overwrite: bool) -> tuple[float, Run]:
    with written_folder(target, replace=overwrite) as temporary:
        program = _explained(whole, lambda: program_of(whole.network, _network_example(whole)))
        run = write_folder(temporary, whole, program, description)
        return check(whole, run, inputs), run


def _network_example(whole: Whole) -> torch.Tensor:
    """What the network inside gets when the whole gets its example."""
    caught: list[torch.Tensor] = []
    handle = whole.network.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    try:
        with portable(), torch.no_grad():
            whole.module(whole.example)
    finally:
        handle.remove()
    return caught[0]


def _save_onnx(path: Path, whole: Whole) -> None:
    program = program_of(whole.module, whole.example, whole.free_axes)
    names: dict[str, Any] = {"input_names": [whole.input_name], "output_names": [whole.output_name]}
    exported = torch.onnx.export(program, (), dynamo=True, opset_version=OPSET, verbose=False, **names)
    assert exported is not None
    if whole.preparation:
        exported.model.metadata_props["preparation"] = whole.preparation
    exported.save(path, external_data=False)


def open_onnx(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    (first,) = session.get_inputs()
    return lambda x: np.asarray(session.run(None, {first.name: x})[0])


def _save_program(path: Path, whole: Whole) -> None:
    said = {"preparation.txt": whole.preparation} if whole.preparation else None
    torch.export.save(program_of(whole.module, whole.example, whole.free_axes), path, extra_files=said)


def open_program(path: Path) -> Run:
    return run_of(torch.export.load(path).module())


def _explained(whole: Whole, function: Callable):
    """What cannot be written as a fixed graph (a loop with draws on the way) is said in one line."""
    try:
        return function()
    except OSError as error:
        raise InputError(f"the {whole.kind} cannot be written: {error.strerror}") from None
    except Exception as error:  # torch and its exporters raise nearly every kind
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(f"the {whole.kind} of this run cannot be exported in this form: {reason[:200]}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn and log about their own inside."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)
