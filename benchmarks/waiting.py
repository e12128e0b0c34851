"""How much of a training step waits for data that is read at random from a file larger than memory: a row for results/speed.md.

python benchmarks/waiting.py --folder DIR [--gigabytes 20] [--keep] [--pause 0.25]

A file of random bytes is written to DIR (all of it: a sparse file would not be read from the disk), dropped from the system's
memory, read at random by real steps, and removed unless it is to be kept; one that was kept is used again. What came from the
disk is the system's own count. With --pause, pauses of so many seconds stand in for the steps.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

from sao.runtime.processor import choose_how_threads_wait, keep_freed_memory

BLOCK = 64 * 2**20
SIZE = 128  # of the images in the file, which are 16 images of 32x32 as well
WARM_UP = 1  # steps that are not counted
# Preset, size, batch and steps: the paper's networks at batches that a processor can take, and small ones with short steps.
PAUSED = ((32, 64, 60), (32, 500, 20), (128, 16, 40), (128, 320, 10))  # size, batch and how often
CASES = (("cifar16", 32, 64, 20), ("imagenet10", 128, 2, 4))


def write_images(path: Path, gigabytes: float) -> int:
    """An array file of random images; how many they are."""
    image = 3 * SIZE * SIZE
    count = int(gigabytes * 1e9) // image
    if path.exists() and path.stat().st_size >= count * image:
        return count
    block = np.random.default_rng(0).integers(0, 256, BLOCK, dtype=np.uint8).data
    with open(path, "wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, SIZE, SIZE, 3)}
        np.lib.format.write_array_header_1_0(stream, header)
        left = count * image
        while left > 0:
            left -= stream.write(block[: min(left, BLOCK)])
        stream.flush()
        os.fsync(stream.fileno())
    return count


def forget(path: Path) -> None:
    """Let the system drop what it keeps of a file in memory."""
    with open(path, "rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """From disks, by this process."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def measure(path: Path, preset: str, size: int, batch: int, steps: int, ahead: bool) -> str:
    """Real steps on rows that are mapped from the file; with `ahead` False each step reads its own rows."""
    import torch

    from sao.config import load_preset
    from sao.data.dataset import Dataset, Images
    from sao.data.loader import Batches
    from sao.training.loop import new_method
    from sao.training.step import make_step

    images = Images(np.load(path, mmap_mode="r").reshape(-1, size, size, 3))
    config = load_preset(preset, {"train.batch": str(batch), "method.bank": str(64 * batch)})
    method = new_method(config, Dataset("file", images, images), torch.device("cpu"))
    batches = Batches(images, torch.device("cpu"))
    if not ahead:
        batches.prefetch = lambda rows: None
    forget(path)
    for step in range(WARM_UP):
        make_step(method, batches, 0, batch, step)
    waited, read, started = batches.waited, bytes_read(), time.perf_counter()
    for step in range(WARM_UP, WARM_UP + steps):
        make_step(method, batches, 0, batch, step)
    seconds, waited, read = time.perf_counter() - started, batches.waited - waited, bytes_read() - read
    how = "one batch ahead" if ahead else "when asked for"
    return (
        f"| {preset}, {size}x{size}, batch {batch} | {how} | {1e3 * seconds / steps:.0f} | {1e3 * waited / steps:.2f} "
        f"| {100 * waited / seconds:.2f} % | {steps * batch * 3 * size**2 / 1e6:.1f} | {read / 1e6:.1f} |"
    )


def measure_pauses(path: Path, size: int, batch: int, steps: int, pause: float) -> str:
    """The same where a step is a pause: what a device that computes so fast would wait."""
    import torch

    from sao.core.random import batch_rows
    from sao.data.dataset import Images
    from sao.data.loader import Batches

    images = Images(np.load(path, mmap_mode="r").reshape(-1, size, size, 3))
    batches = Batches(images, torch.device("cpu"))
    forget(path)
    batches.prefetch(batch_rows(0, 0, batch, len(images)))
    read, started = bytes_read(), time.perf_counter()
    for step in range(steps):
        time.sleep(pause)
        batches.inputs(batch_rows(0, step, batch, len(images)))
        batches.prefetch(batch_rows(0, step + 1, batch, len(images)))
    seconds, waited, read = time.perf_counter() - started, batches.waited, bytes_read() - read
    return (
        f"| a pause, {size}x{size}, batch {batch} | one batch ahead | {1e3 * seconds / steps:.0f} | {1e3 * waited / steps:.2f} "
        f"| {100 * waited / seconds:.2f} % | {steps * batch * 3 * size**2 / 1e6:.1f} | {read / 1e6:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--keep", action="store_true", help="leave the file for another time")
    parser.add_argument("--pause", type=float, help="seconds; no steps are made then")
    options = parser.parse_args()
    choose_how_threads_wait()
    keep_freed_memory()
    path = options.folder / "waiting.npy"
    try:
        started = time.perf_counter()
        count = write_images(path, options.gigabytes)
        used = path.stat().st_blocks * 512 / 1e9
        print(f"{count} images, {used:.1f} GB on the disk, written in {time.perf_counter() - started:.0f} s\n", flush=True)
        print("| steps | rows are read | step, ms | waits, ms | share | MB of rows | MB from the disk |")
        print("|---|---|---|---|---|---|---|")
        if options.pause is not None:
            for case in PAUSED:
                print(measure_pauses(path, *case, options.pause), flush=True)
        else:
            for case in CASES:
                for ahead in (True, False):
                    print(measure(path, *case, ahead), flush=True)
    finally:
        if not options.keep:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
