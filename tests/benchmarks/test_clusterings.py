"""benchmarks/clusterings on 8x8 digits with a few steps, as a person types it."""

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.evaluation.clusters import clustering
from sao.evaluation.features import Features
from sao.reproduce.rows import StudyRun, chosen_rows, runs_of
from sao.training.run_folder import Run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "clusterings"))
import benchmark  # pyright: ignore[reportMissingImports]
import rivals  # pyright: ignore[reportMissingImports]
import study  # pyright: ignore[reportMissingImports]
import writing  # pyright: ignore[reportMissingImports]

main = runpy.run_path(f"{sys.path[0]}/__main__.py")["main"]

TABLE = benchmark.benchmark()
OWN = ("train.steps", "train.threads")  # the command itself says these
SMALL = {name: value for name, value in (tiny.OPTIONS | tiny.GAN | tiny.RESNET).items() if name not in OWN}
SMALL |= {"log.checkpoint_every": "1", "log.evaluate_every": "2"}
NAMES = {"kmeans", "nmi", "ari", "kmeans_best", "kmeans_best_nmi", "kmeans_best_ari"}
ALONG = {f"{name}{which}" for name in ("manifold", "together", "spectral") for which in ("", "_nmi", "_ari")}
needs_umap = pytest.mark.skipif(importlib.util.find_spec("umap") is None, reason="umap-learn is not installed")
needs_clustpy = pytest.mark.skipif(importlib.util.find_spec("clustpy") is None, reason="ClustPy is not installed")


def words(out: Path, *more: str) -> list[str]:
    small = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    return ["--data", "digits", "--steps", "4", "--jobs", "1", "--out", str(out), *small, *more]


def lines(out: Path) -> dict[str, dict]:
    return {line["row"]: line for line in json.loads((out / "clustering.json").read_text())["rows"]}


def quickly(patch: pytest.MonkeyPatch) -> None:
    """UMAP takes seconds to compile: only its own tests wait for it, elsewhere its clusters are the spectral ones."""
    from sao.evaluation import manifold

    spectral = manifold.manifold_clusters
    patch.setattr(manifold, "_umap_clusters", lambda features, k, seed: spectral(features, k, "spectral", seed))


