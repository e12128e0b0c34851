"""Cores and memory that a container leaves to a process, from files as the kernel writes them."""

import os
import platform
import subprocess
import sys

import pytest

from sao.runtime import machine

GB = 2**30


VERSION_1, VERSION_2 = "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n", "0::/job/step\n"
# The groups of the process, files below /sys/fs/cgroup, and the gigabytes and cores that they leave.
LIMITS = [
    (None, {}, 64, 16),
    ("", {}, 64, 16),
    (VERSION_2, {"job/memory.max": f"{3 * GB}\n", "job/step/memory.max": "max\n"}, 3, 16),  # of a group further up
    (VERSION_2, {"job/step/cpu.max": "150000 100000\n", "job/cpu.max": "max 100000\n"}, 64, 2),
    # The path of version 1 is the host's: what the container sees of it is the root.
    (VERSION_1, {"memory/memory.limit_in_bytes": f"{GB}\n", "cpu/cpu.cfs_quota_us": "-1\n"}, 1, 16),
    (VERSION_1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 64, 16),  # no limit is a very large number
    (VERSION_1, {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64, 1),
]


@pytest.mark.parametrize(("own", "files", "gigabytes", "cores"), LIMITS)
def test_what_a_container_leaves_may_be_used(own, files, gigabytes, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "GROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GB // 4096}.__getitem__)
    for name, text in files.items() if own is None else (files | {"own": own}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert (machine.usable_memory(), machine.usable_cores()) == (gigabytes * GB, cores)


def test_a_peak_of_memory_is_one_since_the_reset():
    """In a process of its own, whose allocator gives back what is freed."""
    script = """
from sao.runtime.machine import peak_memory, reset_peak_memory
given_back = b"x" * 2**28
del given_back
reset_peak_memory()
before = peak_memory()
kept = b"x" * 2**27
print(before, peak_memory() - before)
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    before, grown = map(int, printed.split())
    if before > 2**28:
        pytest.skip("this system does not let a process reset its peak")
    assert grown == pytest.approx(2**27, rel=0.2)


def test_the_name_of_the_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "PROCESSORS", tmp_path / "cpuinfo")
    assert machine.processor_name() == (platform.processor() or platform.machine())
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some Maker 9 @ 2.0 GHz\n\nmodel name\t: Another\n")
    assert machine.processor_name() == "Some Maker 9 @ 2.0 GHz"
