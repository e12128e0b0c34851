"""What a study would cost on this machine: two real steps of each kind of network and method, then arithmetic."""

from collections.abc import Hashable, Sequence

from sao.cli.pricing import KNOWN, Price, price
from sao.config import Config
from sao.reproduce.rows import StudyRun
from sao.training.log import clock


def price_study(runs: Sequence[StudyRun], processes: int) -> None:
    measured: dict[Hashable, Price] = {}
    said: set[str] = set()
    seconds = disk = 0.0
    for run in runs:
        if run.evaluation.exists():
            print(f"{run.name}: done already")
            continue
        if run.row.kind in ("raw", "untrained", "pca", "patches", "same_run"):
            print(f"{run.name}: nothing to train")
            continue
        as_long = f", as long as {run.row.needs}" if run.row.kind == "rival" else ""
        kind = _kind_of_step(run.config)
        if kind not in measured:
            measured[kind] = price(run.config)
            for note in (measured[kind].note, f"measured    steps of batch {measured[kind].step.trial.batch}"):
                if note not in said:
                    print(note)
                said.add(note)
        one = measured[kind]
        steps = run.config.steps_for(one.samples)
        seconds += steps * one.step.seconds
        disk += 0 if as_long else run.config.log.keep * one.checkpoint
        print(f"{run.name}: {steps} steps of {one.step.seconds:.2f} s, {clock(steps * one.step.seconds)}{as_long}", flush=True)
    together = f", {clock(seconds / processes)} with {processes} at a time that do not slow each other down"
    print(f"{len(runs)} runs: {clock(seconds)} of training left{together if processes > 1 else ''}")
    print(f"{disk / 1e9:.1f} GB of checkpoints; the evaluation of each run comes on top")


def _kind_of_step(config: Config) -> Hashable:
    """What the time of a step depends on: the method without its learning rates, the encoder, the batch, the images."""
    images = KNOWN.get(config.data.source, config.data.source), config.data.size
    method = {name: value for name, value in config.method.model_dump().items() if not name.endswith("optimiser")}
    return str(method), config.encoder, config.train.batch, images
