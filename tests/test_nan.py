"""A NaN wins nothing: every comparison that decides something refuses it, ranks it last, or counts it as the bad case."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

import sao
from sao.cli.main import main
from sao.core import agreement
from sao.core import jacobian as smoothness
from sao.data.dataset import Images
from sao.errors import InputError
from sao.estimator import StructuralEmbedding
from sao.evaluation import Features, Metric, best_kmeans, compare, evaluate, frechet_distance, kmeans, memorised, svm
from sao.evaluation import clusters as clustered
from sao.evaluation import outliers as outlying
from sao.evaluation.comparison import paired
from sao.evaluation.extract import extract
from sao.evaluation.inputs import feature_matrix
from sao.evaluation.kmeans import SphericalKMeans
from sao.evaluation.neighbours import nearest
from sao.evaluation.outliers import outliers
from sao.evaluation.probe import Probe
from sao.evaluation.result import accuracy, write_json
from sao.evaluation.verdict import verdict_of
from sao.export.check import BATCHES, check
from sao.export.whole import Whole
from sao.methods import self_conditioned
from sao.methods.structural import Structural
from sao.reproduce.study import best as best_rate
from sao.reproduce.table import _search, read_result
from sao.training import checkpoint, validation
from sao.training.data_facts import _alike
from sao.training.device_check import Comparison
from sao.training.loop import Diverged

NAN, INF = math.nan, math.inf
DRAWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
LABELS = np.arange(60) % 3


def with_nan(values: np.ndarray = DRAWS) -> np.ndarray:
    values = values.copy()
    values[7, 1] = NAN
    return values


# --- the one function that decides whether two arrays agree --------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "apart"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [2.0, -4.0], 0.25),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, 2.0], [NAN, 2.0], INF),
        ([NAN, NAN], [NAN, NAN], INF),
        ([1.0, INF], [1.0, INF], 0.0),
        ([4.0, INF], [5.0, INF], 0.25),
        ([1.0, INF], [1.0, -INF], INF),
        ([1.0, INF], [1.0, 3e38], INF),
        ([1.0, 2.0], [1.0, INF], INF),
        ([1.0, 2.0], [1.0, 2.0, 3.0], INF),
        ([1.0], [[1.0]], INF),
        ([], [], 0.0),
    ],
)
def test_difference_is_zero_only_for_arrays_that_agree(expected, found, apart):
    assert agreement.difference(np.array(expected), np.array(found)) == apart
    assert agreement.difference(torch.tensor(expected), torch.tensor(found)) == pytest.approx(apart)


def test_difference_of_bytes_does_not_wrap_around():
    assert agreement.difference(np.array([2], np.uint8), np.array([255], np.uint8), least=255) == 253 / 255


@pytest.mark.parametrize("order", [[NAN, 1.0, 2.0], [1.0, NAN, 2.0], [1.0, 2.0, NAN], [2.0, 2.0, NAN], [NAN, -INF, NAN]])
def test_best_is_never_nan(order):
    expected = next(i for i, value in enumerate(order) if value == max(one for one in order if not math.isnan(one)))
    assert agreement.best(dict(enumerate(order))) == expected


def test_best_of_nan_alone_is_refused():
    with pytest.raises(InputError, match="every value is NaN"):
        agreement.best({"a": NAN, "b": NAN})


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_one_broken_number_of_a_sample_is_enough_to_refuse_it(broken):
    rows = DRAWS.reshape(60, 2, 2).copy()
    agreement.check_finite("the values", rows, "look")
    rows[[7, 9], 1, 0] = broken
    with pytest.raises(InputError, match=r"^the values of 2 of 60 samples hold NaN or infinity: look$"):
        agreement.check_finite("the values", rows, "look")


# --- an export is checked at several lengths of the batch ----------------------------------------------------------------


def whole_of(expected) -> Whole:
    return Whole(torch.nn.Identity(), torch.zeros(3, 4), expected, "rows", "features", "encoder")


DOUBLED = whole_of(lambda x: 2 * x)


def test_batches_of_one_and_of_several_odd_lengths_are_tried():
    assert 1 in BATCHES
    assert sum(length & (length - 1) != 0 for length in BATCHES) >= 2  # no powers of two


@pytest.mark.parametrize("count", [1, 3, 64])
def test_an_export_is_tried_at_every_length_also_with_few_inputs(count):
    seen = []
    check(DOUBLED, lambda x: (seen.append(len(x)), 2 * x)[1], np.resize(DRAWS, (count, 4)))
    assert set(seen) == {*BATCHES, count}


@pytest.mark.parametrize("length", [*BATCHES, 60])
@pytest.mark.parametrize("only", [True, False])
def test_an_export_that_is_right_or_wrong_at_one_length_alone_is_refused(length, only):
    with pytest.raises(InputError, match="differs from the run"):
        check(DOUBLED, lambda x: 2 * x if (len(x) == length) == only else 2.01 * x, DRAWS)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
@pytest.mark.parametrize(
    "broken", [lambda x: np.full(x.shape, NAN), lambda x: x[:, :2], lambda x: np.where(x > x.min(), x, NAN)]
)
def test_an_export_that_gives_nan_or_another_shape_is_refused(broken, kind):
    with pytest.raises(InputError, match="differs from the run by inf"):
        check(whole_of(lambda x: x.astype(kind)), broken, np.abs(DRAWS) * 50)


# --- what refuses a NaN --------------------------------------------------------------------------------------------------


REFUSED = {
    "features at the door of the evaluator": lambda: feature_matrix("features", with_nan()),
    "features whose squares overflow": lambda: feature_matrix("features", DRAWS * 1e20),
    "features of a network": lambda: extract(lambda x: x / 0 * 0, tiny.dataset().test, torch.device("cpu")),
    "k-means": lambda: best_kmeans(with_nan(), 3),
    "assignment to centroids": lambda: SphericalKMeans(torch.from_numpy(with_nan()), 0.0, 1).assign(DRAWS),
    "outliers": lambda: outliers(with_nan()),
    "copies of training samples": lambda: memorised(with_nan(), DRAWS),
    "nearest keys": lambda: nearest(torch.from_numpy(DRAWS), torch.from_numpy(with_nan()), 2),
    "nearest of a query": lambda: nearest(torch.from_numpy(with_nan()), torch.from_numpy(DRAWS), 2),
    "classes by SVM": lambda: svm.LinearSVM(torch.full((5, 3), NAN), 1.0).predict(torch.from_numpy(DRAWS)),
    "classes by probe": lambda: Probe(torch.full((4, 3), NAN), torch.zeros(3), 1, 0.0).predict(torch.from_numpy(DRAWS)),
    "an accuracy that was not measured": lambda: compare(Metric("svm", NAN), {"raw": accuracy("svm", LABELS > 0, {})}),
    "a reference that was not measured": lambda: compare(accuracy("svm", LABELS > 0, {}), {"raw": Metric("svm", NAN)}),
    "learning rates": lambda: best_rate({"0.1": NAN, "0.01": NAN}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name):
    with pytest.raises(InputError) as stop:
        REFUSED[name]()
    assert "\n" not in str(stop.value)


def test_an_audit_refuses_a_network_that_is_nan_at_times():
    calls = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x * NAN if len(calls) == 2 else x

    with pytest.raises(FloatingPointError, match="function returned NaN or inf"):
        smoothness.jacobian_audit(function, torch.ones(3, 2))


# --- what ranks a NaN last, or counts it as the bad case -----------------------------------------------------------------


def runs_with(sums: list[float]) -> list[SphericalKMeans]:
    centroids = torch.nn.functional.normalize(torch.from_numpy(DRAWS), dim=1)
    return [SphericalKMeans(centroids[3 * i : 3 * i + 3], total, i) for i, total in enumerate(sums)]


SUMS = [NAN, 2.0, 1.0, NAN]


def test_the_best_start_of_kmeans_is_not_nan(monkeypatch):
    monkeypatch.setattr(kmeans, "spherical_kmeans", lambda *_: runs_with(SUMS))
    monkeypatch.setattr(clustered, "spherical_kmeans", lambda *_: runs_with(SUMS))
    assert best_kmeans(DRAWS, 3).iterations == 1
    expected = runs_with(SUMS)[1].assign(DRAWS)
    found = {metric.name: metric for metric in clustered.clustering(DRAWS, LABELS, repeats=4)}
    right = found["kmeans_best"].right
    assert right is not None
    np.testing.assert_array_equal(right, clustered.matched_samples(expected, LABELS))


def test_the_best_start_of_a_reclustering_is_not_nan(monkeypatch):
    """Each run takes its squared distances after it has settled: those of the first are NaN."""
    runs = iter([torch.zeros(60, dtype=torch.long), torch.from_numpy(LABELS)])
    settled = []
    monkeypatch.setattr(self_conditioned, "settled", lambda *_: settled.append(next(runs)) or settled[-1])
    distances = self_conditioned.nearest
    broken = lambda *given: (distances(*given)[0], torch.full((60,), NAN if len(settled) == 1 else 1.0))  # noqa: E731
    monkeypatch.setattr(self_conditioned, "nearest", broken)
    found = self_conditioned.cluster_anew(torch.from_numpy(DRAWS), 3, 2, torch.Generator().manual_seed(0))
    assert torch.equal(found, torch.from_numpy(LABELS))


def test_the_cost_of_an_svm_is_not_one_without_a_score(monkeypatch):
    monkeypatch.setattr(svm, "_held_out_scores", lambda *_: {1e-5: NAN, 1e-2: 0.5, 1.0: NAN})
    assert svm.linear_svm(DRAWS, LABELS, DRAWS, LABELS).protocol["C"] == 1e-2


def test_the_best_rate_is_not_one_without_a_score():
    scores = {"0.1": NAN, "0.01": 0.5, "0.001": NAN}
    assert best_rate(scores) == "0.01"
    assert "**0.01: 50.0**" in _search([{"row": "r", "data": "d", "scores": scores}])


@pytest.mark.parametrize("order", [("raw", "pca", "untrained"), ("untrained", "pca", "raw")])
def test_no_verdict_rests_on_a_nan(order):
    """Neither ours nor a reference, in whatever order they come."""
    right = np.arange(200) % 2 == 0
    for broken in ("svm", *(f"{name}/svm" for name in order)):
        names = ["svm", *(f"{name}/svm" for name in order)]
        metrics = [Metric(name, NAN) if name == broken else accuracy(name, right, {}) for name in names]
        assert verdict_of(metrics).better is None
    facts = {"dimensions": 4}
    plain = {"effective_rank": 3.0, "cluster_agreement": 0.5, **{f"{name}/cluster_agreement": 0.4 for name in order}}
    for broken in ("effective_rank", "cluster_agreement"):
        found = verdict_of([Metric(name, NAN if name == broken else value, None, facts) for name, value in plain.items()])
        assert found.better is None
        assert "nan" not in found.sentence
    values = plain | {f"{order[0]}/cluster_agreement": NAN, f"{order[1]}/cluster_agreement": 0.45}
    sentence = verdict_of([Metric(name, value, None, facts) for name, value in values.items()]).sentence
    assert f"than those of {order[1]} (0.45)" in sentence


def test_a_difference_of_unknown_error_is_not_decided():
    found = paired(np.array([[True], [True]]), np.array([[False], [False]]))
    assert found.p == 1
    assert found.sampling_error == INF


def test_a_reference_of_one_sample_does_not_decide():
    one = compare(accuracy("kmeans", np.ones((2, 1), bool), {}), {"raw": accuracy("kmeans", np.zeros((2, 1), bool), {})})
    assert not one.decided


@pytest.mark.parametrize("option", ["log__evaluate_every", "log__sample_every"])
def test_nothing_is_measured_or_drawn_with_weights_that_overflowed(option, tmp_path, monkeypatch):
    """The update of step 2 overflows; no checkpoint is due before step 8."""
    step = Structural.step

    def overflowing(self, batch, number):
        scalars = step(self, batch, number)
        if number == 1:
            next(self.ema_generator.parameters()).data.fill_(INF)
        return scalars

    monkeypatch.setattr(Structural, "step", overflowing)
    with pytest.raises(Diverged, match=r"^step 2: ema_generator\S* became NaN or inf by the update"):
        tiny.trained(tmp_path / "run", None, log__checkpoint_every=8, **{option: 2})
    assert not list((tmp_path / "run").rglob("step-*"))


def test_a_sample_whose_distance_is_nan_is_an_outlier(monkeypatch):
    distances = outlying._distances
    monkeypatch.setattr(outlying, "_distances", lambda table: np.where(np.arange(60) == 7, NAN, distances(table)))
    assert outliers(DRAWS)[7]
    assert not outliers(DRAWS).all()


def test_a_row_of_a_table_leaves_out_what_was_not_finite(tmp_path):
    """It is null in a file that sao wrote; NaN is no JSON, and refused."""
    run: Any = SimpleNamespace(evaluation=tmp_path / "eval.json", folder=tmp_path)
    write_json(run.evaluation, [Metric("a", NAN), Metric("b", INF), Metric("c", 1.0)])
    assert list(read_result(run)) == ["c"]
    run.evaluation.write_text(run.evaluation.read_text().replace("null", "NaN", 1))
    with pytest.raises(InputError, match="holds no metrics"):
        read_result(run)


def test_a_spread_or_a_distance_of_nan_counts_as_collapsed():
    for name, more in ((validation.SPREAD, {}), (validation.DISTANCE, {validation.LENGTH: 1.0})):
        seen = validation.Collapse()
        said = [seen.seen(step, {name: NAN, **more}) for step in range(validation.PATIENCE)]
        assert [text is not None for text in said] == [False] * (validation.PATIENCE - 1) + [True]


def test_a_device_does_not_agree_by_a_nan():
    assert not Comparison({"first": 0.0, "second": NAN}, {"weight": 0.0}).agrees
    assert "sin" in Comparison({}, {}, {"sin": NAN}).wrong_operators


def test_data_of_nan_is_not_the_same_data():
    assert not _alike([(NAN, 0.0, None)], [(NAN, 0.0, None)])


def test_a_frechet_distance_of_nan_is_not_zero():
    one, eye = torch.full((2,), NAN), torch.eye(2)
    assert math.isnan(frechet_distance(one, eye, one, eye))


# --- runs whose weights are NaN ------------------------------------------------------------------------------------------


def poisoned(folder: Path, start: str, value: float, rows: int | None = None) -> None:
    """Put a number into weights whose names begin so, and make the checksums match."""
    (path,) = checkpoint.steps_in(folder / "checkpoints")
    tensors = load_file(path / checkpoint.METHOD)
    chosen = [name for name, tensor in tensors.items() if name.startswith(start) and tensor.is_floating_point()]
    assert chosen
    for name in chosen:
        tensors[name].view(-1)[:rows] = value
    save_file(tensors, path / checkpoint.METHOD)
    state = json.loads((path / checkpoint.STATE).read_text())
    state["checksums"][checkpoint.METHOD] = checkpoint._checksum(path / checkpoint.METHOD)
    (path / checkpoint.STATE).write_text(json.dumps(state))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("nan") / "run", train__steps=2, log__checkpoint_every=2)[0].folder


@pytest.fixture
def run(trained, tmp_path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


COMMANDS = {
    "embed": ["embed", "RUN", "digits", "-o", "out/f.npz"],
    "embed csv": ["embed", "RUN", "digits", "-o", "out/f.csv"],
    "cluster": ["cluster", "RUN", "digits", "-k", "3", "-o", "out/groups"],
    "cluster auto": ["cluster", "RUN", "digits", "-k", "auto", "-o", "out/groups"],
    "eval": ["eval", "RUN", "--data", "digits", "--metrics", "knn1", "-o", "out/e.json"],
    "export": ["export", "RUN", "-o", "out/e.pt2"],
    "export folder": ["export", "RUN", "-o", "out/plain"],
    "ship": ["ship", "RUN", "-o", "out/copy"],
    "ship half": ["ship", "RUN", "-o", "out/copy", "--half"],
    "sample": ["sample", "RUN", "-o", "out/x.png"],
    "sample folder": ["sample", "RUN", "-o", "out/x"],
    "export generator": ["export", "RUN", "--generator", "-o", "out/g.pt2"],
    "sample metrics": ["eval", "RUN", "--data", "digits", "--metrics", "memorised", "-o", "out/e.json"],
    "report": ["report", "RUN", "-o", "out/page.html"],
}
GENERATOR = ("sample", "sample folder", "export generator", "sample metrics")


def refuses(name: str, run: Path, tmp_path: Path, monkeypatch, capsys) -> str:
    """Exit code 2, one line, no file; returns the line."""
    monkeypatch.chdir(tmp_path)
    before = sorted(path for path in run.rglob("*") if path.is_file())
    assert main([str(run) if word == "RUN" else word for word in COMMANDS[name]]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sao: ") and "warning" not in line]
    assert len(lines) == 1
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(path for path in run.rglob("*") if path.is_file()) == before
    return lines[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_with_one_nan_weight_is_refused(name, run, tmp_path, monkeypatch, capsys):
    poisoned(run, "ema_generator" if name in GENERATOR else "ema_discriminator", NAN, rows=1)
    said = refuses(name, run, tmp_path, monkeypatch, capsys)
    assert "step-00000002 holds NaN or infinity in ema_" in said
    assert "take another checkpoint of the run, or train again with a lower learning rate" in said


@pytest.mark.parametrize("name", [name for name in COMMANDS if "csv" not in name and "auto" not in name])
def test_a_run_whose_weights_overflow_is_refused(name, run, tmp_path, monkeypatch, capsys):
    """Finite weights, features and samples that are not."""
    poisoned(run, "ema_generator" if name in GENERATOR else "ema_discriminator", 3e38)
    said = refuses(name, run, tmp_path, monkeypatch, capsys)
    assert "samples hold NaN or infinity: the weights are broken, so take another checkpoint, or train again" in said


def test_broken_weights_that_a_use_does_not_read_do_not_matter(run, tmp_path, monkeypatch):
    poisoned(run, "ema_generator", NAN)
    monkeypatch.chdir(tmp_path)
    assert main(["embed", str(run), "digits", "-o", "f.npz"]) == 0


def test_half_of_the_bits_that_overflow_are_not_kept(run, tmp_path, capsys):
    """Weights beyond 65,504: the copy would hold infinity, the run does not."""
    poisoned(run, "ema_generator", 1e5, rows=1)
    assert main(["ship", str(run), "-o", str(tmp_path / "whole")]) == 0
    assert main(["ship", str(run), "-o", str(tmp_path / "half"), "--half"]) == 2
    assert "the copy differs from the run by inf of the largest value, so it was not kept: leave --half out" in (
        capsys.readouterr().err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


def test_a_model_and_an_estimator_refuse_too(run):
    poisoned(run, "ema_discriminator", NAN)
    model = sao.load(run, device="cpu")
    for use in (
        lambda: model.embed(tiny.dataset().test),
        lambda: model.predict(tiny.dataset().test, k=3),
        lambda: model.method,
    ):
        with pytest.raises(InputError, match="holds NaN or infinity in"):
            use()
    fitted = StructuralEmbedding(n_clusters=2, steps=1, device="cpu").fit(DRAWS)
    with torch.no_grad():
        for parameter in fitted._exact.parameters():
            parameter.fill_(NAN)
    with pytest.raises(InputError, match="the features of 60 of 60 samples hold NaN or infinity"):
        fitted.transform(DRAWS)


# --- what else ended in a traceback, or in half a table ------------------------------------------------------------------


def test_embedding_nothing_is_one_line(trained):
    model = sao.load(trained, device="cpu")
    for nothing in (np.zeros((0, 8, 8, 1), np.uint8), Images(np.zeros((0, 8, 8, 1), np.uint8)), torch.zeros(0, 8, 8).byte()):
        with pytest.raises(InputError, match="there are no samples: give at least one"):
            model.embed(nothing)
        with pytest.raises(InputError, match="there are no samples: give at least one"):
            model.predict(nothing, k=2)


def test_features_of_different_widths_are_one_line(tmp_path, capsys):
    np.savez(tmp_path / "f.npz", x_train=DRAWS, y_train=LABELS, x_test=DRAWS[:, :3], y_test=LABELS)
    for more in ([], ["--metrics", "effective_rank"], ["-o", str(tmp_path / "e.json")]):
        said = tiny.refused(capsys, "eval", "--features", tmp_path / "f.npz", *more)
        assert "train_x has 4 dimensions but test_x has 3" in said
    assert not (tmp_path / "e.json").exists()


def test_references_of_different_widths_are_refused():
    whole, narrow = Features(DRAWS, LABELS), Features(DRAWS[:, :3], LABELS)
    with pytest.raises(InputError, match="dimensions"):
        evaluate(whole, whole, ["knn1"], reference={"raw": (whole, narrow)}, lenient=True)


@pytest.mark.parametrize("encoder", ["resnet", "vit", "biggan", "unet"])
def test_an_encoder_of_images_on_a_table_is_one_line(encoder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("t.csv", DRAWS, delimiter=",", header="a,b,c,d", comments="")
    tiny.refused(capsys, "train", "--data", "t.csv", "--encoder", encoder, "--out", "run")
    assert not Path("run").exists()
