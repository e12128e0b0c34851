"""Precision and recall of `sao duplicates` on planted copies, beside the hashes of imagededup.

python benchmarks/duplicates.py FOLDER [FOLDER …] --out DIR [--images 1000] [--seed 0]

Of each folder photographs are drawn, and each gets one changed copy; the kinds of change take turns. A pair with a copy that is
found is right if it is a planted one. Pairs among the photographs themselves are counted apart and listed, for a person to look
at. imagededup is asked at its default threshold of ten bits and at four, where it is installed.
"""

import argparse
import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

import sao
from sao.runtime.torchvision_import import import_torchvision
from sao.search.duplicates import near_pairs
from sao.search.files import look_through
from sao.search.suited import patches_of, suited_model

Pairs = set[tuple[int, int]]


def _cropped(left: float, top: float, right: float, bottom: float) -> Callable[[Image.Image], Image.Image]:
    """The part of an image between these shares of its sides."""

    def crop(image: Image.Image) -> Image.Image:
        width, height = image.size
        return image.crop((round(left * width), round(top * height), round(right * width), round(bottom * height)))

    return crop


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG quality 50": lambda image: image,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS),
    "cropped 10 %, corner": _cropped(0, 0, 0.9, 0.9),
    "cropped 10 %, centre": _cropped(0.05, 0.05, 0.95, 0.95),
    "cropped 10 %, top": _cropped(0, 0.1, 1, 1),
    "cropped 20 %, centre": _cropped(0.1, 0.1, 0.9, 0.9),
    "mirrored": ImageOps.mirror,
    "brightness +20 %": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "brightness -20 %": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
    "rotated by 5 degrees": lambda image: image.rotate(5, Image.Resampling.BICUBIC),
}


KINDS = list(CHANGES)


def plant(photographs: list[Path], folder: Path) -> None:
    """Photographs 0…n-1 as they are, then a changed copy of each, n…2n-1."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for row, path in enumerate(photographs):
        (folder / f"{row:05d}{path.suffix}").write_bytes(path.read_bytes())
        kind = KINDS[row % len(KINDS)]
        with Image.open(path) as image:
            changed = CHANGES[kind](image.convert("RGB"))
        changed.save(folder / f"{len(photographs) + row:05d}.jpg", quality=50 if kind == KINDS[0] else 90)


Found = Iterator[tuple[str, Pairs, float]]


def found_in(folder: Path) -> Found:
    """Of each system its name, the pairs that it finds, and seconds of the processor."""
    yield from ours(folder)
    if importlib.util.find_spec("imagededup") is not None:
        for method in ("PHash", "DHash"):
            yield from hashed(folder, method)


def ours(folder: Path) -> Found:
    started = time.process_time()
    looked = look_through(folder)
    read = time.process_time() - started
    model = suited_model(looked.images)
    features: dict[str, Callable[[], np.ndarray | None]] = {
        "patches": lambda: patches_of(looked.images),
        "thumbnails alone": lambda: None,
    }
    if model is not None:
        features[model] = lambda: sao.load(model).embed(folder)
    for name, made in features.items():
        started = time.process_time()
        values = made()
        pairs = set(near_pairs(looked.known if values is None else looked.known.with_features(values)))
        yield name, pairs, read + time.process_time() - started


def hashed(folder: Path, method: str) -> Found:
    import_torchvision()  # which imagededup imports
    from imagededup import methods  # pyright: ignore[reportMissingImports]

    started = time.process_time()
    hasher = getattr(methods, method)(verbose=False)
    codes = hasher.encode_images(folder, num_enc_workers=0)
    encoding = time.process_time() - started
    rows = {name: row for row, name in enumerate(sorted(codes))}
    for bits in (4, 10):
        started = time.process_time()
        found = hasher.find_duplicates(encoding_map=codes, max_distance_threshold=bits, num_dist_workers=0)
        both = ((rows[name], rows[other]) for name, others in found.items() for other in others)
        pairs = {(min(pair), max(pair)) for pair in both}
        yield f"{method}, {bits} bits", pairs, encoding + time.process_time() - started


def study(folder: Path, images: int, seed: int, work: Path) -> list[dict]:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    plant([files[i] for i in np.random.default_rng(seed).permutation(len(files))[:images]], work)
    rows = []
    for name, pairs, seconds in found_in(work):
        own = sorted(pair for pair in pairs if pair[1] < images)
        planted = {row for row in range(images) if (row, images + row) in pairs}
        # A copy of one photograph of a pair is near the other one and its copy too: neither right nor wrong.
        alike = {frozenset(pair) for pair in own}
        wrong = [(a, b) for a, b in pairs if b >= images and a % images != b % images and {a % images, b % images} not in alike]
        recall = {
            kind: np.mean([row in planted for row in range(number, images, len(KINDS))]) for number, kind in enumerate(KINDS)
        }
        rows.append(
            {
                "data": folder.name, "system": name, "recall": {kind: round(float(share), 3) for kind, share in recall.items()},
                "precision": round(len(planted) / max(1, len(planted) + len(wrong)), 4), "wrong": len(wrong),
                "own": len(own), "first own": own[:10], "first wrong": sorted(wrong)[:10], "seconds": round(seconds, 1),
            }
        )  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [
        row for folder in given.folders for row in study(folder, given.images, given.seed, given.out / f"planted-{folder.name}")
    ]
    (given.out / "duplicates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
