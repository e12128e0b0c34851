"""How long a folder of 60,000 small JPEGs takes to become training data, the first time and the second.

python benchmarks/ingest.py [--npz data/cifar10.npz] [--count 60000] [--workers 2]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from sao.data.files.open import open_path
from sao.runtime.machine import usable_cores

SIZE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npz", type=Path, help="images to write (x_train: uint8 n, h, w, 3); smooth synthetic ones if absent")
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--workers", type=int, default=usable_cores())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, cache = Path(temporary, "images"), Path(temporary, "cache")
        write_images(folder, options.count, options.npz)
        for name in ("cold", "warm"):
            start = time.perf_counter()
            opened = open_path(folder, cache_folder=cache, workers=options.workers)
            seconds = time.perf_counter() - start
            n = len(opened.dataset.train) + len(opened.dataset.test)
            print(f"{name}: {seconds:.1f} s, {n / seconds:.0f} images/s ({n} images, {options.workers} workers)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {peak:.0f} MB (torch, the images that were written, the training set)")


def write_images(folder: Path, count: int, npz: Path | None) -> None:
    """JPEGs in ten class folders; the images repeat if the file has fewer than asked for."""
    if npz is None:
        images = synthetic_images(min(count, 10_000))
    else:
        with np.load(npz, allow_pickle=False) as arrays:
            images = arrays["x_train"]
    for i in range(count):
        place = folder / f"class{i % 10}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[i % len(images)]).save(place / f"{i:06d}.jpg", quality=90)


def synthetic_images(count: int) -> np.ndarray:
    """Coloured waves of random direction: smooth, so that they compress as photographs do."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    waves = generator.uniform(0, 12, (count, 1, 1, 3)) * x[None, :, :, None]
    waves = waves + generator.uniform(0, 12, (count, 1, 1, 3)) * y[None, :, :, None]
    return (127.5 + 127.5 * np.sin(waves)).astype(np.uint8)


if __name__ == "__main__":
    main()
