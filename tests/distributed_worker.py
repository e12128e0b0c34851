"""What a process of a group does in tests/test_distributed.py, and how such a group is started without torchrun."""

import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tiny  # its server forks processes that have imported everything
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from sao.core import distributed
from sao.core.random import batch_rows
from sao.data.dataset import Dataset
from sao.data.loader import Batches
from sao.data.named import spirals
from sao.evaluation.extract import extract, extract_together
from sao.methods import Batch, Method
from sao.runtime import launch as processes
from sao.training import checkpoint
from sao.training.loop import new_method


def _method(**options: Any) -> dict[str, Any]:
    return {f"method__{name}": value for name, value in options.items()}


_VECTORS = {"data__source": "spirals", "encoder": "perceptron", "encoder__width": 8}
_VIEWS = {"method__view__flip": "true", "method__view__crop": 0.5}
CASES: dict[str, dict[str, Any]] = {
    "jsd": {"method__distance": "jensen_shannon"},
    "bhattacharyya": {"method__distance": "bhattacharyya", "method__smooth_every": 2, **_VECTORS},
    "hinge": {"method": "hinge", **_VECTORS},
    "biggan": {"method": "biggan"},
    "self-conditioned": {"method": "self_conditioned"},  # clustered again before step 4
    "stylegan2": {"method": "stylegan2"},
    "bigbigan": {"method": "bigbigan", "method__augmentation__flip": "true"},
    "genrep": {"method": "genrep", "method__view__flip": "true", "method__pairs": 40},  # seen again after two steps
    "supervised": {"method": "supervised", "method__augmentation__flip": "true", "method__augmentation__crop": 0.5},
    "simclr": {"method": "simclr", **_VIEWS, "method__optimiser__kind": "lars"},
    "vicreg": {"method": "vicreg", **_VIEWS, "method__ema_decay": 0.9},
    "mae": {"method": "mae", "method__mask": 0.5},
    "ddpm": {"method": "ddpm", "method__clip_grad_norm": 0.1},
    "byol": {"method": "byol", **_VIEWS, "method__momentum": 0.9, "method__optimiser__kind": "lars"},
    "byol-batchnorm": {"method": "byol", **_VIEWS, "encoder__norm": "batch", "method__ema_decay": 0.9},
    # The bias at the end of NNCLR's projector goes into a BatchNorm: its gradient is rounding alone, which AdamW would enlarge.
    "nnclr": {"method": "nnclr", **_VIEWS, "method__optimiser__kind": "lars"},
    "nnclr-same": {"method": "nnclr", "method__same_views": "true", **_VECTORS, "method__optimiser__kind": "lars"},
    "swav": {"method": "swav", **_VIEWS, "method__frozen_epochs": 0.05, "method__queue_epochs": 0.06},  # from steps 4 and 5 on
    "swav-small": {"method": "swav", "method__queue": 0, "method__small_views__count": 2, "method__small_views__size": 8},
    "dino": {"method": "dino", **_VIEWS, "method__momentum": 0.9, "method__frozen_epochs": 0.05},
    "frames": {"method": "supervised", "method__augmentation__flip": "true"},  # crops of whole pictures
    # One pass in which G has a gradient of its own, and in every other step one that it shares with D.
    "one-pass": _method(one_pass="true", smooth_every=2, norm_weight=0, augmentation__flip="true", augment_generated="true"),
    # Two processes have 16 and 18 rows of [real; fake].
    "one-pass-parts": _method(one_pass="true", smooth_every=2, micro_batch=10, keys_from="own"),
    "micro-batches": _method(micro_batch=10),
    "norms-of-some": _method(smooth_one_in=3, micro_batch=10),  # two processes have 3 norms of each half
    "norms-of-some-one-pass": _method(smooth_one_in=7, one_pass="true", norm_weight=0),
    "local": {
        **_method(local_weight=0.5, local_cluster_weight=0.7, local_size=4, cluster_warmup=6, smooth_every=2, lazy="true"),
        **_method(micro_batch=10),
        "encoder__start": "patches",
    },
}
BATCH = 17  # of which two processes have shares of different sizes
STEPS = 4
BEFORE = 3  # steps before the checkpoint that all worlds begin with: moments are there, and the bank is not empty


