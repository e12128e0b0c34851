"""sao eval, and the table at the end of a run, as a person types them: on a run of eight real steps, and on photographs."""

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

import sao
from sao.cli import evaluating
from sao.cli.main import main
from sao.data.dataset import Images
from sao.evaluation import Metric
from sao.report.build import Limits, Shown, _collected, _Making
from sao.training import log
from sao.training.model import Model
from sao.training.run_folder import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("runs") / "tiny")[0].folder


def test_everything_in_one_row_for_each_representation(run, tmp_path, capsys):
    target = tmp_path / "all.json"
    said = tiny.said(capsys, "eval", run, "--rows", "200", "-o", target)
    lines = said.splitlines()
    assert lines[0].startswith("at most 10 minutes (--budget)")
    assert lines[1] == "fitted to 200 of 1437 training samples, scored on 200 held-out ones"
    rows = [line.split()[1] for line in lines if line.startswith("| ") and line[2] != " "]
    tables = len(rows) // 5
    assert tables <= 3
    assert rows == tables * ["learnt", "raw", "pca", "untrained", "patches"]
    assert len(lines) < 31
    assert "the baselines (the best of raw, pca, untrained, patches)" in lines[-1]
    metrics = tiny.metrics(target)
    named = "svm kmeans kmeans_best manifold kmeans_strict nmi knn1 probe probe_1pct effective_rank"
    assert set(named.split()) <= metrics.keys()
    assert {"raw/kmeans", "pca/svm", "untrained/knn5", "patches/svm", "raw/probe_10pct"} <= metrics.keys()
    assert metrics["kmeans"]["std"] is not None
    assert metrics["kmeans"]["protocol"]["weights"] == "ema"
    assert metrics["svm"]["protocol"]["compared"]["corrected_for"] == 4
    assert {metric["protocol"]["n_test"] for metric in metrics.values()} == {200}
    assert {metric["protocol"].get("n_train", 200) for metric in metrics.values()} == {200}


def test_features_of_all_layers_are_judged_beside_those_of_the_untrained_network(run, tmp_path, capsys):
    """Against an oracle: the features that `embed` makes, given to `eval --features`."""
    target, file, again = tmp_path / "layers.json", tmp_path / "features.npz", tmp_path / "again.json"
    few = str(tiny.save_few(tmp_path / "few.npz"))
    assert main(["eval", str(run), "--data", few, "--feature", "layers", "--rows", "all", "-o", str(target)]) == 0
    found = tiny.metrics(target)
    assert {found[name]["protocol"]["feature"] for name in ("svm", "untrained/svm")} == {"layers"}
    model, data = sao.load(run), tiny.few()
    x_train, x_test = (model.embed(part, feature="layers") for part in (data.train, data.test))
    np.savez(file, x_train=x_train, y_train=data.train.labels, x_test=x_test, y_test=data.test.labels)  # pyright: ignore
    assert main(["eval", "--features", str(file), "--metrics", "svm,knn1", "-o", str(again)]) == 0
    assert all(tiny.metrics(again)[name]["value"] == found[name]["value"] for name in ("svm", "knn1"))


def test_clusters_along_the_manifold_are_found_as_asked(run, tmp_path, monkeypatch, capsys):
    """UMAP, which takes half a minute to import and compile, has a test of its own: here its place is taken."""
    if importlib.util.find_spec("umap") is None:
        pytest.skip("umap-learn is not installed")
    called = []
    monkeypatch.setattr(
        "sao.evaluation.manifold._umap_clusters", lambda x, k, seed: called.append(k) or torch.arange(len(x)) % k
    )
    for algorithm, words, calls in (("spectral", "spectral on the graph", []), ("umap", "UMAP (10 dimensions", [10])):
        target = tmp_path / f"{algorithm}.json"
        assert main(["eval", str(run), "--metrics", "manifold", "--manifold", algorithm, "-o", str(target)]) == 0
        assert tiny.metrics(target)["manifold"]["protocol"]["algorithm"].startswith(words)
        assert called == calls


def test_a_score_that_the_installed_inception_cannot_give_is_named(run, monkeypatch, capsys):
    fid = Metric("fid", 3.0, None, {})
    monkeypatch.setattr("sao.cli.evaluating.evaluate_generation", lambda *_, **__: [fid])
    assert main(["eval", str(run), "--metrics", "is,fid", "--samples", "4"]) == 0
    assert "Inception Score left out" in capsys.readouterr().err
    assert main(["eval", str(run), "--metrics", "fid", "--samples", "4"]) == 0
    assert "Inception Score" not in capsys.readouterr().err


