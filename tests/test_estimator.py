"""The estimator keeps scikit-learn's contract, on tables and on images, and what it learnt survives every way to keep it."""

import importlib.util
import multiprocessing
import pickle
import signal
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiny import structural_options

import sao
from sao import StructuralEmbedding
from sao.core.memory_bank import MemoryBank
from sao.errors import InputError
from sao.evaluation import effective_rank
from sao.evaluation import manifold as along
from sao.evaluation.manifold import manifold_clusters
from sao.methods import NonFiniteError
from sao.methods.encoders import PerceptronOptions
from sao.methods.structural import Structural
from sao.networks import EMA
from sao.training.loop import Diverged

# No check of scikit-learn is exempted. One of them it skips by itself: array API input, unless SCIPY_ARRAY_API is set.
ROWS, LABELS = (np.asarray(part) for part in make_blobs(60, 4, centers=3, random_state=1)[:2])
DIGITS: Any = load_digits()
PIXELS = np.round(DIGITS.images[:40] * (255 / 16)).astype(np.uint8)
SMALL_TABLE = {"encoder.width": 8, "method.generator.width": 8, "method.embedding_size": 8}
SMALL = {"encoder.widths": [8, 16], "method.generator.width": 8}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def table() -> StructuralEmbedding:
    return StructuralEmbedding(3, steps=20, random_state=0).fit(ROWS)


@pytest.fixture(scope="module")
def pictures() -> StructuralEmbedding:
    return StructuralEmbedding(3, steps=3, options=SMALL, random_state=0).fit(PIXELS)


