"""sao resume: go on from the newest whole checkpoint."""

from argparse import Namespace
from pathlib import Path

from sao.engine.run import Run


def run(arguments: Namespace) -> int:
    config = Run.open(Path(arguments.run)).config
    from sao import distributed

    with distributed.processes(config.train.device):
        from sao.commands.training import resume

        return resume(Path(arguments.run))
