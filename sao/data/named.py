"""Data sets that have a name. Labels travel with them for evaluation and are never given to a method's step."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sao.data.dataset import Dataset, Images, Vectors
from sao.data.files.npz import read_npz
from sao.errors import InputError

NAMES = ("digits", "spirals", "cifar10", "cifar100", "mnist", "fashion_mnist")
SPIRAL_NOISE = 0.15
SPIRAL_BOX = 8.0


def open_named(name: str, folder: Path, size: int | None, labels: bool, held_out: float, seed: int, download: bool) -> Dataset:
    """The data set of this name; digits and spirals need no folder."""
    match name:
        case "digits":
            dataset = digits(held_out, seed)
        case "spirals":
            dataset = spirals(seed=seed)
        case _:
            dataset = torchvision_images(name, folder, download)
    if size is not None:
        dataset = resized(dataset, size)
    if not labels:
        dataset = Dataset(dataset.name, replace(dataset.train, labels=None), replace(dataset.test, labels=None))
    return dataset


def digits(held_out: float = 0.2, seed: int = 0) -> Dataset:
    """The 1,797 real 8x8 digits inside scikit-learn; the test set is stratified and fixed by the seed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, labels = load_digits(return_X_y=True)
    pixels = np.round(np.asarray(values).reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    labels = np.asarray(labels, dtype=np.int64)
    train, test = train_test_split(np.arange(len(pixels)), test_size=held_out, random_state=seed, stratify=labels)
    images = Images(pixels, labels, class_names=[str(digit) for digit in range(10)])
    return Dataset("digits", images.select(np.sort(train)), images.select(np.sort(test)))


def spirals(samples: int = 10_000, seed: int = 0) -> Dataset:
    """Two interleaved spiral arms in a box of ±`SPIRAL_BOX`, evenly filled along their length, with Gaussian noise.

    The box is a length scale (the Lipschitz target is 1): in a box of ±1 the discriminator could not tell the arms apart.
    """
    parts = []
    for offset in (0, 1):
        draws = np.random.default_rng([seed, offset])
        arm = np.arange(samples) % 2
        points = spiral_point(draws.random(samples), arm) + draws.normal(0, SPIRAL_NOISE, (samples, 2))
        parts.append(Vectors(points.astype(np.float32), arm.astype(np.int64), class_names=["first arm", "second arm"]))
    return Dataset("spirals", parts[0], parts[1])


def spiral_point(position: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """Points (n, 2) of the noiseless arms; `position` in [0, 1] is proportional to the area swept, which fills arms evenly."""
    angle = 3 * np.pi * np.sqrt(0.03 + 0.97 * position)
    radius = 0.95 * SPIRAL_BOX * angle / (3 * np.pi)
    phase = angle + np.pi * arm
    return np.stack([radius * np.cos(phase), radius * np.sin(phase)], axis=1)


def torchvision_images(name: str, folder: Path, download: bool = True) -> Dataset:
    """CIFAR-10/100, MNIST or Fashion-MNIST: NAME.npz in the folder if it is there, else torchvision's files or download."""
    packed = folder / f"{name}.npz"
    if packed.exists():
        return npz(packed)
    from sao.runtime.torchvision_import import torchvision_datasets

    classes = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
    parts = []
    for train in (True, False):
        try:
            found = getattr(torchvision_datasets(), classes[name])(str(folder), train=train, download=download)
        except (RuntimeError, OSError) as error:
            tried = f"could not be downloaded ({' '.join(str(error).split())})" if download else "was not downloaded"
            raise InputError(
                f"{name} is not in {folder} and {tried}: "
                f"put {name}.npz with x_train, y_train, x_test, y_test there, or name another folder with --data.folder"
            ) from None
        pixels = np.asarray(found.data)
        labels = np.asarray(found.targets, dtype=np.int64)
        parts.append(Images(pixels if pixels.ndim == 4 else pixels[..., None], labels, class_names=found.classes))
    return Dataset(name, parts[0], parts[1])


def npz(path: Path) -> Dataset:
    """x_train, y_train, x_test, y_test (labels optional): uint8 images (n, h, w[, c])."""
    found = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    missing = [key for key in ("x_train", "x_test") if key not in found]
    if missing:
        raise InputError(f"{path} has no array {missing[0]}: give x_train, x_test and, for evaluation, y_train, y_test")
    parts = []
    for part in ("train", "test"):
        pixels, labels = found[f"x_{part}"], found.get(f"y_{part}")
        if labels is not None and (
            not np.issubdtype(labels.dtype, np.integer) or labels.size != len(labels) or labels.min() < 0
        ):
            raise InputError(
                f"{path}: y_{part} must hold one class number from 0 on for each sample, got {labels.dtype} {labels.shape}"
            )
        try:
            codes = None if labels is None else labels.reshape(-1).astype(np.int64)
            parts.append(Images(pixels if pixels.ndim == 4 else pixels[..., None], codes))
        except InputError as error:
            raise InputError(f"{path}: {part} part: {error}") from None
    if (parts[0].labels is None) != (parts[1].labels is None):
        raise InputError(f"{path} has labels for one part only: give y_train and y_test, or neither")
    return Dataset(path.stem, parts[0], parts[1])


def resized(dataset: Dataset, size: int) -> Dataset:
    """Images of another size, by area averaging when they shrink and bilinear interpolation when they grow."""
    if not isinstance(dataset.train, Images) or dataset.train.shape[1:] == (size, size):
        return dataset
    parts = [_resized_part(part, size) for part in (dataset.train, dataset.test) if isinstance(part, Images)]
    return Dataset(dataset.name, *parts)


def _resized_part(images: Images, size: int) -> Images:
    import torch
    from torch.nn import functional as F

    pixels = np.empty((len(images), size, size, images.shape[0]), np.uint8)
    for start in range(0, len(images), 4096):
        block = torch.from_numpy(images.pixels[start : start + 4096]).permute(0, 3, 1, 2).float()
        block = F.interpolate(block, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
        pixels[start : start + 4096] = block.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return Images(pixels, images.labels, images.names, images.class_names)