@parametrize_with_checks([StructuralEmbedding(steps=2)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_three_lines_on_a_table(table):
    features = table.transform(ROWS)
    assert features.shape == (60, 32)
    assert features.dtype == np.float64
    assert adjusted_rand_score(table.predict(ROWS), LABELS) > 0.9
    assert 0.5 < table.score(ROWS) <= 1
    assert (table.labels_ == table.predict(ROWS)).all()
    assert table.cluster_centers_.shape == (3, 32)
    assert list(table.get_feature_names_out()[:2]) == ["structuralembedding0", "structuralembedding1"]


@pytest.mark.parametrize("x", [PIXELS, PIXELS[..., None], PIXELS[..., None].repeat(3, axis=-1)], ids=["hw", "hw1", "hw3"])
def test_images(x):
    estimator = StructuralEmbedding(2, steps=1, options=SMALL, random_state=0).fit(x)
    assert estimator.transform(x).shape == (40, 16)
    assert estimator.transform(x).dtype == np.float32
    drawn = estimator.sample(3)
    assert drawn.dtype == np.uint8
    assert drawn.shape == (3, 8, 8, x.shape[3] if x.ndim == 4 else 1)
    assert estimator.n_features_in_ == np.prod(x.shape[1:])


def test_pictures_paths_and_tensors_are_images_too(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
    expected = pictures.transform(PIXELS[:6])
    listed = [Image.fromarray(image) for image in PIXELS[:6]]
    paths = [tmp_path / f"{index}.png" for index in range(6)]
    for image, path in zip(listed, paths, strict=True):
        image.save(path)
    for given in (listed, paths, torch.from_numpy(PIXELS[:6])):
        np.testing.assert_allclose(pictures.transform(given), expected, rtol=1e-5, atol=1e-6)
    fitted = StructuralEmbedding(2, steps=1, options=SMALL, random_state=0).fit([Image.fromarray(image) for image in PIXELS])
    assert fitted.transform(listed).shape == (6, 16)


def test_the_one_evaluator_says_what_the_features_are_worth(table):
    found = table.evaluate(ROWS, LABELS)
    names = {metric.name for metric in found.metrics}
    assert {"svm", "raw/svm", "untrained/svm"} <= names
    assert found.n_train == 60
    assert found.verdict is not None
    assert "effective_rank" in {metric.name for metric in table.evaluate(ROWS).metrics}


def test_what_is_evaluated_is_what_transform_returns(pictures, tmp_path):
    estimator = StructuralEmbedding.load(pictures.save(tmp_path / "run")).set_params(feature="layers")
    labels = np.arange(len(PIXELS)) % 2
    found = {metric.name: metric for metric in estimator.evaluate(PIXELS, labels).metrics}
    assert {found[name].protocol["feature"] for name in ("svm", "untrained/svm")} == {"layers"}
    expected = effective_rank(estimator.transform(PIXELS)).value
    assert found["effective_rank"].value == pytest.approx(expected, rel=1e-4)


def test_every_parameter_arrives_where_it_acts(table, monkeypatch):
    other = StructuralEmbedding(
        4, steps=5, feature="embedding", manifold="spectral", device="cpu", random_state=3, verbose=True, on_log=print
    )
    assert {name for name, value in other.get_params().items() if value != StructuralEmbedding().get_params()[name]} == (
        other.get_params().keys() - {"options"}
    )
    fitted = tiny.arrival(monkeypatch, "sao.estimator.fit", lambda: other.fit(ROWS))
    assert (fitted["on_log"], fitted["shown"], fitted["config"].train.steps) == (print, True, 5)
    assert fitted["config"].seed == np.random.RandomState(3).randint(2**31 - 1)
    assert fitted["config"].train.device == "cpu"
    chosen: Any = clone(table)
    chosen.set_params(feature="embedding", manifold="spectral", n_clusters=4, steps=1)
    found = tiny.arrival(monkeypatch, "sao.estimator.manifold_clusters", lambda: chosen.fit(ROWS))
    assert (found["k"], found["algorithm"], found["seed"]) == (4, "spectral", chosen.model_.config.seed)
    evaluated = tiny.arrival(monkeypatch, "sao.estimator.Model.evaluate", lambda: chosen.evaluate(ROWS, LABELS))
    expected = {"seed": chosen.model_.config.seed, "feature": "embedding", "manifold": "spectral"}
    assert {name: evaluated[name] for name in expected} == expected
    drawn = tiny.arrival(monkeypatch, "sao.estimator.Model.sample", lambda: table.sample(5, random_state=7))
    assert (drawn["n"], drawn["seed"]) == (5, np.random.RandomState(7).randint(2**31 - 1))


@pytest.mark.parametrize(
    ("place", "manifold"), [("best_kmeans", None), ("manifold_clusters", "spectral"), ("Standardiser.fit", None), ("fit", None)]
)
def test_whatever_draws_draws_by_the_random_state(place, manifold, monkeypatch):
    estimator = StructuralEmbedding(2, steps=1, options=SMALL_TABLE, manifold=manifold, random_state=3)
    given = tiny.arrival(monkeypatch, f"sao.estimator.{place}", lambda: estimator.fit(ROWS))
    seed = given["config"].seed if place == "fit" else given["seed"]
    assert seed == np.random.RandomState(3).randint(2**31 - 1)


@pytest.mark.skipif(importlib.util.find_spec("umap") is None, reason="umap-learn is not installed")
@pytest.mark.parametrize(("manifold", "said"), [(None, "spectral"), ("umap", "UMAP")])
def test_clusters_are_evaluated_along_the_manifold_that_was_asked_for(manifold, said, pictures, tmp_path, monkeypatch):
    """UMAP takes half a minute to import, so its clusters are the spectral ones here."""
    spectral = along.manifold_clusters
    monkeypatch.setattr(along, "_umap_clusters", lambda features, k, seed: spectral(features, k, "spectral", seed))
    estimator = StructuralEmbedding.load(pictures.save(tmp_path / "run")).set_params(manifold=manifold)
    found = {metric.name: metric for metric in estimator.evaluate(PIXELS, np.arange(len(PIXELS)) % 2).metrics}
    assert {found[name].protocol["algorithm"].split()[0] for name in ("manifold", "raw/manifold")} == {said}


def test_the_embedding_can_be_asked_for():
    estimator = StructuralEmbedding(2, steps=2, feature="embedding", random_state=0).fit(ROWS)
    assert np.allclose(np.linalg.norm(estimator.transform(ROWS), axis=1), 1)


def test_the_same_seed_gives_the_same_model_and_another_one_another(table):
    again = StructuralEmbedding(3, steps=20, random_state=0).fit(ROWS)
    assert (again.transform(ROWS) == table.transform(ROWS)).all()
    assert (again.sample(5, random_state=1) == table.sample(5, random_state=1)).all()
    assert (again.sample(5, random_state=1) != again.sample(5, random_state=2)).any()
    other = StructuralEmbedding(3, steps=20, random_state=1).fit(ROWS)
    assert not np.allclose(other.transform(ROWS), table.transform(ROWS))
    first, second = (StructuralEmbedding(3, steps=1).fit(ROWS).transform(ROWS) for _ in range(2))
    assert not np.allclose(first, second)


def test_no_hidden_random_state_is_touched():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  (the global state is what must not move)
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    StructuralEmbedding(2, steps=1, random_state=0).fit(ROWS)
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


def test_generated_rows_have_the_units_of_the_table_and_its_constant_columns():
    rows = np.column_stack([1000 + 3 * ROWS[:, 0], np.full(60, 7.0), ROWS[:, 1] / 100])
    drawn = StructuralEmbedding(2, steps=3, random_state=0).fit(rows).sample(200, random_state=0)
    assert drawn.shape == (200, 3)
    assert (drawn[:, 1] == 7).all()
    assert abs(drawn[:, 0].mean() - rows[:, 0].mean()) < 3 * rows[:, 0].std()
    assert abs(drawn[:, 2]).max() < 1


def same(one: StructuralEmbedding, other: StructuralEmbedding, x: np.ndarray) -> None:
    assert (one.transform(x) == other.transform(x)).all()
    assert (one.predict(x) == other.predict(x)).all()
    assert (one.labels_ == other.labels_).all()
    assert (one.sample(4, random_state=3) == other.sample(4, random_state=3)).all()
    assert one.score(x) == other.score(x)
    assert one.get_params() == other.get_params()
    assert (one.n_features_in_, one.n_steps_, one.notes_) == (other.n_features_in_, other.n_steps_, other.notes_)


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_saved_or_pickled_it_is_the_same(kind, request, tmp_path):
    estimator, x = request.getfixturevalue(kind), {"table": ROWS, "pictures": PIXELS}[kind]
    same(StructuralEmbedding.load(estimator.save(tmp_path / "run")), estimator, x)
    joblib.dump(estimator, tmp_path / "estimator.joblib")
    pickled = joblib.load(tmp_path / "estimator.joblib")
    same(pickled, estimator, x)
    same(StructuralEmbedding.load(pickled.save(tmp_path / "again")), estimator, x)  # also without the optimisers' moments
    model = sao.load(tmp_path / "run")
    assert np.allclose(model.embed(x), estimator.transform(x), atol=1e-4)
    assert not list((tmp_path / "run").rglob("*.pkl"))


def test_a_table_with_a_constant_column_is_accepted_after_loading_too(tmp_path):
    rows = np.column_stack([ROWS, np.full(60, 7.0)])
    estimator = StructuralEmbedding(3, steps=1, options=SMALL_TABLE, random_state=0).fit(rows)
    same(StructuralEmbedding.load(estimator.save(tmp_path / "run")), estimator, rows)


def test_a_pickle_of_version_0_2_is_the_same(table):
    """Its options and networks have that version's names."""
    state = table.__getstate__()
    config, facts, tensors, step = state["_stored"]
    config["method"]["average"] = config["method"].pop("ema_decay")
    tensors = {f"average_{name[4:]}" if name.startswith("ema_") else name: value for name, value in tensors.items()}
    assert any(name.startswith("average_") for name in tensors)
    older = StructuralEmbedding.__new__(StructuralEmbedding)
    older.__setstate__(state | {"_stored": (config, facts, tensors, step)})
    same(older, table, ROWS)


def test_clusters_along_the_manifold(tmp_path):
    estimator = StructuralEmbedding(3, steps=20, manifold="spectral", random_state=0).fit(ROWS)
    features, seed = estimator.transform(ROWS), estimator.model_.config.seed
    assert estimator.labels_.tolist() == manifold_clusters(features, 3, "spectral", seed).tolist()
    assert estimator.cluster_centers_.shape == (3, features.shape[1])
    np.testing.assert_allclose(np.linalg.norm(estimator.cluster_centers_, axis=1), 1, rtol=1e-6)
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    for cluster, centre in enumerate(estimator.cluster_centers_):
        mean = units[estimator.labels_ == cluster].mean(axis=0)
        np.testing.assert_allclose(centre, mean / np.linalg.norm(mean), atol=1e-6)
    # Blobs lie apart: a sample near one of a group is of its group, and order or company make no difference.
    nudged = ROWS + 1e-3
    assert estimator.predict(nudged).tolist() == estimator.labels_.tolist()
    assert estimator.predict(nudged[::-1][:7]).tolist() == estimator.labels_[::-1][:7].tolist()
    again = StructuralEmbedding.load(estimator.save(tmp_path / "run"))
    assert again.manifold == "spectral"
    again.cluster_centers_ = -again.cluster_centers_  # it asks the training samples, not these
    assert again.predict(nudged).tolist() == estimator.labels_.tolist()
    assert pickle.loads(pickle.dumps(estimator)).predict(nudged).tolist() == estimator.labels_.tolist()


@pytest.mark.slow
def test_another_process_fits_and_uses_it(table):
    """As joblib does with n_jobs: an estimator goes there and a fitted one comes back."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        same(pool.submit(StructuralEmbedding(3, steps=20, random_state=0).fit, ROWS).result(), table, ROWS)
        assert (pool.submit(table.transform, ROWS).result() == table.transform(ROWS)).all()


def test_a_saved_table_is_embedded_by_the_command_line(table, tmp_path, monkeypatch):
    from sao.cli.main import main

    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
    np.save(tmp_path / "rows.npy", ROWS)
    table.save(tmp_path / "run")
    assert main(["embed", str(tmp_path / "run"), str(tmp_path / "rows.npy"), "-o", str(tmp_path / "f.npz")]) == 0
    assert np.allclose(np.load(tmp_path / "f.npz")["features"], table.transform(ROWS), atol=1e-4)


def test_saving_twice_needs_a_word_and_loading_says_what_is_wrong(table, tmp_path):
    table.save(tmp_path / "run")
    with pytest.raises(InputError, match="holds a run already"):
        table.save(tmp_path / "run")
    table.save(tmp_path / "run", overwrite=True)
    (tmp_path / "run" / "estimator.json").write_text("{")
    with pytest.raises(InputError, match="holds no estimator, or a damaged one"):
        StructuralEmbedding.load(tmp_path / "run")
    with pytest.raises(InputError, match="is not a run"):
        StructuralEmbedding.load(tmp_path)


def test_a_random_state_object_is_saved_as_the_seed_it_gave(tmp_path):
    estimator = StructuralEmbedding(2, steps=1, random_state=np.random.RandomState(4)).fit(ROWS)
    loaded = StructuralEmbedding.load(estimator.save(tmp_path / "run"))
    assert loaded.random_state == estimator.model_.config.seed
    assert (loaded.transform(ROWS) == estimator.transform(ROWS)).all()


def test_in_a_pipeline_and_a_grid():
    pipeline: Any = make_pipeline(StandardScaler(), StructuralEmbedding(3, steps=2, random_state=0), LogisticRegression())
    pipeline = clone(pipeline)
    assert pipeline.fit(ROWS, LABELS).score(ROWS, LABELS) > 0.9
    search = GridSearchCV(StructuralEmbedding(random_state=0, steps=1), {"n_clusters": [2, 3]}, cv=2).fit(ROWS)
    assert search.best_params_["n_clusters"] in (2, 3)


@pytest.mark.parametrize(("owner", "name"), [(Structural, "step"), (MemoryBank, "push_unchecked"), (EMA, "update")])
@pytest.mark.usefixtures("table")  # torch warns of itself when it is first used in forward mode, and must not do so here
def test_ctrl_c_keeps_what_was_learnt(monkeypatch, owner, name):
    """After the step in which it was typed, in whatever place of the step that was."""
    function, calls = getattr(owner, name), 0

    def interrupted(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 8:
            signal.raise_signal(signal.SIGINT)  # as a person types it
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)
    estimator = StructuralEmbedding(3, steps=10_000, random_state=0)
    with pytest.warns(UserWarning, match="interrupted after"):
        estimator.fit(ROWS)
    assert 2 < estimator.n_steps_ <= 8
    assert adjusted_rand_score(estimator.labels_, LABELS) > 0.5
    assert np.isfinite(estimator.sample(2)).all()
    assert estimator.set_params(steps=1).fit(ROWS).n_steps_ == 1


def test_on_log_gets_rows_and_ends_fit(tmp_path):
    rows: list[dict] = []
    options = SMALL_TABLE | {"log.every": 2}
    fitted = StructuralEmbedding(3, steps=6, random_state=0, options=options, on_log=rows.append).fit(ROWS)
    assert [row["step"] for row in rows] == [2, 4, 6]
    assert "discriminator/distance" in rows[0]
    assert StructuralEmbedding.load(fitted.save(tmp_path / "kept")).on_log is None

    def stop(error: BaseException):
        def on_log(row: dict) -> None:
            raise error

        return StructuralEmbedding(3, steps=6, random_state=0, options=options, on_log=on_log)

    with pytest.warns(UserWarning, match="interrupted after 2 of 6 steps"):
        assert stop(KeyboardInterrupt()).fit(ROWS).n_steps_ == 2
    with pytest.raises(KeyError):
        stop(KeyError("mine")).fit(ROWS)


def test_verbose_says_what_was_chosen_and_how_far_it_is(capsys):
    StructuralEmbedding(2, steps=2, verbose=True, random_state=0).fit(ROWS)
    said = capsys.readouterr().out
    assert "auto: batch 30" in said
    assert "step 2/2" in said
    StructuralEmbedding(2, steps=2, random_state=0).fit(ROWS)
    assert capsys.readouterr().out == ""


def test_options_reach_the_configuration():
    options = {"train.batch": np.int64(9), "method.distance": "bhattacharyya", "encoder.width": 24}
    config = StructuralEmbedding(2, steps=1, options=options).fit(ROWS).model_.config
    assert (config.train.batch, structural_options(config).distance) == (9, "bhattacharyya")
    assert config.encoder == PerceptronOptions(width=24)
    assert StructuralEmbedding(2, options={"train.epochs": 2, "train.batch": 30}).fit(ROWS).n_steps_ == 4


def test_without_steps_the_length_fits_the_data():
    assert StructuralEmbedding(2, random_state=0).fit(ROWS[:12, :1]).n_steps_ == 40


@pytest.mark.parametrize(
    ("x", "parameters", "said"),
    [
        (ROWS, {"n_clusters": 61}, "n_clusters=61"),
        (ROWS, {"n_clusters": 2.5}, "n_clusters=2.5"),
        (ROWS, {"feature": "head"}, "feature must be"),
        (ROWS, {"manifold": "sphere"}, "unknown manifold"),
        (ROWS, {"steps": 0}, "train.steps"),
        (ROWS, {"device": "toaster"}, "toaster"),
        (ROWS, {"options": {"train.bach": 3}}, "did you mean --train.batch"),
        (ROWS, {"options": [3]}, "options must be a dict"),
        (ROWS, {"options": {"seed": 3}}, "random_state"),
        (ROWS, {"options": {"train.batch": 61}}, "train.batch is 61"),
        (np.ones((20, 3)), {}, "same value in all rows"),
        (ROWS * 1e31, {}, "too large"),
        (PIXELS.astype(np.float32), {}, "must be uint8"),
        (PIXELS[:, :6], {}, "square"),
        (PIXELS[:1], {}, "at least 2"),
        (np.zeros((20, 8, 8), np.uint8), {}, "all the same"),
    ],
)
def test_bad_input_is_one_line(x, parameters, said):
    with pytest.raises(ValueError, match=said) as caught:
        StructuralEmbedding(**{"n_clusters": 2, "steps": 1, **parameters}).fit(x)
    assert "\n" not in str(caught.value)


def test_images_for_a_table_and_tables_for_images_are_refused(table, pictures):
    for estimator, x in ((table, PIXELS), (pictures, ROWS), (pictures, PIXELS[:, :, :7]), (pictures, PIXELS / 255)):
        with pytest.raises(ValueError, match=r"must be|expected"):
            estimator.transform(x)


def test_nothing_works_before_fit():
    for use in (lambda e: e.transform(ROWS), lambda e: e.predict(ROWS), lambda e: e.sample(2), lambda e: e.save("x")):
        with pytest.raises(NotFittedError):
            use(StructuralEmbedding())


def test_divergence_is_said_with_advice(monkeypatch):
    def broken(self, inputs, step):
        raise NonFiniteError("discriminator/distance")

    monkeypatch.setattr(Structural, "step", broken)
    with pytest.raises(Diverged, match="step 1: discriminator/distance is NaN or inf; set options"):
        StructuralEmbedding(2).fit(ROWS)


def test_fitting_again_forgets_the_kind_of_data_before():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = StructuralEmbedding(2, steps=1, options={"method.generator.width": 8}, random_state=0)
        assert estimator.fit(ROWS).sample(1).shape == (1, 4)
        assert estimator.fit(PIXELS).sample(1).shape == (1, 8, 8, 1)
        assert estimator.fit(ROWS[:, :2]).sample(1).shape == (1, 2)
