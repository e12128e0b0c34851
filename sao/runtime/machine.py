"""What this process may use of its machine: a scheduler or a container often gives it less than the machine has."""

import math
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
STATUS = Path("/proc/self/status")
PROCESSORS = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Cores that this process may run on; a container's share of processor time counts as so many cores, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [cores]
    for folder, version in _control_groups("cpu"):
        if version == 2:  # "150000 100000": microseconds in each period; "max" where there is no limit
            quota, _, period = _read(folder / "cpu.max").partition(" ")
        else:  # -1 where there is no limit
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():
            shares.append(max(1, math.ceil(int(quota) / int(period))))
    return min(shares)


def processor_name() -> str:
    """As its maker calls it, where the system says so; times mean little without it."""
    names = [line.partition(":")[2].strip() for line in _read(PROCESSORS).splitlines() if line.startswith("model name")]
    return next(filter(None, names), None) or platform.processor() or platform.machine()


def commit() -> str | None:
    """Of the checkout that this package is imported from; None where it was installed."""
    with suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).parent
        words = ["git", "-C", str(here), "rev-parse", "--short", "HEAD"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    return None


def usable_memory() -> int:
    """Bytes of memory that this process may fill: the machine's, or less where its container has a limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder, version in _control_groups("memory"):
        limit = _read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if limit.isdecimal():
            limits.append(int(limit))
    return min(limits)


def peak_memory() -> int:
    """Bytes that this process held at most, since `reset_peak_memory` where the system can do that."""
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reset_peak_memory() -> None:
    """Let `peak_memory` count from now on; only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _control_groups(controller: str) -> Iterator[tuple[Path, int]]:
    """The folders of this process's control groups, and their version; in a container the host's path may not be there."""
    for line in _read(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, version = GROUPS, 2
        elif controller in controllers.split(","):
            root, version = GROUPS / controller, 1
        else:
            continue
        folder = root / path.lstrip("/")
        yield folder, version
        yield from ((parent, version) for parent in folder.parents if parent.is_relative_to(root))


def _status(name: str) -> int:
    """Bytes, of a line of /proc/self/status; 0 where there is none."""
    for line in _read(STATUS).splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
