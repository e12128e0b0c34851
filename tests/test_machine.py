"""Cores and memory that a container leaves to a process, from files as the kernel writes them."""

import os
import platform
import subprocess
import sys

import pytest

from sao.runtime import machine

GB = 2**30


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Write files below /sys/fs/cgroup, and say in which groups the process is."""
    monkeypatch.setattr(machine, "GROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GB // 4096}.__getitem__)

    def write(own: str, **files: str) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_without_a_container_everything_may_be_used(container):
    container("")
    assert machine.usable_memory() == 64 * GB
    assert machine.usable_cores() == 16


def test_version_2_and_the_limit_of_a_group_further_up(container):
    container("0::/job/step\n", job__memory_DOT_max=f"{3 * GB}\n", job__step__memory_DOT_max="max\n")
    assert machine.usable_memory() == 3 * GB
    container("0::/job/step\n", job__step__cpu_DOT_max="150000 100000\n", job__cpu_DOT_max="max 100000\n")
    assert machine.usable_cores() == 2


def test_version_1_where_no_limit_is_a_very_large_number(container):
    own = "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n"
    container(own, memory__memory_DOT_limit_in_bytes=f"{GB}\n", cpu__cpu_DOT_cfs_quota_us="-1\n")
    assert machine.usable_memory() == GB  # the path is the host's: what the container sees of it is the root
    assert machine.usable_cores() == 16
    container(own, memory__memory_DOT_limit_in_bytes="9223372036854771712\n")
    assert machine.usable_memory() == 64 * GB
    container(own, cpu__cpu_DOT_cfs_quota_us="50000\n", cpu__cpu_DOT_cfs_period_us="100000\n")
    assert machine.usable_cores() == 1


def test_nothing_to_be_read_is_no_limit(container, tmp_path):
    assert not (tmp_path / "own").exists()
    assert machine.usable_memory() == 64 * GB


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
