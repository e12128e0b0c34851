"""What a study would cost on this machine: two real steps of each kind of network and method, then arithmetic."""

from collections.abc import Hashable, Sequence

from sao.commands.pricing import KNOWN, Price, price
from sao.config import Config
from sao.reproduce.tables.cells import Cell
from sao.training.log import clock


def price_study(cells: Sequence[Cell], processes: int) -> None:
    measured: dict[Hashable, Price] = {}
    said: set[str] = set()
    seconds = disk = 0.0
    for cell in cells:
        if cell.evaluation.exists():
            print(f"{cell.name}: done already")
            continue
        if cell.row.kind in ("raw", "untrained", "pca", "same_run"):
            print(f"{cell.name}: nothing to train")
            continue
        as_long = f", as long as {cell.row.needs}" if cell.row.kind == "rival" else ""
        kind = _kind_of_step(cell.config)
        if kind not in measured:
            measured[kind] = price(cell.config)
            for note in (measured[kind].note, f"measured    steps of batch {measured[kind].step.trial.batch}"):
                if note not in said:
                    print(note)
                said.add(note)
        one = measured[kind]
        steps = cell.config.steps_for(one.samples)
        seconds += steps * one.step.seconds
        disk += 0 if as_long else cell.config.log.keep * one.checkpoint
        print(f"{cell.name}: {steps} steps of {one.step.seconds:.2f} s, {clock(steps * one.step.seconds)}{as_long}", flush=True)
    together = f", {clock(seconds / processes)} with {processes} at a time that do not slow each other down"
    print(f"{len(cells)} cells: {clock(seconds)} of training left{together if processes > 1 else ''}")
    print(f"{disk / 1e9:.1f} GB of checkpoints; the evaluation of each cell comes on top")


def _kind_of_step(config: Config) -> Hashable:
    """What the time of a step depends on: the method without its learning rates, the encoder, the batch, the images."""
    images = KNOWN.get(config.data.source, config.data.source), config.data.size
    method = {name: value for name, value in config.method.model_dump().items() if not name.endswith("optimiser")}
    return str(method), config.encoder, config.train.batch, images
