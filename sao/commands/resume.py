"""sao resume: go on from the newest whole checkpoint."""

from argparse import Namespace
from pathlib import Path

from sao.engine.run import Run


def run(arguments: Namespace) -> int:
    config = Run.open(Path(arguments.run)).config
    from sao import processes

    with processes.joined(config.train.device, config.train.timeout_seconds):
        from sao.commands.training import resume

        return resume(Path(arguments.run), arguments.source)
