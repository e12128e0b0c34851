"""The report: what it collects of a run, what it costs, and that nothing in it can be more than text."""

import base64
import io
import json
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
from sao.report.copies import memorisation
from sao.report.gallery import Gallery, Originals
from sao.report.layout import WIDTH, clearances, layout, placed
from sao.report.page import as_script_data
from sao.report.side_by_side import paired_test, rows_to_score, scored
from sao.report.thumbnails import sheet
from sao.training.run_folder import Run

FEW = Limits(points=80, placed=60, generated=32, seconds=5.0)
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
    assert len(said) == (1 if data is None else STAGES) + 2  # which the bar counts on
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
    assert "360 images were held out of training" in words
    assert found["config"]["train.batch"] == "16"
    assert [one["step"] for one in found["pictures"]] == [4, 8]


def test_the_map_has_a_place_a_group_and_neighbours_for_each_sample(data, run):
    (found,) = data["runs"]
    shown, n = found["map"], found["map"]["count"]
    assert (n, shown["total"]) == (79, 1797)  # of both parts in proportion, rounded down
    assert shown["by"] == "t-SNE"
    places = unpacked(shown["places"], "<u2").reshape(n, 2)
    assert len(np.unique(places, axis=0)) > 70
    neighbours = unpacked(shown["neighbours"], "<u2").reshape(n, 12)
    held_out = np.unpackbits(unpacked(shown["held_out"], "<u1"), count=n, bitorder="little").astype(bool)
    assert held_out.sum() == 16
    parts = {"training": tiny.dataset().train, "held-out": tiny.dataset().test}
    of = [name.split() for name in shown["names"]]
    assert [kind == "held-out" for kind, _ in of] == held_out.tolist()
    embedded = {kind: sao.load(run).embed(part) for kind, part in parts.items()}
    features = np.stack([embedded[kind][int(row)] for kind, row in of])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    cosines = features @ features.T - 2 * np.eye(n)
    nearest = -np.sort(-cosines, axis=1)[:, :12]
    np.testing.assert_allclose(np.take_along_axis(cosines, neighbours.astype(int), 1), nearest, atol=1e-5)
    np.testing.assert_allclose(unpacked(shown["similarities"], "<i1").reshape(n, 12) / 127, nearest, atol=0.005)
    expected = [int(np.asarray(parts[kind].labels)[int(row)]) for kind, row in of]
    np.testing.assert_array_equal(unpacked(shown["labels"], "<u2"), expected)
    assert np.isfinite(unpacked(shown["norms"], "<f4")).all()
    assert shown["generated"]["count"] == 32


def test_groups_show_typical_borderline_and_generated_samples(data):
    (found,) = data["runs"]
    assigned = unpacked(found["map"]["groups"], "<u2")
    for number, group in enumerate(found["groups"]):
        assert group["size"] == (assigned == number).sum()
        assert sum(size for _, size in group["labels"]) == group["size"]
        for kind in ("typical", "borderline"):
            assert (assigned[group[kind]] == number).all()
        assert number not in group["towards"]
    assert sum(group["generated_count"] for group in found["groups"]) == 32


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
    assert {title for title in charts if title.startswith("Accuracy")} == {"Accuracy on 360 held-out samples"}
    assert "Agreement of k-means between starts (ARI)" in charts


def test_metrics_are_those_measured_last_and_the_verdict_is_of_this_step(run):
    folder = Run.open(run)
    write_json(folder.evaluations / "summary.json", [Metric("svm", 0.5), Metric("raw/svm", 0.4)])
    write_json(folder.evaluations / "step-00000008-backbone-ema.json", [Metric("svm", 0.6, None, {"C": 1})])
    found = {(one["of"], one["key"]): one for one in history.metrics(folder, 8)}
    assert found["learnt", "svm"]["value"] == 0.6
    assert found["learnt", "svm"]["protocol"] == {"C": 1}
    assert found["raw", "svm"]["word"] == "linear SVM"
    write_json(folder.evaluations / "step-00000008-layers-ema.json", [Metric("svm", 0.7)])
    of_layers = {(one["of"], one["key"]): one["value"] for one in history.metrics(folder, 8, "layers")}
    assert of_layers == {("learnt", "svm"): 0.7, ("raw", "svm"): 0.4}
    (folder.evaluations / "step-00000008-layers-ema.json").unlink()
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


