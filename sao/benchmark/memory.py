"""Two steps in a process of its own, whose peak memory is then the answer (read from standard input, written to output)."""

import json
import resource
import sys
from pathlib import Path

from sao.benchmark.measure import build, random_batch
from sao.config import build as build_config
from sao.engine.device import set_threads


def main() -> None:
    request = json.load(sys.stdin)
    config = build_config(request["config"])
    set_threads(config.train.threads)
    shape = tuple(request["shape"])
    method = build(config, shape, request["samples"], request["arrangement"])
    batch = random_batch(config, shape)
    for step in range(2):
        method.training_step(batch, step)
    print(_peak_gigabytes())


def _peak_gigabytes() -> float:
    """Linux hands the peak of the parent on to a child in getrusage, but not in /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