@pytest.fixture(autouse=True)
def without_umap(monkeypatch):
    quickly(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Ours, raw, PCA and what needs ours."""
    if importlib.util.find_spec("umap") is None:
        pytest.skip("umap-learn is not installed")
    out = tmp_path_factory.mktemp("clusterings") / "out"
    with pytest.MonkeyPatch.context() as patch:
        quickly(patch)
        assert main(words(out, "--rows", "ours,layers,raw,pca", "--seeds", "2,3")) == 0
    return out


@pytest.mark.slow
def test_every_row_is_judged_alike(finished):
    found = lines(finished)
    assert list(found) == ["ours", "layers", "raw", "pca"]
    for name, line in found.items():
        assert line["seeds"] == [2, 3]
        assert line["metrics"].keys() - {"purity", "minutes"} == NAMES | ALONG, name
        assert all(len(metric["values"]) == 2 for metric in line["metrics"].values())
    assert found["raw"]["metrics"]["kmeans_best"]["mean"] > 0.6
    assert found["ours"]["metrics"]["minutes"]["mean"] > 0
    assert "minutes" not in found["raw"]["metrics"]


@pytest.mark.slow
def test_all_layers_are_those_of_the_run_of_ours(finished):
    model = sao.load(finished / "runs/ours-digits-seed2")
    data = study.open_config_data(Run.open(finished / "runs/ours-digits-seed2").config).dataset
    kmeans, *_ = clustering(model.embed(data.test, feature="layers"), data.test.labels, seed=2)
    found = json.loads((finished / "runs/layers-digits-seed2/eval.json").read_text())
    assert found[0]["name"] == "kmeans"
    assert found[0]["value"] == pytest.approx(kmeans.value)
    assert found[0]["protocol"]["feature"] == "layers"
    assert not (finished / "runs/layers-digits-seed2/checkpoints").exists()


@pytest.mark.slow
def test_the_page_has_protocols_and_the_way_there(finished):
    text = (finished / "clustering.md").read_text()
    assert "| row | seeds | k-means | best of 20 | UMAP | UMAP, all images | spectral | own | minutes | published |" in text
    assert "bilinear" in text
    assert "minutes of training" in text
    content = json.loads((finished / "clustering.json").read_text())
    points = content["over_time"]
    assert [(point["row"], point["step"]) for point in points] == [("ours", 2), ("ours", 4)]
    assert all(len(point["kmeans"]) == 2 and point["minutes"] > 0 for point in points)
    assert points[1]["minutes"] == pytest.approx(2 * points[0]["minutes"], rel=1e-6)
    assert (finished / "curves.png").stat().st_size > 1000


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_is_priced_so(finished, capsys):
    then = {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/eval.json")}
    assert len(then) == 8
    assert main(words(finished, "--rows", "ours,raw", "--seeds", "2,3")) == 0
    assert "4 runs, 4 of them done already" in capsys.readouterr().out
    assert "pca" in lines(finished), "runs of an earlier command are shown too"
    assert {path: path.stat().st_mtime_ns for path in then} == then
    assert main(words(finished, "--rows", "ours,raw", "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "ours on digits, seed 2: done already" in said
    assert "ours on digits, seed 4: 4 steps" in said, "the seeds of the report are 2, 3 and 4"
    assert "raw on digits, seed 4: nothing to train" in said
    assert main(words(finished, "--rows", "layers", "--dry-run")) == 0
    assert "layers on digits, seed 4: nothing to train" in capsys.readouterr().out


@pytest.mark.slow
def test_ours_is_an_ordinary_run(finished):
    run = Run.open(finished / "runs/ours-digits-seed2")
    assert run.config.seed == 2
    assert run.config.method.name == "structural"
    assert run.rows()[-1]["step"] == 4


def test_networks_are_shown_with_both_kinds_of_features():
    shown = [(row.kind, row.feature) for row in TABLE.rows]
    assert shown.count(("untrained", "backbone")) == shown.count(("untrained", "layers")) == 1
    assert shown[:4] == [("trained", "backbone"), ("same_run", "layers")] * 2


def runs_named(names: str, folder: Path, data: str = "mnist", seeds: tuple[int, ...] = (2,)) -> list[StudyRun]:
    rows = [row for row in TABLE.rows if row.name in names.split(",")]
    return runs_of(TABLE, rows, [data], seeds, {}, folder)


def test_the_wide_row_differs_from_ours_in_what_it_says_and_is_shown_with_all_layers_too(tmp_path):
    ours, wide, layers = runs_named("ours,wide,wide_layers", tmp_path)
    same = wide.config.model_dump()
    same["encoder"]["widths"] = (8, 32, 64, 128)
    same["method"] |= {"norm_side": "floor", "norm_weight": 0.0}
    same["method"]["generator_optimiser"]["learning_rate"] = 2e-3
    assert same == ours.config.model_dump()
    assert study._needed(layers).folder == wide.folder
    assert [run.row.name for run in runs_named("ours,wide,wide_layers", tmp_path, "digits")] == ["ours"]
    assert "wide" in {row.name for row in chosen_rows(TABLE, None, ["digits", "mnist"])}
    assert "wide" not in {row.name for row in chosen_rows(TABLE, None, ["digits", "cifar10"])}


def judge_alike(runs: list[StudyRun], names: list[str]) -> None:
    """Results without runs: every metric of every run is 0.5."""
    for run in runs:
        run.folder.mkdir(parents=True)
        run.evaluation.write_text(json.dumps([{"name": name, "value": 0.5, "std": None, "protocol": {}} for name in names]))


def test_every_trained_row_has_a_curve_of_its_own(tmp_path, monkeypatch):
    runs = runs_named("ours,layers,wide", tmp_path / "runs", seeds=(2, 3))
    judge_alike(runs, sorted(NAMES | ALONG))
    widths = {"ours": 1, "wide": 3}
    points = {step: 0.1 * step for step in (1, 2)}
    monkeypatch.setattr(
        writing, "_points", lambda run: [(widths[run.row.name] * step, step, value) for step, value in points.items()]
    )
    writing.write_benchmark(TABLE, runs, tmp_path, "clusterings")
    text = (tmp_path / "clustering.md").read_text()
    ours, wide = text.index("Ours, over time"), text.index("Ours, twice as wide, over time")
    assert "| minutes of training | 1.0 | 2.0 |" in text[ours:wide]
    assert "| minutes of training | 3.0 | 6.0 |" in text[wide:]
    assert text.count("| k-means | 0.100 | 0.200 |") == 2


def test_published_numbers_have_their_column_and_their_source(tmp_path):
    runs = runs_named("ours,n2d", tmp_path / "runs")
    judge_alike(runs, [*sorted(NAMES | ALONG), "own", "own_nmi", "own_ari"])
    writing.write_benchmark(TABLE, runs, tmp_path, "clusterings")
    shown = (tmp_path / "clustering.md").read_text().splitlines()
    (n2d,) = [line for line in shown if line.startswith("| N2D, autoencoder")]
    assert n2d.endswith("| 0.948 (McConville et al. 2021) |")
    (ours,) = [line for line in shown if line.startswith("| ours")]
    assert ours.endswith("| – |")
    (other,) = [line for line in shown if line.startswith("| ClusterGAN, not run here")]
    assert other.endswith("| 0.910 ± 0.040 (Mukherjee et al. 2019) |")
    (heading,) = [line for line in shown if line.startswith("| row")]
    assert other.count("|") == ours.count("|") == heading.count("|")
    assert not writing.over_time(runs)


@needs_umap
def test_what_is_missing_is_said_before_anything_is_trained(tmp_path, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "clustpy" else found(name, *more))
    assert main(words(tmp_path / "out", "--rows", "ours,dec")) == 2
    said = capsys.readouterr().err
    assert (
        "rows dec need ClustPy: pip install 'sao[clustering]', or add --rows ours,layers,wide,wide_layers,raw,pca,patches,"
        "untrained,untrained_layers" in said
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rows", "dek"], "clustering has no row 'dek'"),
        (["--data", "digits,cifar10", "--rows", "ours,wide"], "clustering does not make wide for digits, cifar10"),
        (["--data", "imagenet"], "clustering has no data set 'imagenet'"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--seeds", "x"], "--seeds takes whole numbers"),
    ],
)
def test_bad_input_is_one_line(given, said, capsys):
    assert main(given) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_epochs_are_as_many_as_fit_into_the_time_of_ours(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(rivals.time, "thread_time", lambda: now[0])

    def fit(name, inputs, k, epochs, seed):
        now[0] += 3.0 + 0.0001 * len(inputs) * (epochs[0] + epochs[1] * (name != "n2d"))

    monkeypatch.setattr(rivals, "fit", fit)
    inputs = np.zeros((60_000, 1), np.float32)  # an epoch takes six seconds
    assert rivals.epochs_within(300, "dec", inputs, 10) == (20, 30)
    assert rivals.epochs_within(300, "n2d", inputs, 10) == (50, 0)
    assert rivals.epochs_within(1e9, "vade", inputs, 10) == (100, 150)
    assert rivals.epochs_within(0.1, "dcn", inputs, 10) == (1, 1)


def test_a_rival_has_its_own_clusters_beside_the_same_protocols(tmp_path, monkeypatch):
    """With a stand-in that knows the classes, so that its own clusters must be perfect and its features nearly so."""
    data = tiny.dataset()
    (run,) = runs_named("dec", tmp_path / "runs", "digits")
    ours = run.folder.with_name("ours-digits-seed2")
    ours.mkdir(parents=True)
    (ours / "eval.json").write_text(json.dumps([{"name": "minutes", "value": 2.0, "std": None, "protocol": {}}]))
    asked, draws = [], np.random.default_rng(0)

    def fit(name, inputs, k, epochs, seed):
        asked.append((name, inputs.shape, float(inputs.max()), k, epochs, seed))
        dataset = study.open_config_data(run.config).dataset
        labels = {len(part): np.asarray(part.labels) for part in (dataset.train, dataset.test)}
        return rivals.Fitted(
            lambda images: np.eye(10)[labels[len(images)]] + 0.05 * draws.normal(size=(len(images), 10)),
            lambda images: (labels[len(images)] + 3) % 10,
        )

    monkeypatch.setattr(study, "fit", fit)
    monkeypatch.setattr(study, "epochs_within", lambda seconds, *rest: (int(seconds), 7))
    study.finish(run)
    found = {metric["name"]: metric for metric in json.loads(run.evaluation.read_text())}
    assert [found[name]["value"] for name in ("own", "own_nmi", "own_ari")] == pytest.approx([1, 1, 1])
    assert found["kmeans_best"]["value"] == 1
    assert found["minutes"]["protocol"]["epochs"] == [120, 7]
    run.evaluation.unlink()
    monkeypatch.setattr(study, "epochs_within", lambda *rest: pytest.fail("a row that was killed keeps its epochs"))
    study.finish(run)
    assert asked[0] == asked[1] == ("dec", (len(data.train), 64), 1.0, 10, (120, 7), 2)


@needs_umap
@pytest.mark.slow
def test_features_are_judged_by_umap_too(monkeypatch):
    monkeypatch.undo()
    draws = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 30)
    train, test = (np.eye(3)[labels] + 0.05 * draws.normal(size=(90, 3)) for _ in range(2))
    found = {one.name: one for one in study.judged(Features(train), Features(test, labels, {"split": "test"}), seed=2)}
    assert found.keys() - {"purity"} == NAMES | ALONG
    assert [found[name].value for name in ("manifold", "together", "spectral", "kmeans_best")] == [1, 1, 1, 1]
    assert found["together"].protocol["fitted_on"] == "the scored features and 90 others"
    assert found["manifold"].protocol["algorithm"].startswith("UMAP (10 dimensions, 20 neighbours, min_dist 0")
    assert found["kmeans_best_ari"].protocol["seed"] == 2


@needs_clustpy
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dec", "idec", "dcn", "vade"])
def test_clustpy_learns_and_assigns(name):
    inputs = rivals.inputs_of(tiny.dataset().train)[:200]
    fitted = rivals.fit(name, inputs, 10, (1, 1), seed=0)
    assert fitted.embed(inputs[:50]).shape == (50, 10)
    clusters = fitted.clusters(inputs[:50])
    assert clusters.shape == (50,)
    assert set(clusters.tolist()) <= set(range(10))


@needs_clustpy
@pytest.mark.slow
def test_the_seed_decides_what_clustpy_learns():
    """Whatever was drawn before it: a row that was killed, and begins again without its trial of the time, learns the same."""
    inputs = rivals.inputs_of(tiny.dataset().train)[:200]
    found = []
    for drawn in (0, 5):
        torch.rand(drawn)
        found.append(rivals.fit("n2d", inputs, 10, (2, 0), seed=1).embed(inputs[:50]))
    np.testing.assert_array_equal(*found)


@needs_clustpy
@needs_umap
@pytest.mark.slow
def test_n2d_clusters_the_scored_samples_on_their_manifold():
    inputs = rivals.inputs_of(tiny.dataset().train)[:400]
    fitted = rivals.fit("n2d", inputs, 10, (3, 0), seed=0)
    clusters = fitted.clusters(inputs[:200])
    assert fitted.embed(inputs[:200]).shape == (200, 10)
    assert len(set(clusters.tolist())) == 10
