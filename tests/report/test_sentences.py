"""The words and numbers of a page, each beside what it is when counted by hand."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny

from sao.cli.main import main
from sao.cli.report import names_of
from sao.config import load_preset
from sao.data.dataset import Images
from sao.data.files.reading import Skipped
from sao.evaluation.html import metric_table, table
from sao.evaluation.result import Metric, write_json
from sao.report import explore, history
from sao.report.build import Limits
from sao.report.cluster_sheet import ClusterSheet
from sao.training.run_folder import DataFacts, Run

GREY = DataFacts("photos", (1, 20, 30), 2500, 4)


def sentences(step: int = 8, held_out: int | None = None, facts: DataFacts = GREY, learns=False, **options) -> list[str]:
    return history.described(tiny.config(**options), facts, step, held_out, [], learns)


@pytest.mark.parametrize(("facts", "said"), [
    (GREY, "trained on 2,500 images of 30×20 pixels in grey from “photos”."),
    (replace(GREY, shape=(3, 8, 9), samples=7), "trained on 7 images of 9×8 pixels in colour from “photos”."),
    (replace(GREY, shape=(2, 8, 8)), "trained on 2,500 images of 8×8 pixels in 2 channels from “photos”."),
    (replace(GREY, shape=(4, 8, 8)), "trained on 2,500 images of 8×8 pixels in 4 channels from “photos”."),
    (replace(GREY, shape=(6,)), "trained on 2,500 rows of 6 numbers from “photos”."),
])  # fmt: skip
def test_the_form_of_the_data_is_width_by_height(facts, said):
    about = sentences(facts=facts)[0]
    assert about.endswith(f" (structural), {said}")
    assert about[0].isupper()


@pytest.mark.parametrize(("step", "options", "said"), [
    (15, {"train__steps": 20, "train__batch": 10}, "15 of 20 steps of 10 images are done: 0.06 passes"),
    (1250, {"train__steps": 5000, "train__batch": 9}, "1,250 of 5,000 steps of 9 images are done: 4.5 passes"),
    (2000, {"train__steps": 2000, "train__batch": 10}, "All 2,000 steps of 10 images are done: 8 passes"),
    (2001, {"train__steps": 2000, "train__batch": 10}, "All 2,000 steps of 10 images are done: 8 passes"),
    (1, {"train__steps": 3, "train__batch": 1000}, "1 of 3 steps of 1000 images are done: 0.4 passes"),
    (5, {"train__epochs": 2, "train__batch": 500}, "5 of 10 steps of 500 images are done: 1 pass"),
])  # fmt: skip
def test_steps_are_counted_in_passes_over_the_data(step, options, said):
    assert sentences(step, **options)[1] == f"{said} over the data."


def test_the_weights_that_a_run_began_with_are_named():
    assert len(sentences()) == 3
    begun = sentences(train__start_from="photos32", train__start_weights="step 7")
    assert begun[2] == "It began with the weights of photos32 (step 7)."
    assert begun[3].startswith("It has labels")


@pytest.mark.parametrize(("classes", "learns", "held_out", "said"), [
    (4, False, None, "It has labels of 4 classes, used for evaluation alone."),
    (4, True, None, "It has labels of 4 classes, which the method learns from."), (None, False, None, "There are no labels."),
    (None, False, 0, "There are no labels. 0 images were held out of training."),
    (4, False, 1234, "It has labels of 4 classes, used for evaluation alone. 1,234 images were held out of training."),
])  # fmt: skip
def test_what_labels_are_used_for(classes, learns, held_out, said):
    assert sentences(held_out=held_out, facts=replace(GREY, classes=classes), learns=learns)[-1] == said


@pytest.mark.parametrize(
    ("seconds", "said"), [([], ""), ([0.0], ""), ([59.4], ", in 59s"), ([3600, 3600], ", in 1h 00m"), ([20, 20, 5], ", in 25s")]
)
def test_the_time_of_a_run_begins_anew_where_it_was_resumed(seconds, said):
    assert history._duration([{"step": 1}, *({"time/seconds": one} for one in seconds)]) == said


def test_a_chart_is_named_by_what_a_scalar_is():
    for name, *chart in (
        ("eval/jacobian_norm_q05", "Jacobian norm σ of held-out samples", "5 %", "band"),
        ("eval/kmeans_n360", "Accuracy on 360 held-out samples", "k-means", "lines"),
        ("eval/odd_n12", "Accuracy on 12 held-out samples", "odd", "lines"),
        ("eval/memorised", "Share of generated samples too near to a training one", "memorised", "lines"),
        ("eval/own_number", "Own number", "own number", "lines"),
        ("generator/logdet_fake", "Log-determinants", "fake", "lines"),
        ("encoder/gradient_norm", "Gradient norm while training", "encoder", "lines"),
        ("gradient_norm", "Gradient norm while training", "gradient norm", "lines"),
        ("encoder/contrast_loss", "Losses of the encoder", "contrast loss", "lines"),
        ("loss", "Losses", "loss", "lines"),
    ):
        assert history._chart_of(name) == tuple(chart)
    assert history._chart_of("time/seconds")[0] is None


def test_charts_of_evaluation_come_first_and_diagnostics_last():
    row = {"step": 1, "z/loss": 1.0, "a/gradient_norm": 2.0, "eval/uniformity": -3.0, "b/loss": float("nan"), "a/text": "x"}
    found = history.curves([row, {"step": 4, "z/loss": 1.2345678, "b/loss": float("inf")}])
    assert [chart["title"] for chart in found] == ["Uniformity", "Losses of the z", "Gradient norm while training"]
    assert found[1]["series"] == [{"name": "loss", "steps": [1, 4], "values": [1.0, 1.2346]}]


def test_a_long_curve_keeps_its_ends():
    (chart,) = history.curves([{"step": step, "loss": float(step)} for step in range(1, 1001)])
    steps = chart["series"][0]["steps"]
    assert (len(steps), steps[0], steps[-1]) == (400, 1, 1000)
    assert steps == chart["series"][0]["values"]
    (chart,) = history.curves([{"step": step, "loss": float(step)} for step in range(1, 401)])
    assert chart["series"][0]["steps"] == list(range(1, 401))


def test_options_are_shown_as_they_are_typed():
    values = {"a.b.c": None, "a.d": [1, 2], "e": "tëxt", "f": True, "g": 0.5, "h": ["ü"]}
    shown = history.options(SimpleNamespace(by_name=lambda: values))  # pyright: ignore[reportArgumentType]
    assert shown == {"a.b.c": "null", "a.d": "[1, 2]", "e": "tëxt", "f": "true", "g": "0.5", "h": '["ü"]'}


@pytest.mark.parametrize(("p", "decided"), [(0.049, True), (0.05, False), (0.9, False)])
def test_a_difference_is_decided_below_five_percent(p, decided):
    one = {"with": "raw", "difference": 0.25, "interval": [0.125, 0.5], "p": p}
    rows = [{"word": "linear SVM", "protocol": {"compared": one}}, {"word": "NMI", "protocol": {}}]
    assert history.compared(rows) == [
        {"word": "linear SVM", "decided": decided, "with": "raw", "difference": 0.25, "interval": [0.125, 0.5]}
    ]


def test_metrics_of_a_page_say_of_what_they_are_and_whether_they_are_shares(tmp_path):
    run = Run.create(tmp_path / "run", tiny.config(train__steps=8), replace(GREY, shape=(1, 8, 8)))
    write_json(run.evaluations / "summary.json", [Metric("svm", 0.5), Metric("raw/effective_rank", 3), Metric("own_thing", 1)])
    found = [(row["of"], row["word"], row["key"], row["share"]) for row in history.metrics(run, 8)]
    assert found == [
        ("learnt", "linear SVM", "svm", True),
        ("raw", "effective rank", "effective_rank", False),
        ("learnt", "own thing", "own_thing", False),
    ]
    assert history.metrics(run, 7) == []  # the table is of the last step


@pytest.mark.parametrize(
    "found",
    [{"step": 8, "better": 3, "sentence": "x"}, {"step": 8, "better": True}, {"step": 8, "better": None, "sentence": 1}],
)
def test_a_verdict_that_is_none_is_left_out(tmp_path, found):
    run = Run.create(tmp_path / "run", tiny.config(), replace(GREY, shape=(1, 8, 8)))
    assert history.verdict(run, 8) is None
    run.evaluations.mkdir(parents=True, exist_ok=True)
    (run.evaluations / "verdict.json").write_text(json.dumps(found))
    assert history.verdict(run, 8) is None


def test_rows_that_are_no_rows_are_left_out(tmp_path):
    run = Run.create(tmp_path / "run", tiny.config(), replace(GREY, shape=(1, 8, 8)))
    assert run.rows_after(-1) == []
    run.metrics.write_text('{"step": 1, "loss": 2.5}\n[3]\n{"loss": 1}\n{"step": "2"}\n{"step": 3}\n{"step": 4, "lo')
    assert run.rows_after(-1) == [{"step": 1, "loss": 2.5}, {"step": 3}]


@pytest.mark.parametrize(("paths", "names"), [
    (["a/one", "b/two"], ["one", "two"]), (["a/one", "b/one"], ["a/one", "b/one"]),
    (["x/a/one", "y/a/one", "y/a/two"], ["x/a/one", "y/a/one", "y/a/two"]), (["a/one"], ["one"]),
    (["a/one", "a/one"], ["one", "one"]),
])  # fmt: skip
def test_runs_have_as_much_of_their_path_as_tells_them_apart(tmp_path, paths, names):
    runs = [SimpleNamespace(folder=tmp_path / path) for path in paths]
    assert names_of(runs) == names  # pyright: ignore[reportArgumentType]


def test_a_page_shows_as_much_as_was_asked_for(monkeypatch, tmp_path):
    seen = []
    write = lambda target, shown, limits, say: seen.append(limits) or target.write_text("page")  # noqa: E731
    monkeypatch.setattr("sao.report.build.write_report", write)
    monkeypatch.setattr("sao.cli.report._opened", lambda *given: None)
    monkeypatch.setattr("sao.report.layout.check_umap", lambda: None)
    run = Run.create(tmp_path / "run", tiny.config(), replace(GREY, shape=(3, 8, 8)))
    words = ["report", str(run.folder), "--points", "30", "--clusters", "4", "--layout", "umap", "--channels", "3,2,1"]
    assert main(words) == main(words[:2]) == 0
    assert seen == [Limits(30, clusters=4, umap=True, channels=(2, 1, 0)), Limits()]


class Folder:
    """Stands for the files of a folder: all of one size."""

    def __init__(self, side: int) -> None:
        self.side = side

    def largest_side(self, names) -> int:
        return self.side

    def read(self, names, side):
        draws = np.random.default_rng(0)
        return SimpleNamespace(tiles=draws.integers(0, 256, (len(names), side, side, 3), dtype=np.uint8))


@pytest.fixture
def priced(monkeypatch):
    """A price of so many seconds for each step of a run of so many steps."""

    def price(seconds: float, steps: int, count: int = 20, side: int = 40):
        config, seen = load_preset("own", {"train.steps": str(steps)}), {}
        monkeypatch.setattr(explore, "with_suited_start", lambda *given: SimpleNamespace(config=given[0], given=given[2]))

        chosen = lambda own, train, given: seen.update(samples=len(train), size=train.shape) or (config, [])  # noqa: E731
        monkeypatch.setattr(explore, "choose_options", chosen)
        monkeypatch.setattr(explore, "step_cost", lambda *given, **more: seen.update(more) or SimpleNamespace(seconds=seconds))
        images = Images(np.zeros((count, 8, 8, 3), np.uint8), None, [f"{i}.png" for i in range(count)])
        return (*explore.training_price("my photos", "photos", images, Folder(side)), seen)  # pyright: ignore

    return price


@pytest.mark.parametrize(
    ("seconds", "steps", "said"),
    [
        (0.25, 2400, "About 10 minutes on this machine: 2,400 steps of 0.25 s."),
        (0.001, 100, "About 1 minute on this machine: 100 steps of 0.001 s."),
        (0.0123, 1000, "About 1 minute on this machine: 1,000 steps of 0.012 s."),  # rounded down, but never to nothing
        (0.9, 100, "About 2 minutes on this machine: 100 steps of 0.9 s."),
        (1.0, 7140, "About 119 minutes on this machine: 7,140 steps of 1 s."),
        (1.0, 7200, "About 2 hours on this machine: 7,200 steps of 1 s."),
        (1.5, 7200, "About 3 hours on this machine: 7,200 steps of 1.5 s."),
    ],
)
def test_a_training_is_priced_in_minutes_and_from_two_hours_on_in_hours(priced, seconds, steps, said):
    command, cost, seen = priced(seconds, steps)
    assert cost == said
    assert command == "sao train --data 'my photos' --out runs/photos"
    assert seen["affordable"] == 1.0


def test_what_is_priced_is_what_a_training_would_see(priced):
    assert [priced(0.1, 10, count)[2]["samples"] for count in (20, 300, 255, 257)] == [18, 270, 230, 231]  # without a tenth
    for side, size in ((8, 8), (20, 16), (500, 64)):
        size = min(size, explore.LARGEST_ON_CPU)
        assert priced(0.1, 10, side=side)[2]["size"] == (3, size, size)


@pytest.mark.parametrize(("labelled", "bad", "said"), [
    (True, 0, "1,200 images in 2 subfolders, compared by patches. Nothing was trained."),
    (False, 0, "1,200 images, compared by patches. Nothing was trained."),
    (False, 1, "1,200 images, compared by patches. Nothing was trained. 1 other file could not be used."),
    (True, 2000,
     "1,200 images in 2 subfolders, compared by patches. Nothing was trained. 2,000 other files could not be used."),
])  # fmt: skip
def test_the_page_of_a_folder_says_how_many_images_there_are(monkeypatch, tmp_path, labelled, bad, said):
    monkeypatch.setattr(explore, "training_price", lambda path, name, *rest: (f"train {name}", "cost"))
    labels = np.arange(1200) % 2 if labelled else None
    images = Images(np.zeros((1200, 8, 8, 1), np.uint8), labels, None, ["a", "b"] if labelled else None)
    features = np.arange(2400.0).reshape(1200, 2)
    opened = explore.Opened(images, [Skipped("x", "y")] * bad, features, "patches", Folder(8))  # pyright: ignore
    found = explore.explored(str(tmp_path / "holiday"), opened, 100)
    assert found.said[0] == said
    assert (found.name, found.train, found.cost) == ("holiday", "train holiday", "cost")
    assert len(found.gallery) == len(found.features) == 100
    np.testing.assert_array_equal(found.features, features[found.gallery.rows[0]])


def test_a_table_escapes_its_cells_and_shows_titles_where_there_are_some():
    found = table([["a<b", "1"], ["c", "2"]], ["x", "y&z"], [["", 'say "so"'], ["first"]])
    assert found.splitlines() == [
        "<table>",
        "<tr><th>x</th><th>y&amp;z</th></tr>",
        '<tr><td>a&lt;b</td><td title="say &quot;so&quot;">1</td></tr>',
        '<tr><td title="first">c</td><td>2</td></tr>',
        "</table>",
    ]
    assert table([["a"]]) == "<table>\n<tr><td>a</td></tr>\n</table>"


def test_the_table_of_metrics_shows_the_protocol_of_each_representation():
    metrics = [
        Metric("svm", 0.5, None, {"C": 1, "n_test": 30}),
        Metric("raw/svm", 0.25, None, {"C": 2}),
        Metric("raw/nmi", float("nan"), None, {"caution": "a<b"}),
    ]
    assert metric_table(metrics, "so & so").splitlines() == [
        "<table>",
        "<tr><th></th><th>svm</th><th>nmi</th></tr>",
        '<tr><td>learnt</td><td title="C: 1, n_test: 30">0.500</td><td>–</td></tr>',
        '<tr><td>raw</td><td title="C: 2">0.250</td><td title="caution: a&lt;b">–</td></tr>',
        "</table>",
        "<p>– nmi: a&lt;b</p>",
        "<p>so &amp; so</p>",
    ]
    assert not metric_table(metrics[:2]).endswith("<p></p>")


def sheet(pixels=None) -> ClusterSheet:
    clusters, cosines = np.array([1, 0, 1, 1, 0]), np.array([0.2, 0.9, 0.8, 0.99, 0.9])
    return ClusterSheet(list("abcde"), clusters, cosines, np.array([False, False, False, True, False]), 3, pixels)


def test_a_cluster_sheet_names_the_most_central_first_and_no_outlier():
    found = sheet()
    assert found.counts.tolist() == [2, 3, 0]
    assert [found.central(cluster).tolist() for cluster in range(3)] == [[1, 4], [2, 0], []]
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in found._repr_html_().splitlines()[1:-1]]
    assert cells == [["cluster", "most central"], ["0: 2 images", "b, e"], ["1: 3 images", "c, a"], ["2: 0 images", ""]]
    one = ClusterSheet(["a"], np.array([0]), np.ones(1), np.zeros(1, bool), 1)
    assert "0: 1 image<" in one._repr_html_()
    many = ClusterSheet(list(map(str, range(20))), np.zeros(20, int), np.linspace(0, 1, 20), np.zeros(20, bool), 1)
    assert many.central(0).tolist() == list(range(19, 7, -1))  # twelve of them


def test_the_picture_of_clusters_has_a_row_for_each_and_white_where_there_is_none():
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1).repeat(32, 1).repeat(32, 2) * 10
    shown = np.asarray(sheet(pixels).picture().convert("L"))
    rows, columns = 2 + 34 * np.arange(3) + 16, 120 + 2 + 34 * np.arange(12) + 16
    expected = np.full((3, 12), 255)
    expected[0, :2], expected[1, :2] = (10, 40), (20, 0)
    np.testing.assert_array_equal(shown[np.ix_(rows, columns)], expected)


def test_clusters_along_the_manifold_have_cosines_with_their_own_mean():
    draws = np.random.default_rng(0)
    features = (np.repeat(np.eye(3), 20, 0) * 4 + draws.normal(0, 0.3, (60, 3))).astype(np.float32)
    images = Images(np.zeros((60, 8, 8, 1), np.uint8))
    found = ClusterSheet.of(features, images, 3, manifold="spectral")
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    for cluster in range(3):
        mean = units[found.clusters == cluster].mean(axis=0)
        expected = units[found.clusters == cluster] @ (mean / np.linalg.norm(mean))
        np.testing.assert_allclose(found.cosines[found.clusters == cluster], expected, rtol=1e-5)
    assert list(found.names[:2]) == ["0", "1"]