def start(world: int, folder: Path, target: str, *arguments: Any) -> list[Any]:
    """Processes that run a function of this module as ranks of one group; what each says goes to FOLDER/rank-R.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    port, group = free_port(), []
    for rank in range(world):
        values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {name: str(value) for name, value in values.items()}
        said = str(folder / f"rank-{rank}.txt")
        process = tiny._server.Process(target=_begin, args=(environment, said, target, arguments))
        process.start()
        group.append(process)
    return group


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def finish(group: list[Any], seconds: float = 300) -> list[int]:
    """Exit codes; negative for a signal."""
    for process in group:
        process.join(seconds)
        assert process.exitcode is not None, "a process did not end"
    return [process.exitcode for process in group]


def said(folder: Path) -> list[str]:
    """Lines that begin with `sao:`, of all ranks."""
    texts = [path.read_text() for path in sorted(folder.glob("rank-*.txt"))]
    assert not any("Traceback" in text for text in texts), texts
    lines = [line for text in texts for line in text.splitlines()]
    return [line for line in lines if line.startswith("sao:") and not line.startswith("sao: warning")]


def _begin(environment: dict[str, str], output: str, target: str, arguments: tuple[Any, ...]) -> None:
    os.environ |= environment | {"OMP_WAIT_POLICY": "PASSIVE"}
    torch.set_num_threads(1)
    for number in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    code = globals()[target](*arguments)
    sys.stdout.flush()
    sys.exit(code)


def command(*words: str) -> int:
    from sao.cli.main import main

    return main(list(words))


def commands(folders: list[str], lists: list[tuple[int, list[str]]]) -> int:
    """Commands one after the other, each in a group of its own (port, words) and each rank in a folder of its own."""
    from sao.cli.main import main

    os.chdir(folders[int(os.environ["RANK"])])
    for number, (port, words) in enumerate(lists):
        os.environ["MASTER_PORT"] = str(port)
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        print(f"{number} ended with {code}", flush=True)
        if dist.is_initialized():  # the process would have ended
            dist.destroy_process_group()
    return 0


def _happens(event: str, method: Method) -> None:
    match event:
        case "dying":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stopping":  # to answer, as when its machine has lost the network
            os.kill(os.getpid(), signal.SIGSTOP)
        case "differing":  # by the smallest possible error in one weight
            weight = next(method.parameters()).data.view(-1)
            weight[0] = weight[0].nextafter(torch.tensor(2.0))
        case "diverging":
            raise FloatingPointError("function returned NaN or inf")


def disturbed_command(event: str, rank: int, call: int, *words: str) -> int:
    """A command in which something happens to one rank alone the n-th time its step method is called."""
    from sao.methods.structural import Structural

    step, calls = Structural.step, 0

    def disturbed(self: Any, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and distributed.rank() == rank:
            _happens(event, self)
        return step(self, *args)

    setattr(Structural, "step", disturbed)  # noqa: B010 (this process is made for one command)
    return command(*words)


def trajectories(folder: str) -> None:
    """Every case from its checkpoint, and a few facts about the group, into FOLDER."""
    with processes.joined("cpu"):
        for name in CASES:
            trajectory(name, Path(folder))
        target = Path(folder) / f"facts-{distributed.world_size()}-{distributed.rank()}.json"
        target.write_text(json.dumps(_facts()))


def one_trajectory(name: str, folder: str) -> None:
    with processes.joined("cpu"):
        trajectory(name, Path(folder))


def own_trajectory(file: str, name: str, folder: str) -> None:
    """Of a method in a file of a reader's own."""
    from sao.config.outside import use_file

    use_file(file)
    one_trajectory(name, folder)


