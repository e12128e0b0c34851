"""The report: what it collects of a run, what it costs, and that nothing in it can be more than text."""

import base64
import io
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from PIL import Image

import sao
from sao.cli.main import main
from sao.data.dataset import Dataset, Images, Vectors
from sao.evaluation.result import Metric, write_json
from sao.report import history
from sao.report.build import STAGES, Limits, Shown, write_report
from sao.report.copies import Compared, memorisation, near_duplicates
from sao.report.layout import layout, placed
from sao.report.page import as_script_data
from sao.report.thumbnails import sheet
from sao.training.run_folder import Run

FEW = Limits(points=80, generated=32, seconds=5.0, training=200)
HOSTILE = [
    "</script><script>window.broken=1</script>",
    '"><img src=x onerror=window.broken=1>',
    "‮gnp.elif",
    "🦊 & 'quotes'.png",
]


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def reported(folder: Path, data: Dataset | None, target: Path, limits: Limits = FEW) -> dict[str, Any]:
    shown, said = Shown(Run.open(folder), sao.load(folder), data, folder.name), []
    write_report(target, [shown], limits, said.append)
    assert len(said) == (1 if data is None else STAGES) + 1  # which the bar counts on
    return data_of(target)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("runs") / "tiny", log__sample_every=4, log__evaluate_every=4)[0].folder


@pytest.fixture(scope="module")
def data(run, tmp_path_factory) -> dict[str, Any]:
    return reported(run, tiny.dataset(), tmp_path_factory.mktemp("page") / "report.html")


def test_a_page_says_what_was_trained_on_what(data):
    (found,) = data["runs"]
    words = " ".join(found["said"])
    for part in (
        "trained on 1,437 images of 8×8 pixels in grey from “digits”",
        "All 8 steps of 16 images are done",
        "10 classes",
    ):
        assert part in words
    assert "360 images were held out" in words
    assert found["config"]["train.batch"] == "16"
    assert [one["step"] for one in found["pictures"]] == [4, 8]


def test_the_map_has_a_place_a_cluster_and_neighbours_for_each_sample(data, run):
    (found,) = data["runs"]
    shown = found["map"]
    assert shown["count"] == 80
    assert shown["by"] == "t-SNE"
    places = unpacked(shown["places"], "<u2").reshape(80, 2)
    assert places.min() == 0 or unpacked(shown["generated"]["places"], "<u2").min() == 0
    assert len(np.unique(places, axis=0)) > 70
    neighbours = unpacked(shown["neighbours"], "<u2").reshape(80, 5)
    rows = np.array([int(name.removeprefix("held-out ")) for name in shown["names"]])
    features = sao.load(run).embed(tiny.dataset().test)[rows]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    cosines = features @ features.T - 2 * np.eye(80)
    np.testing.assert_allclose(
        np.take_along_axis(cosines, neighbours.astype(int), 1), -np.sort(-cosines, axis=1)[:, :5], atol=1e-5
    )
    np.testing.assert_array_equal(unpacked(shown["labels"], "<u2"), np.asarray(tiny.dataset().test.labels)[rows])
    assert np.isfinite(unpacked(shown["norms"], "<f4")).all()
    assert shown["generated"]["count"] == 32


def test_clusters_show_central_borderline_and_generated_samples(data):
    (found,) = data["runs"]
    assigned = unpacked(found["map"]["clusters"], "<u2")
    for number, cluster in enumerate(found["clusters"]):
        assert cluster["size"] == (assigned == number).sum()
        assert sum(size for _, size in cluster["labels"]) == cluster["size"]
        for kind in ("central", "borderline", "outliers"):
            assert (assigned[cluster[kind]] == number).all()
        assert number not in cluster["towards"]
    assert sum(cluster["generated_count"] for cluster in found["clusters"]) == 32


def test_the_same_pictures_of_two_runs_are_there_once(run, tmp_path):
    shown = [Shown(Run.open(run), sao.load(run), tiny.dataset(), name) for name in ("one", "two")]
    write_report(tmp_path / "both.html", shown, FEW, lambda stage: None)
    data = data_of(tmp_path / "both.html")
    assert len(data["runs"]) == 2
    assert data["runs"][0]["map"]["sheet"] == data["runs"][1]["map"]["sheet"]


def test_curves_are_grouped_by_what_they_are_about(data):
    charts = {chart["title"]: chart for chart in data["runs"][0]["curves"]}
    assert {series["name"] for series in charts["Jacobian norm σ of held-out samples"]["series"]} == {"5 %", "50 %", "95 %"}
    assert "k-means" in {series["name"] for series in charts["Accuracy on 360 held-out samples"]["series"]}
    losses = next(series for series in charts["Losses of the generator"]["series"] if series["name"] == "distance")
    assert losses["steps"] == list(range(1, 9))
    assert not any("gradient" in series["name"] for series in charts["Losses of the generator"]["series"])


