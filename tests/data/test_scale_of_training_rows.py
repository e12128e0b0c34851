"""The scale of a table is fitted to its training rows: other held-out rows leave it, and every training input, as they were."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sao.data.files.objects import readable
from sao.data.files.open import open_path

N = 60


# What a file holds decides how it is read; its ending matters for text alone.


def csv_file(path: Path, values: np.ndarray):
    with open(path, "w", newline="") as stream:
        csv.writer(stream).writerows([["a", "b", "c"], *values.tolist()])
    return path


def parquet_file(path: Path, values: np.ndarray):
    pd.DataFrame(values, columns=["a", "b", "c"]).to_parquet(path)
    return path


def npy_file(path: Path, values: np.ndarray):
    with open(path, "wb") as stream:
        np.save(stream, values)
    return path


def array(path: Path, values: np.ndarray):
    return readable(values)


@pytest.mark.parametrize("kind", [csv_file, parquet_file, npy_file, array])
def test_held_out_rows_have_no_part_in_the_scale(kind, tmp_path):
    values = np.random.default_rng(0).normal(3, 2, (N, 3))
    values[:, 2] = 5.0  # it varies in no training row
    first = open_path(kind(tmp_path / "first.csv", values))
    held_out = [int(name.removeprefix("row ")) for name in first.dataset.test.names or ()]
    assert len(held_out) == 6
    values[held_out] = 1000 + 300 * np.random.default_rng(1).normal(size=(6, 3))
    second = open_path(kind(tmp_path / "second.csv", values))
    assert second.dataset.test.names == first.dataset.test.names
    assert first.standardiser is not None
    assert first.standardiser == second.standardiser
    assert len(first.standardiser.columns) == 2
    np.testing.assert_array_equal(first.dataset.train.inputs(slice(None)), second.dataset.train.inputs(slice(None)))
    # They are seen in that scale all the same.
    expected = (values[held_out][:, :2] - first.standardiser.mean) / first.standardiser.std * first.standardiser.factor
    np.testing.assert_allclose(second.dataset.test.inputs(slice(None)), expected, rtol=1e-5)
    training = np.delete(values, held_out, axis=0)[:, :2]
    np.testing.assert_allclose(first.standardiser.mean, training.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(first.standardiser.std, training.std(axis=0), rtol=1e-12)