@pytest.mark.parametrize("usual", ["backbone", "layers"])
def test_the_page_is_made_anew_for_the_feature_that_it_shows(run, usual, monkeypatch):
    """Photographs are shown by all layers, whatever else is evaluated of them."""
    monkeypatch.setattr(Model, "usual_feature", usual)
    refreshed: list[str] = []
    for feature, more in (("backbone", []), ("layers", []), (usual, ["--weights", "raw"]), ("embedding", [])):
        monkeypatch.setattr(evaluating, "_refresh_page", lambda *given, feature=feature: refreshed.append(feature))
        assert main(["eval", str(run), "--metrics", "effective_rank", "--rows", "30", "--feature", feature, *more]) == 0
    assert refreshed == [usual]
    shown: list[str] = []
    monkeypatch.setattr("sao.report.history.metrics", lambda run, step, feature: shown.append(feature) or [])
    model = sao.load(run)
    _collected(Shown(Run(run), model, None, "run"), _Making(run / "report.html", 1, Limits(), lambda stage: None))
    assert shown == [usual]


def test_a_second_evaluation_adds_to_the_first_wherever_it_is_typed_and_the_run_lies(run, tmp_path, monkeypatch, capsys):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "eval" / "step-00000008-backbone-ema.json").unlink(missing_ok=True)
    assert main(["eval", str(copy), "--metrics", "knn1"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "run", "--metrics", "knn5"]) == 0
    copy.rename(tmp_path / "moved")
    for names in ("effective_rank", "knn1"):
        assert main(["eval", "moved", "--metrics", names]) == 0
    assert tiny.metrics(tmp_path / "moved/eval/step-00000008-backbone-ema.json").keys() == {"knn1", "knn5", "effective_rank"}


def test_chosen_metrics_and_their_protocols_are_in_the_file_without_those_of_another_run(run, tmp_path, capsys):
    target = tmp_path / "m.json"
    other = {"name": "ari", "value": 0.5, "std": None, "protocol": {"run": "elsewhere", "step": 8}}
    target.write_text(json.dumps([other]))
    said = tiny.said(capsys, "eval", run, "--metrics", "knn1,memorised", "--samples", "20", "-o", target)
    assert "fitted to 1437 training samples, scored on 360 held-out ones" in said
    assert tiny.metrics(target).keys() == {"knn1", "memorised"}
    assert tiny.metrics(target)["knn1"]["protocol"]["similarity"] == "cosine"


@pytest.mark.parametrize(
    "text", ["hello", "{}", "[1]", '[{"name": "knn1"}]', '[{"name": "a", "value": {}, "std": null, "protocol": {}}]']
)
def test_a_file_that_holds_something_else_is_left_alone(run, tmp_path, capsys, text):
    (tmp_path / "thesis.json").write_text(text)
    assert "holds no metrics" in tiny.refused(capsys, "eval", run, "--metrics", "knn1", "-o", tmp_path / "thesis.json")
    assert (tmp_path / "thesis.json").read_text() == text


def test_generated_samples_are_compared_with_held_out_ones_and_copies_are_of_training_ones(run, tmp_path, monkeypatch):
    """A distance to the training set would reward a generator that copies it."""
    distances = Mock(return_value=[Metric("fid", 1.0)])
    copies = Mock(return_value=SimpleNamespace(share=Metric("memorised", 0.0)))
    monkeypatch.setattr("sao.cli.evaluating.evaluate_generation", distances)
    monkeypatch.setattr("sao.cli.evaluating.memorised", copies)
    words = ["--metrics", "fid,memorised", "--samples", "20", "--seed", "3", "-o", str(tmp_path / "some.json")]
    assert main(["eval", str(run), *words]) == 0
    data, expected = tiny.dataset(), sao.load(run).sample(20, 3)
    assert isinstance(data.train, Images)
    assert isinstance(data.test, Images)
    (real, drawn, *_), (copied, reals) = distances.call_args.args, copies.call_args.args
    np.testing.assert_array_equal(real, data.test.pixels[:20])
    np.testing.assert_array_equal(reals, data.train.pixels)
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_array_equal(copied, expected)