def test_metrics_are_those_measured_last_and_the_verdict_is_of_this_step(run):
    folder = Run.open(run)
    write_json(folder.evaluations / "summary.json", [Metric("svm", 0.5), Metric("raw/svm", 0.4)])
    write_json(folder.evaluations / "step-00000008-backbone-ema.json", [Metric("svm", 0.6, None, {"C": 1})])
    found = {(one["of"], one["key"]): one for one in history.metrics(folder, 8)}
    assert found["learnt", "svm"]["value"] == 0.6
    assert found["learnt", "svm"]["protocol"] == {"C": 1}
    assert found["raw", "svm"]["word"] == "linear SVM"
    sentence = "Yes, it is better than the baselines (the best of raw): linear SVM."
    (folder.evaluations / "verdict.json").write_text(json.dumps({"step": 8, "better": True, "sentence": sentence}))
    words = {"claim": "Yes, it is better than the baselines (the best of raw).", "reasons": "Linear SVM."}
    assert history.verdict(folder, 8) == {"step": 8, "better": True, "sentence": sentence, **words}
    assert history.verdict(folder, 9) is None
    (folder.evaluations / "verdict.json").write_text("[]")
    assert history.verdict(folder, 8) is None


def test_what_the_verdict_rests_on_is_listed(run):
    numbers = {"with": "raw", "difference": 0.2, "interval": [0.1, 0.3]}
    folder = Run.open(run)
    svm = Metric("svm", 0.6, None, {"compared": numbers | {"p": 0.01}})
    knn = Metric("knn5", 0.6, None, {"compared": numbers | {"p": 0.05}})
    write_json(folder.evaluations / "summary.json", [svm, knn, Metric("raw/svm", 0.4)])
    (folder.evaluations / "step-00000008-backbone-ema.json").unlink(missing_ok=True)
    assert history.compared(history.metrics(folder, 8)) == [
        {"word": "linear SVM", "decided": True, **numbers},
        {"word": "5 neighbours", "decided": False, **numbers},
    ]


def test_names_and_labels_are_text(run, tmp_path):
    test = tiny.dataset().test
    assert isinstance(test, Images)
    names = [HOSTILE[i % 4] + str(i) for i in range(len(test))]
    hostile = Images(test.pixels, test.labels, names, [HOSTILE[i % 4] for i in range(10)])
    data = reported(run, Dataset("<b>digits</b>", tiny.dataset().train, hostile), tmp_path / "hostile.html")
    (found,) = data["runs"]
    assert {name.rstrip("0123456789") for name in found["map"]["names"]} == set(HOSTILE)
    assert set(found["map"]["classes"]) == set(HOSTILE)
    text = (tmp_path / "hostile.html").read_text(encoding="utf-8")
    assert "window.broken" not in re.sub(r'(?s)<script type="application/json".*?</script>', "", text)
    assert "<" not in as_script_data({"a": HOSTILE, "nan": [float("nan")]})


def test_a_page_without_data_has_no_map_and_says_so(run, tmp_path):
    data = reported(run, None, tmp_path / "report.html")
    assert data["runs"][0]["map"] is None
    assert data["runs"][0]["curves"]


def test_vectors_have_a_map_without_thumbnails(tmp_path):
    draws = np.random.default_rng(0)
    parts = [Vectors(draws.normal(size=(n, 3)).astype(np.float32)) for n in (200, 40)]
    data = Dataset("table", *parts)
    folder = tiny.trained(tmp_path / "run", data, encoder="perceptron", encoder__width=8)[0].folder
    (found,) = reported(folder, data, tmp_path / "report.html")["runs"]
    assert found["map"]["sheet"] is None
    assert found["map"]["labels"] is None
    assert len(found["clusters"]) == 10
    assert "200 rows of 3 numbers" in found["said"][0]


@pytest.mark.parametrize("held_out", [1, 3])
def test_a_handful_of_held_out_samples_has_a_page_too(run, tmp_path, held_out):
    data = Dataset("few", tiny.dataset().train, tiny.dataset().test.select(np.arange(held_out)))
    (found,) = reported(run, data, tmp_path / "report.html")["runs"]
    assert found["map"]["count"] == held_out
    assert found["duplicates"] is None
    assert sum(cluster["size"] for cluster in found["clusters"]) == held_out


def test_near_duplicates_are_found_within_and_across():
    draws = np.random.default_rng(0)
    train = Images(draws.integers(0, 256, (60, 20, 20, 3), dtype=np.uint8))
    pixels = draws.integers(0, 256, (40, 20, 20, 3), dtype=np.uint8)
    pixels[7] = np.clip(pixels[3].astype(int) + 1, 0, 255)
    pixels[9] = train.pixels[50]
    found = near_duplicates(Compared.of(Images(pixels), train, np.arange(20, 60), None))
    assert found is not None
    assert [(pair["a"], pair["b"]) for pair in found["within"]] == [(3, 7)]
    assert [(pair["a"], pair["row"]) for pair in found["across"]] == [(9, 50)]
    assert found["compared_with"] == 40