def test_runs_are_tested_on_the_same_samples_and_chance_is_not_called_better():
    draws = np.random.default_rng(0)
    labels = np.tile(np.arange(4), 60)
    names = [str(row) for row in range(240)]
    parts = [Images(np.zeros((n, 8, 8, 1), np.uint8), labels[:n], names[:n]) for n in (160, 80)]
    gallery = Gallery.of(Dataset("made", *parts), limit=1000)
    of = np.concatenate([labels[:160], labels[:80]])
    clear, vague = ((np.eye(4)[of] + draws.normal(0, far, (240, 4))).astype(np.float32) for far in (0.3, 3))
    chosen, places = rows_to_score(gallery)
    good, bad = (scored(chosen, features[places]) for features in (clear, vague))
    found = paired_test(bad, good)
    assert {row["word"] for row in found["rows"]} == {"5 neighbours", "linear SVM", "k-means"}
    assert all(row["decided"] and row["difference"] > 0 for row in found["rows"])
    assert all(row["second"] - row["first"] == pytest.approx(row["difference"]) for row in found["rows"])
    assert [row["first"] for row in found["rows"]] == [row["second"] for row in paired_test(good, bad)["rows"]]
    assert not any(row["decided"] for row in paired_test(good, good)["rows"])
    other = Gallery.of(Dataset("made", parts[0], parts[1].select(np.arange(40))), limit=1000)
    fewer = scored(other, clear[:200])
    assert paired_test(good, fewer) == {"reason": "they hold out different samples", "rows": []}
    assert paired_test(good, None)["reason"] == "the data of one was not at hand"


def test_names_and_labels_are_text(run, tmp_path):
    test = tiny.dataset().test
    assert isinstance(test, Images)
    names = [HOSTILE[i % 4] + str(i) for i in range(len(test))]
    hostile = Images(test.pixels, test.labels, names, [HOSTILE[i % 4] for i in range(10)])
    data = reported(run, Dataset("<b>digits</b>", hostile, hostile), tmp_path / "hostile.html")
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
    assert len(found["groups"]) == 10
    assert found["map"]["links"] is None
    assert "200 rows of 3 numbers" in found["said"][0]


@pytest.mark.parametrize("held_out", [1, 3])
def test_a_handful_of_samples_has_a_page_too_and_is_shown_whole(run, tmp_path, held_out):
    data = Dataset("few", tiny.dataset().train.select(np.arange(3)), tiny.dataset().test.select(np.arange(held_out)))
    (found,) = reported(run, data, tmp_path / "report.html")["runs"]
    assert found["map"]["count"] == found["map"]["total"] == 3 + held_out
    assert found["odd"] == {"count": 0, "rows": [], "scores": []}
    assert sum(group["size"] for group in found["groups"]) == 3 + held_out


def test_copied_training_samples_are_found():
    draws = np.random.default_rng(0)
    train = Images(draws.integers(0, 256, (60, 8, 8, 1), dtype=np.uint8))
    drawn = draws.integers(0, 256, (20, 8, 8, 1), dtype=np.uint8)
    drawn[4] = train.pixels[33]
    gallery = Gallery.of(Dataset("copied", train, train.select(np.arange(5))), limit=100)
    found = memorisation(gallery, Images(drawn), seed=0)
    assert found is not None
    assert (found["nearest"][0]["generated"], found["nearest"][0]["of"]) == (4, 33)
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
    assert placed(positions).max() == WIDTH


def test_samples_beyond_those_placed_lie_among_their_like():
    draws = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 60)
    positions, _ = layout(np.eye(8)[groups] + draws.normal(0, 0.05, (180, 8)), most=60)
    middles = np.stack([positions[groups == group].mean(axis=0) for group in range(3)])
    nearest = np.linalg.norm(positions[:, None] - middles[None], axis=2).argmin(axis=1)
    assert (nearest == groups).mean() > 0.95
    assert len(np.unique(positions, axis=0)) == 180


def test_squares_with_clearance_overlap_nowhere_and_fill_the_map():
    places = np.random.default_rng(0).integers(0, 4000, (300, 2)).astype(np.uint16)
    clear = clearances(places)
    distances = np.abs(places[:, None].astype(int) - places[None]).max(axis=2) + 10**6 * np.eye(300, dtype=int)
    for side in (100, 300, 1000):
        shown = clear >= side
        assert (distances[np.ix_(shown, shown)] >= side).all()
        assert (distances[np.ix_(~shown, shown)].min(axis=1) < side).all()  # there is no room for another one
    later = clearances(places[:50], places[50:])
    for side in (100, 300):
        assert (distances[np.ix_(np.flatnonzero(later >= side), np.arange(50, 300))] >= side).all()


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


