"""Rows as inputs: the same whether the data is held on the device or read from disk."""

import threading

import numpy as np
import pytest
import torch

from sao.data.dataset import Images, SelectedRows, Vectors, read_rows
from sao.data.loader import Batches
from sao.randomness import batch_rows

DEVICE = torch.device("cpu")


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)


def test_memory_mapped_rows_equal_rows_in_memory(pixels, tmp_path):
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = Batches(Images(np.load(tmp_path / "pixels.npy", mmap_mode="r")), DEVICE)
    held = Batches(Images(pixels), DEVICE)
    assert not mapped.resident
    assert held.resident
    for step in range(4):
        rows = batch_rows(0, step, 16, 50)
        found = mapped.inputs(rows)
        assert torch.equal(found, held.inputs(rows))
        assert (found.shape, found.dtype) == ((16, 3, 8, 8), torch.float32)
        assert torch.equal(found, Images(pixels).inputs(rows.numpy()))
        assert found.is_contiguous()


def test_data_too_large_for_the_device_is_read_row_by_row(pixels):
    large = Batches(Images(pixels), DEVICE, resident_bytes=1000)
    assert not large.resident
    rows = torch.tensor([7, 3, 3, 49, 0])
    assert torch.equal(large.inputs(rows), Batches(Images(pixels), DEVICE).inputs(rows))


def test_an_accelerator_keeps_what_fits_also_of_a_map_or_an_index(pixels, tmp_path):
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    for values in (mapped, SelectedRows(mapped, np.arange(0, 50, 3))):
        batches = Batches(Images(values), torch.device("meta"))
        assert isinstance(batches._values, torch.Tensor)
        assert (batches._values.shape, batches._values.dtype) == (values.shape, torch.uint8)
        assert batches.inputs(torch.tensor([3, 1])).shape == (2, 3, 8, 8)
        assert not Batches(Images(values), torch.device("meta"), resident_bytes=1000).resident


def test_rows_of_an_index_are_those_of_the_copy(pixels):
    chosen = np.random.default_rng(1).permutation(50)[:30]
    index, copy = Batches(Images(SelectedRows(pixels, chosen)), DEVICE), Batches(Images(pixels[chosen]), DEVICE)
    assert not index.resident
    rows = torch.tensor([29, 0, 7, 7])
    assert torch.equal(index.inputs(rows), copy.inputs(rows))


def test_vectors_are_given_as_they_are(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    rows = torch.tensor([4, 1, 29])
    np.save(tmp_path / "rows.npy", values)
    for samples in (Vectors(values), Vectors(np.load(tmp_path / "rows.npy", mmap_mode="r"))):
        assert np.array_equal(Batches(samples, DEVICE).inputs(rows).numpy(), values[[4, 1, 29]])


def test_changing_a_batch_does_not_change_the_data(pixels):
    for values in (pixels, pixels.astype(np.float32).reshape(50, -1)):
        samples = Images(values) if values.dtype == np.uint8 else Vectors(values)
        batches, rows = Batches(samples, DEVICE), torch.arange(5)
        before = batches.inputs(rows).clone()
        batches.inputs(rows).zero_()
        assert torch.equal(batches.inputs(rows), before)


def test_labels_are_those_of_the_rows(pixels):
    labels = (np.arange(50) % 7).astype(np.uint8)
    found = Batches(Images(pixels, labels), DEVICE).labels(torch.tensor([8, 3, 49]))
    assert found.tolist() == [1, 3, 0]
    assert found.dtype == torch.int64


def test_announced_rows_are_read_ahead_and_rows_that_are_held_need_no_announcement(pixels, monkeypatch):
    readers: list[str] = []

    def noted(array, chosen, into):
        readers.append(threading.current_thread().name)
        read_rows(array, chosen, into)

    monkeypatch.setattr("sao.data.loader.read_rows", noted)
    held, read = Batches(Images(pixels), DEVICE), Batches(Images(pixels), DEVICE, resident_bytes=0)
    rows = torch.tensor([3, 1, 40])
    for batches in (held, read):
        batches.prefetch(rows)
        assert torch.equal(batches.inputs(rows), Images(pixels).inputs(rows.numpy()))
    assert readers == ["prefetch"]
