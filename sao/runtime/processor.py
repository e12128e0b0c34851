"""How this process uses memory and cores: settings of the system's libraries, made before torch is loaded."""

import ctypes
import os
import time


def keep_freed_memory() -> None:
    """Let glibc use large blocks again instead of returning them to the system, in whichever thread they were used before.

    A step allocates the same gigabytes as the step before it; to fetch every page anew took up to 80 % of an addition's time.
    The evaluation after the last step has a thread of its own: with an arena of its own it would hold its memory beside theirs.
    """
    settings = {  # numbers of malloc.h, values
        "MALLOC_MMAP_MAX_": (-4, 0),
        "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
        "MALLOC_TOP_PAD_": (-2, 2**28),
        "MALLOC_ARENA_MAX": (-8, 1),
    }
    for name, (_, value) in settings.items():
        os.environ.setdefault(name, str(value))  # of processes that this one starts
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # another system's allocator
    for number, value in settings.values():
        mallopt(number, value)


def choose_how_threads_wait() -> None:
    """Let them spin for about a millisecond where the cores are idle, else sleep at once; before torch is loaded.

    Alone on two cores, spinning makes small steps a quarter faster. Beside a busy program it takes the core from the thread
    it waits for. Two trainings at once were three times as slow, and without any limit ten times.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "30000" if _share_busy() < 0.25 else "0")


def _share_busy(seconds: float = 0.2) -> float:
    """Of the time of all cores, now: the load average still counts the installation that ended a minute ago.

    All of it where the system does not say.
    """
    before = _core_times()
    time.sleep(seconds)
    after = _core_times()
    if before is None or after is None or after[1] == before[1]:
        return 1.0
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def _core_times() -> tuple[int, int] | None:
    """Ticks that all cores together were idle, or waited for a disk, and ticks in all."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)
    except (OSError, ValueError, IndexError):
        return None
