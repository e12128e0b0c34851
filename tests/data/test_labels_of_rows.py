"""Whatever is left out on the way, a sample keeps its own label, its own name and its own split."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from opening import encoded, labels, names, parts, total, write_files, write_tar, write_zip

from sao.data.dataset import Images
from sao.data.files.objects import readable
from sao.data.files.open import Opened, open_path
from sao.data.files.reading import Readable

N, BAD = 48, (0, 5, 6, 21)  # of all samples, and those that cannot be used
# In no order, so that a label which has slipped by some rows is a wrong one; each sample is known by its level.
LEVELS = np.random.default_rng(0).permutation(np.linspace(10, 245, N).astype(int))
LABELS = np.where(LEVELS < 90, "dark", np.where(LEVELS < 170, "medium", "bright"))


def picture(i: int) -> bytes:
    return b"no picture" if i in BAD else encoded(np.full((8, 8), LEVELS[i], np.uint8))


def rows() -> np.ndarray:
    """(n, 2); the first column is the level."""
    values = np.stack([LEVELS, np.random.default_rng(1).permutation(N)], axis=1).astype(np.float64)
    values[list(BAD), 1] = np.nan
    return values


def frame() -> pd.DataFrame:
    return pd.DataFrame({"level": LEVELS, "other": rows()[:, 1], "class": LABELS})


def ragged() -> str:
    """Rows of the wrong length go before any column is looked at."""
    lines = (f"{level},{i}" + f",{LABELS[i]}" * (i not in BAD) for i, level in enumerate(LEVELS))
    return "\n".join(["level,other,class", *lines])


def pixels() -> np.ndarray:
    values = np.repeat(LEVELS / 255, 64).reshape(N, 8, 8)
    values[list(BAD), 3, 3] = np.inf
    return values


def splits() -> dict[str, np.ndarray]:
    both, ranges = {"x": pixels(), "y": LABELS}, {"train": slice(20), "test": slice(20, N)}
    return {f"{name}_{part}": values[rows] for name, values in both.items() for part, rows in ranges.items()}


def files() -> dict[str, bytes]:
    return {f"{LABELS[i]}/{i:02d}.png": picture(i) for i in range(N)}


def images() -> pd.DataFrame:
    return pd.DataFrame({"image": [{"bytes": picture(i), "path": f"{i:02d}.png"} for i in range(N)], "label": LABELS})


def paths_in(folder: Path) -> list[str]:
    write_files(folder, {f"{i:02d}.png": picture(i) for i in range(N)})
    return [str(folder / f"{i:02d}.png") for i in range(N)]


WRITTEN: dict[str, Callable[[Path], object]] = {
    "rows.csv": lambda path: frame().to_csv(path, index=False, na_rep="nan"),
    "ragged.csv": lambda path: path.write_text(ragged()),
    "rows.parquet": lambda path: frame().to_parquet(path),
    "rows.npz": lambda path: np.savez(path, x=rows(), y=LABELS),
    "images.npz": lambda path: np.savez(path, x=pixels(), y=LABELS),
    "splits.npz": lambda path: np.savez(path, **splits()),  # pyright: ignore[reportArgumentType]
    "folder": lambda path: write_files(path, files()),
    "images.zip": lambda path: write_zip(path, files()),
    "images.tar": lambda path: write_tar(path, files()),
    "images.parquet": lambda path: images().to_parquet(path),
}
IN_MEMORY: dict[str, Callable[[Path], Readable]] = {
    "list of paths": lambda folder: readable(paths_in(folder), list(LABELS)),
    "frame of paths": lambda folder: readable(pd.DataFrame({"path": paths_in(folder), "label": LABELS})),
    "array": lambda _: readable(rows(), LABELS),
}


def levels_of(samples, opened: Opened) -> np.ndarray:
    if isinstance(samples, Images):
        return np.asarray(samples.pixels)[:, 0, 0, 0].astype(int)
    assert opened.standardiser is not None
    return opened.standardiser.invert(samples.rows)[:, 0].round().astype(int)


@pytest.mark.parametrize("kind", [*WRITTEN, *IN_MEMORY])
def test_samples_keep_their_labels_and_names_when_others_are_left_out(kind, tmp_path):
    if kind in WRITTEN:
        WRITTEN[kind](tmp_path / kind)
    opened = open_path(tmp_path / kind if kind in WRITTEN else IN_MEMORY[kind](tmp_path), held_out=0.25)
    assert len(opened.skipped) == len(BAD)
    assert total(opened) == N - len(BAD)
    seen = []
    for samples in parts(opened):
        levels = levels_of(samples, opened)
        places = [int(np.flatnonzero(level == LEVELS)[0]) for level in levels]
        assert [(samples.class_names or ())[code] for code in labels(samples)] == LABELS[places].tolist()
        numbers = ["".join(filter(str.isdigit, Path(name).name)) for name in names(samples)]
        shift = 20 if names(samples)[0].startswith("test row") else 0  # counted anew in the test array
        assert [int(number) + shift for number in numbers] == places
        seen += places
    assert sorted({*range(N)} - set(BAD)) == sorted(seen)
