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


def csv_file(folder: Path):
    frame().to_csv(folder / "a.csv", index=False, na_rep="nan")
    return folder / "a.csv"


def ragged_csv_file(folder: Path):
    """Rows of the wrong length go before any column is looked at."""
    lines = ["level,other,class", *(f"{level},{i}" + f",{LABELS[i]}" * (i not in BAD) for i, level in enumerate(LEVELS))]
    (folder / "a.csv").write_text("\n".join(lines))
    return folder / "a.csv"


def parquet_file(folder: Path):
    frame().to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def npz_of_rows(folder: Path):
    np.savez(folder / "a.npz", x=rows(), y=LABELS)
    return folder / "a.npz"


def pixels() -> np.ndarray:
    values = np.repeat(LEVELS / 255, 64).reshape(N, 8, 8)
    values[list(BAD), 3, 3] = np.inf
    return values


def npz_of_images(folder: Path):
    np.savez(folder / "a.npz", x=pixels(), y=LABELS)
    return folder / "a.npz"


def npz_of_splits(folder: Path):
    x, first = pixels(), 20
    np.savez(folder / "a.npz", x_train=x[:first], y_train=LABELS[:first], x_test=x[first:], y_test=LABELS[first:])
    return folder / "a.npz"


def files() -> dict[str, bytes]:
    return {f"{LABELS[i]}/{i:02d}.png": picture(i) for i in range(N)}


def picture_folder(folder: Path):
    return write_files(folder / "images", files())


def zip_file(folder: Path):
    return write_zip(folder / "a.zip", files())


def tar_file(folder: Path):
    return write_tar(folder / "a.tar", files())


def table_of_images(folder: Path):
    held = [{"bytes": picture(i), "path": f"{i:02d}.png"} for i in range(N)]
    pd.DataFrame({"image": held, "label": LABELS}).to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def paths_in(folder: Path) -> list[str]:
    write_files(folder, {f"{i:02d}.png": picture(i) for i in range(N)})
    return [str(folder / f"{i:02d}.png") for i in range(N)]


def list_of_paths(folder: Path):
    return readable(paths_in(folder), list(LABELS))


def frame_of_paths(folder: Path):
    return readable(pd.DataFrame({"path": paths_in(folder), "label": LABELS}))


def array_in_memory(folder: Path):
    return readable(rows(), LABELS)


READERS: list[Callable[[Path], object]] = [
    csv_file,
    ragged_csv_file,
    parquet_file,
    npz_of_rows,
    npz_of_images,
    npz_of_splits,
    picture_folder,
    zip_file,
    tar_file,
    table_of_images,
    list_of_paths,
    frame_of_paths,
    array_in_memory,
]


def levels_of(samples, opened: Opened) -> np.ndarray:
    if isinstance(samples, Images):
        return np.asarray(samples.pixels)[:, 0, 0, 0].astype(int)
    assert opened.standardiser is not None
    return opened.standardiser.invert(samples.rows)[:, 0].round().astype(int)


@pytest.mark.parametrize("reader", READERS)
def test_samples_keep_their_labels_and_names_when_others_are_left_out(reader, tmp_path):
    opened = open_path(reader(tmp_path), held_out=0.25)  # pyright: ignore[reportArgumentType]
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