def _facts() -> dict[str, Any]:
    method, data = tiny.method(), tiny.dataset()
    counts = {}
    for name in ("jsd", "simclr", "byol", "supervised", "micro-batches"):
        with counted() as counter:
            stepped, batches, config = prepared(name)
            stepped.step(_batch(stepped, batches, config, 0), 0)
        counts[name] = dict(counter)
    device, sizes = torch.device("cpu"), (len(data.test), 1)
    parts = [data.test.select(torch.arange(size).numpy()) for size in sizes]
    return {
        "collectives": counts,
        "features": [
            float(abs(extract_together(method.features, part, device) - extract(method.features, part, device)).max())
            for part in parts
        ],
        "same": [distributed.same(7, -7), distributed.same(7, distributed.rank())],
        "any": [distributed.any_of(False), distributed.any_of(distributed.rank() == 1)],
        "told": processes.main_only(lambda: f"by {distributed.rank()}"),
        "turns": processes.node_first(lambda: distributed.rank()),
    }


@contextmanager
def counted() -> Iterator[Counter]:
    """The collectives of a block, by name."""
    counter: Counter = Counter()
    originals = {name: getattr(dist, name) for name in dir(dist) if name in _COLLECTIVES}
    for name, original in originals.items():

        def wrapped(*args, name=name, original=original, **kwargs):
            counter[name] += 1
            return original(*args, **kwargs)

        setattr(dist, name, wrapped)
    try:
        yield counter
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


_COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce_scatter", "reduce_scatter_tensor",
    "broadcast", "broadcast_object_list", "barrier", "all_to_all", "gather", "reduce", "scatter", "send", "recv",
)  # fmt: skip


def data_of(name: str) -> Dataset:
    if name == "frames":
        return tiny.framed()
    return spirals(samples=200) if _options(name).get("data__source") == "spirals" else tiny.dataset()


def _options(name: str) -> dict[str, Any]:
    """Of a case, or of a method by its name."""
    return CASES.get(name, {"method": name})


def prepared(name: str) -> tuple[Method, Batches, Any]:
    config, data = tiny.config(**{"train__batch": BATCH} | _options(name)), data_of(name)
    method = new_method(config, data, torch.device("cpu"))
    return method.double(), Batches(data.train, torch.device("cpu")), config


def make_checkpoint(name: str, folder: Path) -> None:
    method, batches, config = prepared(name)
    for step in range(BEFORE):
        method.refresh(batches, step)
        method.step(_batch(method, batches, config, step), step)
    checkpoint.save(folder / name, method, BEFORE, keep=1)


def trajectory(name: str, folder: Path) -> None:
    """Steps from the checkpoint; losses of each, gradients of the first, weights and bank after the first and the last."""
    method, batches, config = prepared(name)
    step = checkpoint.load_latest(folder / name, method, report=print)
    found: dict[str, torch.Tensor] = {}
    for index in range(1, STEPS + 1):
        method.refresh(batches, step)
        scalars = method.step(_batch(method, batches, config, step), step)
        step += 1
        found |= {f"{index}/loss/{key}": value.reshape(1) for key, value in scalars.items()}
        if index in (1, STEPS):
            found |= {f"{index}/state/{key}": value.clone().contiguous() for key, value in method.state_dict().items()}
            gradients = {key: p.grad for key, p in method.named_parameters() if p.grad is not None}
            found |= {f"{index}/gradient/{key}": value.clone().contiguous() for key, value in gradients.items()}
    save_file(found, folder / f"{name}-{distributed.world_size()}-{distributed.rank()}.safetensors")


def _batch(method: Method, batches: Batches, config: Any, step: int) -> Batch:
    """In the precision of the method."""
    batch = config.train.batch
    places = distributed.local_slice(batch)
    rows = batch_rows(config.seed, step, batch, len(batches))[places]
    inputs = batches.training_inputs(rows, config.seed, step, places).to(next(method.parameters()).dtype)
    return Batch(inputs, rows, batches.labels(rows) if method.needs_labels else None)
