"""Is the Fréchet distance that of the literature? Two subsets of CIFAR-10 for which torch-fidelity's own test expects 10.3233.

python benchmarks/fid.py cifar10.npz [--threads 1]

The file holds CIFAR-10 in its official order (x_train, x_test). 5,000 images of each part, about half an hour of one core.
"""

import argparse
import platform
import time

import numpy as np
import torch

from sao.data.dataset import Images
from sao.data.files.open import open_path
from sao.evaluation.extractors import extractor
from sao.evaluation.generation import frechet_in_features, kernel_distance

EXPECTED = 10.3233274  # torch-fidelity, tests/tf1/numerical_precision/test_metric_fid_fidelity.py


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    network, start = extractor(), time.perf_counter()
    dataset = open_path(arguments.file).dataset
    parts = [part.pixels for part in (dataset.train, dataset.test) if isinstance(part, Images)]
    rows = [np.random.RandomState(2020).choice(len(pixels), 5000, replace=False) for pixels in parts]
    train, test = (network(np.asarray(pixels[one]))[0] for pixels, one in zip(parts, rows, strict=True))
    found = frechet_in_features("inception", train, test, by_fidelity=True).value
    print(f"FID {found:.4f}, expected {EXPECTED:.4f}; KID {kernel_distance(train, test).value:.6f}")
    print(f"{time.perf_counter() - start:.0f} s, {arguments.threads} threads, {platform.processor() or platform.machine()}")


if __name__ == "__main__":
    main()