def test_copied_training_samples_are_found():
    draws = np.random.default_rng(0)
    train = Images(draws.integers(0, 256, (60, 8, 8, 1), dtype=np.uint8))
    drawn = draws.integers(0, 256, (20, 8, 8, 1), dtype=np.uint8)
    drawn[4] = train.pixels[33]
    found = memorisation(Compared.of(Images(train.pixels[:5]), train, np.arange(60), Images(drawn)), seed=0)
    assert found is not None
    assert (found["nearest"][0]["generated"], found["nearest"][0]["row"]) == (4, 33)
    assert found["nearest"][0]["suspicious"]
    assert found["count"] < 5


def test_neighbours_in_feature_space_are_neighbours_on_the_map():
    draws = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 40)
    features = np.eye(8)[groups] + draws.normal(0, 0.05, (120, 8))
    positions, by = layout(features)
    assert by == "t-SNE"
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2) + 1e9 * np.eye(120)
    assert (groups[distances.argmin(axis=1)] == groups).all()
    assert placed(positions).max() == 65535


@pytest.mark.parametrize("features", [np.ones((40, 4)), np.zeros((40, 4)), np.ones((2, 4)), np.ones((1, 4)), np.eye(5)[:, :1]])
def test_collapsed_or_few_features_have_a_layout_too(features):
    positions, _ = layout(features.astype(np.float32))
    assert positions.shape == (len(features), 2)
    assert np.isfinite(positions).all()


def test_umap_places_where_it_is_asked_for(monkeypatch):
    fake = types.ModuleType("umap")
    made = types.SimpleNamespace(fit_transform=lambda rows: rows[:, :2] * 7)
    fake.UMAP = lambda **options: made  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "umap", fake)
    assert layout(np.random.default_rng(0).normal(size=(20, 4)), umap=True)[1] == "UMAP"


def smooth_images(n: int, size: int) -> Images:
    """Colour images with as much detail as photographs: blurred noise over gradients."""
    draws = np.random.default_rng(0)
    small = draws.integers(0, 256, (n, size // 4, size // 4, 3), dtype=np.uint8)
    large = small.repeat(4, axis=1).repeat(4, axis=2).astype(np.int16)
    return Images(np.clip(large + draws.integers(-12, 13, large.shape), 0, 255).astype(np.uint8))


def test_five_thousand_thumbnails_leave_room_on_a_page():
    found = sheet(smooth_images(5000, 32))
    assert len(found["uri"]) < 2_300_000


def test_thumbnails_stand_where_the_sheet_says():
    images = smooth_images(10, 8)
    found = sheet(images)
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["uri"].split(",")[1]))))
    row, column = divmod(7, found["columns"])
    tile = picture[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8, :3]
    np.testing.assert_array_equal(tile, images.pixels[7])


def test_the_command_writes_the_page_into_the_run_and_says_where(run, capsys, monkeypatch):
    assert main(["report", str(run), "--points", "60"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert data_of(run / "report.html")["runs"][0]["map"]["count"] == 60


def test_wrong_arguments_are_one_line(run, tmp_path, capsys):
    for words, said in (
        ([str(tmp_path)], "is not a run"),
        ([str(run), "--points", "3"], "--points"),
        ([str(run), "--clusters", "1"], "--clusters"),
        ([str(run), "-o", str(tmp_path)], "is a folder"),
    ):
        assert main(["report", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_training_ends_in_a_report_and_evaluation_refreshes_it(tmp_path, capsys):
    out = tmp_path / "run"
    tiny.save_few(tmp_path / "mnist.npz")
    options = {"data__source": "mnist", "data__folder": tmp_path, "train__steps": 2}
    words = tiny.words(**options, log__report="true", log__evaluate_minutes=5)
    assert main(["train", "digits", "--out", str(out), *words]) == 0
    said = capsys.readouterr().out
    assert f"look at       {out / 'report.html'}" in said
    first = data_of(out / "report.html")["runs"][0]
    assert first["verdict"]["sentence"] in said
    assert first["map"]["count"] == 60
    assert {metric["key"] for metric in first["metrics"]} >= {"svm", "kmeans"}
    assert not any(metric["key"] == "ari" for metric in first["metrics"])
    assert main(["eval", str(out), "--metrics", "ari"]) == 0
    second = data_of(out / "report.html")["runs"][0]
    assert any(metric["key"] == "ari" for metric in second["metrics"])
    assert main(["train", "digits", "--out", str(out), "--overwrite", *tiny.words(**options)]) == 0
    assert not (out / "report.html").exists()
