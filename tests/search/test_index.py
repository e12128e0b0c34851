"""Neighbours are those of a literal search, and stored features are used only where nothing has changed."""

import numpy as np
import pytest

from sao.data.dataset import Images, Samples, Vectors
from sao.data.files.cache import Cache
from sao.errors import InputError
from sao.search.index import Index, stored_features


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)


def test_neighbours_are_those_of_a_literal_search():
    gallery, queries = rows(50), rows(4, seed=1)
    found = Index.of(gallery, [f"n{i}" for i in range(50)]).search(queries, k=5, names=list("abcd"))
    for i, query in enumerate(queries):
        cosines = gallery @ query / np.linalg.norm(gallery, axis=1) / np.linalg.norm(query)
        expected = np.argsort(-cosines)[:5]
        assert found.rows[i].tolist() == expected.tolist()
        assert found.names[i] == [f"n{j}" for j in expected]
        np.testing.assert_allclose(found.distances[i], 1 - cosines[expected], atol=1e-6)


def test_a_sample_is_its_own_nearest_at_distance_zero():
    found = Index.of(rows(30), list(map(str, range(30)))).search(rows(30), k=1)
    assert found.rows[:, 0].tolist() == list(range(30))
    np.testing.assert_allclose(found.distances, 0, atol=1e-6)


def test_fewer_than_k_are_all_and_wrong_queries_are_refused():
    index = Index.of(rows(3), ["a", "b", "c"])
    assert index.search(rows(1), k=20).rows.shape == (1, 3)
    with pytest.raises(InputError, match="k must be at least 1"):
        index.search(rows(1), k=0)
    with pytest.raises(InputError, match="dimensions"):
        index.search(rows(1)[:, :4])
    with pytest.raises(InputError, match="NaN"):
        index.search(np.full((1, 6), np.nan))


def test_the_result_prints_short():
    text = repr(Index.of(rows(30), list(map(str, range(30)))).search(rows(20)))
    assert text.startswith("20 neighbours of 20 queries\n  0: 0 0.000, ")
    assert len(text.splitlines()) <= 8


SAMPLES = Vectors(rows(8))


def kept(samples: Samples = SAMPLES, weights: str = "w", value: float = 1.0) -> tuple[np.ndarray, bool]:
    return stored_features(samples, weights, lambda: np.full((len(samples), 3), value, np.float32))


def stored_file():
    (path,) = Cache().folder.glob("features-*.npz")
    return path


def test_stored_features_are_reused_only_for_the_same_samples_and_weights():
    assert not kept()[1]
    features, stored = kept(value=2.0)
    assert stored
    assert (features == 1).all()
    assert not kept(weights="other")[1]
    assert not kept(Vectors(rows(8, seed=1)))[1]
    assert not kept(Vectors(rows(9)))[1]


def test_another_pixel_is_another_gallery():
    pixels = np.zeros((2, 8, 8, 1), np.uint8)
    assert not kept(Images(pixels))[1]
    assert kept(Images(pixels.copy()))[1]
    pixels[1, 7, 7] = 1
    assert not kept(Images(pixels))[1]


def test_damaged_and_foreign_features_are_computed_again():
    kept()
    whole = stored_file().read_bytes()
    changed = bytearray(whole)
    at = whole.index(np.float32(1).tobytes() * 3)
    changed[at : at + 4] = np.float32(5).tobytes()
    foreign = {"features": np.full((8, 3), 7, np.float32), "key": np.array("another"), "digest": np.array("none")}
    for damage in (b"", whole[:100], bytes(changed)):
        stored_file().write_bytes(damage)
        features, stored = kept()
        assert not stored
        assert (features == 1).all()
        assert kept()[1], "written again"
    np.savez(stored_file(), **foreign)
    assert not kept()[1]


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "file"))
    assert (kept()[0] == 1).all()
    assert not kept()[1]