def test_thumbnails_become_smaller_and_coarser_until_they_fit():
    tiles = np.asarray(smooth_images(200, 64).pixels)
    found = sheet(tiles, room=100_000)
    assert sum(map(len, found["uris"])) < 1.1 * 100_000 * 4 / 3
    assert found["width"] < 64
    assert sheet(tiles[:10], room=100_000)["width"] == 64


@pytest.mark.parametrize("which", [7, 120])
def test_thumbnails_stand_where_the_sheet_says(which, monkeypatch):
    monkeypatch.setattr("sao.report.thumbnails.SHEET_SIDE", 80)
    images = smooth_images(150, 8)
    found = sheet(np.asarray(images.pixels))
    assert found["each"] == 100
    address = found["uris"][which // found["each"]]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
    row, column = divmod(which % found["each"], found["columns"])
    tile = picture[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8, :3]
    np.testing.assert_array_equal(tile, images.pixels[which])


ODD_NAMES = ["a b&c.png", "ü#?%41.png", "javascript:alert(1).png", "it's (1).jpg"]


def photographs(folder: Path, names: list[str], size: int = 40) -> Path:
    """Files with much detail, each in a shade of its own."""
    draws = np.random.default_rng(0)
    for number, name in enumerate(names):
        pixels = draws.integers(0, 60, (size, size, 1)) + np.array([5 * (number % 30), 90, 150])
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
    return folder


def test_thumbnails_and_links_are_of_the_files_themselves(tmp_path):
    photographs(tmp_path / "my photos", [f"sub/{name}" for name in ODD_NAMES])
    originals = Originals.of(str(tmp_path / "my photos"), "crop")
    assert originals is not None
    names = [f"sub/{name}" for name in reversed(ODD_NAMES)]
    tiles = originals.read([*names, "gone.png"], originals.largest_side(names)).tiles
    for name, tile in zip(names, tiles, strict=False):
        np.testing.assert_array_equal(tile, np.asarray(Image.open(tmp_path / "my photos" / name)))
    assert (tiles[-1] == tiles[-1, 0, 0]).all()
    small = originals.read(names, 20)  # a photograph is decoded at a part of its size, but never at less than is shown
    for name, tile in zip(names, small.tiles, strict=True):
        shown = Image.open(tmp_path / "my photos" / name).convert("RGB").resize((20, 20), Image.Resampling.LANCZOS)
        assert np.abs(tile.astype(int) - np.asarray(shown)).mean() < 4
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "my photos")
    packed = Originals.of(str(tmp_path / "packed.zip"), "crop")
    assert packed is not None
    np.testing.assert_array_equal(packed.read(names, 40).tiles, tiles[:-1])
    assert packed.links(names, tmp_path / "report.html") is None
    links = originals.links([*names, "gone.png"], tmp_path / "pages" / "report.html")
    assert links is not None
    assert links[-1] is None
    for name, link in zip(names, links, strict=False):
        assert link is not None
        assert re.fullmatch(r"\./\.\./my%20photos/sub/[\w.%~-]+", link)
        assert unquote(link) == f"./../my photos/{name}"


def test_the_command_writes_the_page_into_the_run_and_says_where(run, capsys, monkeypatch):
    assert main(["report", str(run), "--points", "60"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert data_of(run / "report.html")["runs"][0]["map"]["count"] == 59


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
    out, splits = tmp_path / "run", {}
    for name, whole, n in (("train", tiny.dataset().train, 100), ("test", tiny.dataset().test, 60)):
        part = whole.select(np.arange(n))
        assert isinstance(part, Images)
        splits |= {f"x_{name}": part.pixels, f"y_{name}": part.labels}
    np.savez(tmp_path / "few.npz", **splits)
    few = ["train", "--data", str(tmp_path / "few.npz"), "--out", str(out)]
    assert main([*few, *tiny.words(log__report="true", log__evaluate_minutes=5, train__steps=2)]) == 0
    said = capsys.readouterr().out
    assert f"look at       {out / 'report.html'}" in said
    first = data_of(out / "report.html")["runs"][0]
    assert first["verdict"]["sentence"] in said
    assert first["map"]["count"] == 160
    assert {metric["key"] for metric in first["metrics"]} >= {"svm", "kmeans"}
    assert not any(metric["key"] == "ari" for metric in first["metrics"])
    assert main(["eval", str(out), "--metrics", "ari"]) == 0
    second = data_of(out / "report.html")["runs"][0]
    assert any(metric["key"] == "ari" for metric in second["metrics"])
    assert main([*few, "--overwrite", *tiny.words(train__steps=1)]) == 0
    assert not (out / "report.html").exists()