def test_features_of_all_layers_of_a_named_data_set_are_embedded(run, tmp_path):
    assert main(["embed", str(run), "digits", "--feature", "layers", "-o", str(tmp_path / "features.npz")]) == 0
    found, model = np.load(tmp_path / "features.npz"), sao.load(run)
    assert (found["labels"].shape, len(found["features"])) == ((1797,), 1797)
    expected = [model.embed(part, feature="layers") for part in (tiny.dataset().train, tiny.dataset().test)]
    np.testing.assert_allclose(found["features"], np.concatenate(expected), rtol=1e-4, atol=1e-5)
    assert found["features"].shape[1] > model.embed(tiny.dataset().test).shape[1]


def test_features_of_one_split_are_not_scored_on_what_was_fitted(run, tmp_path, capsys):
    features, target = tmp_path / "f.npz", tmp_path / "f.json"
    assert main(["embed", str(run), "digits", "-o", str(features)]) == 0
    said = tiny.said(capsys, "eval", "--features", features, "--metrics", "knn1,svm", "-o", target)
    assert "1797 samples, cross-validated where labels are fitted to" in said
    found = tiny.metrics(target)
    assert found["knn1"]["value"] < 0.98  # with itself among the neighbours every sample is right
    assert found["knn1"]["protocol"]["split"] == "one split, 5-fold cross-validation"


