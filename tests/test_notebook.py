"""In a notebook a run, a table of metrics and a sheet of clusters show themselves; the example does what it says."""

import json
import re
import resource
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tiny

import sao
from sao.data.dataset import Images, Vectors
from sao.evaluation.evaluator import Evaluation
from sao.evaluation.result import Metric
from sao.report.cluster_sheet import ClusterSheet

NOTEBOOK = Path(__file__).parents[1] / "docs" / "example.ipynb"


class Reader(HTMLParser):
    """Tags, and the text of every cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[dict] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return sao.load(tiny.trained(tmp_path_factory.mktemp("runs") / "run", train__steps=2)[0].folder)


def test_a_run_shows_what_was_trained_on_what(model):
    found = Reader(model._repr_html_())
    assert "structural" in found.texts
    assert "digits: 1437 samples of 1x8x8" in found.texts
    assert "2 of 2" in found.texts


def test_metrics_are_a_table_with_their_protocols():
    metrics = [Metric("kmeans", 0.5, None, {"seed": 3}), Metric("raw/kmeans", 0.25, None, {"seed": 4})]
    metrics.append(Metric("<b>x", float("nan"), None, {"caution": "too <few> rows"}))
    found = Reader(Evaluation(metrics, None, 10, 5)._repr_html_())
    assert {"learnt", "raw", "kmeans", "0.500", "0.250", "<b>x"} <= set(found.texts)
    assert "b" not in found.tags
    titled = dict(re.findall(r'<td title="(seed: .)">([^<]*)', Evaluation(metrics, None, 10, 5)._repr_html_()))
    assert titled == {"seed: 3": "0.500", "seed: 4": "0.250"}  # each at its own number
    assert any("too <few> rows" in text for text in found.texts)


def test_the_one_evaluator_measures_a_model(model):
    found = model.evaluate(tiny.few())
    assert {"kmeans", "svm", "raw/svm"} <= {metric.name for metric in found.metrics}
    assert found.verdict is not None
    assert (found.n_train, found.n_test) == (400, 110)


def test_a_sheet_of_clusters_is_a_picture_or_a_table(model):
    samples = tiny.dataset().test
    assert isinstance(samples, Images)
    sheet = model.clusters(samples, k=4)
    assert sheet.counts.sum() == 360
    found = Reader(sheet._repr_html_())
    assert found.tags == ["img"]
    assert found.attributes[0]["src"].startswith("data:image/png;base64,")
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    names = [f"<i>{index}" for index in range(30)]
    found = Reader(ClusterSheet.of(rows, Vectors(rows, names=names), 2)._repr_html_())
    assert "i" not in found.tags
    assert any("<i>" in text for text in found.texts)


def cells() -> list[dict]:
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_the_example_was_executed():
    assert len(cells()) >= 4
    for number, cell in enumerate(cells(), start=1):
        assert cell["execution_count"] == number
    shown = [output for cell in cells() for output in cell["outputs"] if "text/html" in output.get("data", {})]
    assert len(shown) >= 3


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    """Its cells in order, with few steps and images; what ends a cell shows itself."""
    import ast

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sao.data.named.digits", tiny.few)
    names: dict = {}
    shown = 0
    for cell in cells():
        tree = ast.parse("".join(cell["source"]).replace("steps=400", "steps=3"))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            shown += hasattr(value, "_repr_html_")
    said = capsys.readouterr().out
    assert "next          sao.load('runs/notebook').embed(data)" in said, "no command can name what is in memory"
    assert shown >= 3


@pytest.mark.slow
def test_the_example_runs_from_top_to_bottom_in_five_minutes_of_a_processor(tmp_path, monkeypatch):
    """As a person runs it, in a kernel of its own."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    nbclient.NotebookClient(notebook, timeout=3000, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 300
    (shape,) = notebook.cells[-1].outputs
    assert shape["data"]["text/plain"] == "(5, 128)"