@pytest.fixture(scope="module")
def other_digits(tmp_path_factory) -> Path:
    """Digits as PNG files of twice the size, in a folder for each class."""
    folder = tmp_path_factory.mktemp("data") / "other digits"
    test = tiny.dataset().test
    assert test.labels is not None
    pixels = ((test.inputs(slice(None)) + 1) * 127.5).round().byte().numpy()[:, 0]
    for index, (image, label) in enumerate(zip(pixels, test.labels, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((16, 16)).save(folder / str(label) / f"{index:03d}.png")
    return folder


def test_other_data_is_prepared_as_the_runs_own(run, other_digits, capsys):
    said = tiny.said(capsys, "eval", run, "--data", other_digits, "--metrics", "knn1,kmeans")
    found = tiny.metrics(run / "eval" / "step-00000008-backbone-ema-on-other_digits.json")
    assert found["knn1"]["protocol"]["data"] == str(other_digits)
    assert 0.2 < found["knn1"]["value"] < 1
    assert found["knn1"]["protocol"]["n_test"] == 360
    assert "360 samples, cross-validated" in said  # they are few


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--features", "f.npz", "--data", "x"], "--data is for a run"),
        (["RUN", "--rows", "0"], "--rows is '0'"),
        (["RUN", "--rows", "many"], "--rows is 'many'"),
        (["RUN", "--data", "nowhere"], "there is no file or folder nowhere"),
        (["RUN", "-o", "."], "is a folder"),
        (["RUN", "--metrics", "knn1", "--inception", "nowhere.pth"], "--inception is for generated images"),
        (["RUN", "--metrics", "fid", "--samples", "20", "--inception", "nowhere.pth"], "nowhere.pth, which does not exist"),
        (["RUN", "--pretrained", "resnet18"], "give efficientnet_lite0, timm:NAME or none"),
        (["RUN", "--pretrained", "none", "--metrics", "svm"], "--pretrained is a row beside all baselines of a run"),
        *((["RUN", "--budget", wrong], "give minutes, or none") for wrong in ("0", "-1", "nan", "inf", "soon")),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in tiny.refused(capsys, *["eval", *(str(run) if word == "RUN" else word for word in words)])


@pytest.mark.parametrize(("method", "weights"), [("structural", "ema"), ("random", "raw")])
def test_the_summary_names_the_weights_that_were_used(tmp_path, capsys, method, weights):
    tiny.save_few(tmp_path / "mnist.npz")
    words = tiny.words(method=method, data__source="mnist", data__folder=tmp_path, train__steps=1, log__evaluate_minutes=5)
    said = tiny.said(capsys, "train", "digits", "--out", tmp_path / "run", *words)
    assert "fitted to 400 training samples, scored on 110 held-out ones" in said
    assert "the baselines" in said
    found = tiny.metrics(tmp_path / "run" / "eval" / "summary.json")
    assert found["svm"]["protocol"]["weights"] == weights
    assert found["untrained/svm"]["protocol"]["weights"] == "untrained"
    assert {"raw/kmeans", "pca/knn1"} <= found.keys()


def test_fifteen_labelled_samples_give_a_caution_and_no_number(tmp_path, capsys):
    folder = tiny.draw_pictures(tmp_path / "few", 15, (8, 8), classes="abc")
    words = ["--train.steps", "1", "--train.batch", "4", "--encoder.widths", "[4, 8]", "--log.report", "false"]
    said = tiny.said(capsys, "train", "--data", folder, "--out", tmp_path / "run", *words)
    assert "samples are too few to score: at least 20 are needed" in said
    assert "1.000" not in said
    assert {metric["value"] for metric in tiny.metrics(tmp_path / "run" / "eval" / "summary.json").values()} == {None}


# --- photographs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """200 labelled JPEG files of 300x300 pixels."""
    folder, draws = tmp_path_factory.mktemp("data") / "photographs", np.random.default_rng(0)
    for index in range(200):
        label = "abcd"[index % 4]
        (folder / label).mkdir(parents=True, exist_ok=True)
        small = draws.integers(0, 255, (6, 6, 3), dtype=np.uint8)
        small[..., 0] = small[..., 0] // 4 + 48 * (index % 4)  # the classes differ in their red
        Image.fromarray(small).resize((300, 300), Image.Resampling.BICUBIC).save(folder / label / f"{index:03d}.jpg")
    return folder


@pytest.mark.slow
def test_photographs_need_neither_much_memory_nor_much_time(photographs, tmp_path):
    """At the default size of 128x128 raw inputs have 49,152 columns; a matrix of them squared would be 9.7 GB."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "sao", "train", "--data", str(photographs), "--out", str(run)]
    options = ["--train.steps", "1", "--train.batch", "4", "--train.threads", "1"]
    code = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code, *command, *options], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) < 3e6  # kilobytes
    found = tiny.metrics(run / "eval" / "summary.json")
    assert found["raw/svm"]["protocol"]["feature"] == "raw inputs"
    assert found["raw/svm"]["value"] > 0.5
    assert found["raw/svm"]["protocol"]["n_train"] + found["raw/svm"]["protocol"]["n_test"] == 200
    started = time.process_time()
    assert main(["eval", str(run), "-o", str(tmp_path / "all.json")]) == 0
    assert time.process_time() - started < 120


def tell_every_stage() -> None:
    log.Stages.__init__.__defaults__ = (True, 0.0, 0)


@pytest.mark.parametrize("stage", ["svm (", "svm, C = "])
def test_ctrl_c_ends_an_evaluation_at_once(tmp_path, stage):
    """Of 200 classes: first eigenvectors, one operation of many seconds, then seconds of short ones."""
    draws = np.random.default_rng(0)
    columns = 3000 if stage.endswith("(") else 1000
    labels = np.arange(4000) % 200
    values = draws.normal(size=(4000, columns)).astype(np.float32)
    np.savez(tmp_path / "f.npz", x_train=values[:3000], y_train=labels[:3000], x_test=values[3000:], y_test=labels[3000:])
    words = ["eval", "--features", tmp_path / "f.npz", "--metrics", "svm"]
    command = tiny.Command(tmp_path, *words, first=tell_every_stage)
    try:
        command.wait_for(lambda: command.errors.exists() and stage in command.errors.read_text())
        time.sleep(0.5)
        command.send(signal.SIGINT)
        started = time.monotonic()
        assert command.wait() == 130
        assert command.errors.read_text().splitlines()[-1] == "sao: interrupted"
        assert time.monotonic() - started < 20  # other tests run beside it
    finally:
        command.process.kill()


def test_the_budget_is_said_beforehand_and_what_does_not_fit_is_named_in_table_and_file(run, tmp_path, capsys):
    target = tmp_path / "late.json"
    assert main(["eval", str(run), "--metrics", "knn1", "--budget", "0.0000001", "-o", str(target)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("at most 1e-07 minutes (--budget)")
    assert "– knn1: left out: it does not fit" in said.out
    assert tiny.metrics(target)["knn1"]["value"] is None
    assert "left out" in tiny.metrics(target)["knn1"]["protocol"]["caution"]


def test_a_pretrained_network_is_measured_where_it_is_asked_for(run, tmp_path, capsys):
    target = tmp_path / "all.json"
    assert main(["eval", str(run), "--rows", "60", "--pretrained", "efficientnet_lite0", "-o", str(target)]) == 0
    found = tiny.metrics(target)
    assert found["pretrained/svm"]["protocol"]["feature"] == "pretrained efficientnet_lite0"
    assert found["patches/svm"]["protocol"]["centroids"] == 60 * 9 // 4
    said = capsys.readouterr().out
    assert "| pretrained |" in said
    assert "retrained network" in said.splitlines()[-1]
