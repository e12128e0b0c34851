"""Whole commands on small files of features: every line that they print, and every cell that they write."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import fake

from sao import __version__
from sao.cli import embed, evaluating, search
from sao.cli.inputs import _splits_of
from sao.cli.main import COMMANDS, main
from sao.data.dataset import Images, Vectors
from sao.data.split import held_out_samples
from sao.evaluation.result import Metric
from sao.search.index import Neighbours


@pytest.fixture
def features(tmp_path) -> Path:
    """Three tight groups of 30, 20 and 10, and of each 20th sample an exact copy at twice the length."""
    draws = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [30, 20, 10])
    values = (np.eye(3, 6)[groups] + draws.normal(0, 0.05, (60, 6))).astype(np.float32)
    names = np.array([f"{'abc'[group]}/{i}.png" for i, group in enumerate(groups)])
    np.savez(tmp_path / "f.npz", features=values, names=names, labels=groups)
    return tmp_path / "f.npz"


def rows_of(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text("utf-8-sig").splitlines()))


def test_groups_of_features_are_counted(features, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["cluster", "--features", str(features), "-k", "3", "-o", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    table = rows_of(out / "assignments.csv")
    outliers = sum(row[3] == "1" for row in table[1:])
    assert said[0] == f"60 samples in 3 clusters of 10 to 30; {out / 'assignments.csv'}"
    marks = "samples look like outliers, far from all others; the column outlier in"
    assert said[1:] == ([f"{outliers} {marks} {out}/assignments.csv marks them"] if outliers else [])
    assert [row[0] for row in table] == ["name", *np.load(features)["names"]]
    clusters = [row[1] for row in table[1:]]
    assert len(set(zip(clusters, [row[0][0] for row in table[1:]], strict=True))) == 3
    values = np.load(features)["features"]
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    for cluster in set(clusters):
        own = np.array([one == cluster for one in clusters])
        mean = units[own].sum(axis=0)
        cosines = units[own] @ mean / np.linalg.norm(mean)
        np.testing.assert_allclose(np.array([float(row[2]) for row in table[1:]])[own], cosines, atol=2e-6)


@pytest.mark.parametrize("manifold", [[], ["--manifold", "spectral"]])
def test_a_number_of_groups_is_proposed_and_groups_are_named(features, tmp_path, capsys, manifold):
    (tmp_path / "l.csv").write_text("name,label\na/0.png,first\na/1.png,first\nb/30.png,second\n")
    words = [
        "cluster", "--features", str(features), "-k", "auto", "-o", str(tmp_path / "out"), "--names", str(tmp_path / "l.csv"),
    ]  # fmt: skip
    assert main([*words, *manifold]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("3 clusters")
    assert ": the eigenvalues of the graph of 10 nearest neighbours drop most after 3 groups (by " in said[0]
    assert said[1] == "l.csv: 3 of 60 samples have a label, of 2 classes; 57 have none"
    assert sorted(line.partition(" of ")[2] for line in said[2:4]) == [
        "20: second, as 1 of 1 labelled members say",
        "30: first, as 2 of 2 labelled members say",
    ]
    assert said[4] == "1 of 3 groups have no labelled member, and no name"
    table = rows_of(tmp_path / "out" / "assignments.csv")
    assert [row[4] for row in table] == ["group", *["first"] * 30, *["second"] * 20, *[""] * 10]


@pytest.mark.parametrize(("words", "said"), [
    (["-k", "2"], "give RUN and DATA, or --features F.npz, one of the two"), (["r", "-k", "2"], "give RUN and DATA"),
    (["r", "d", "--features", "f", "-k", "2"], "one of the two"),
    (["--features", "f", "-k", "2", "--copy-to", "x"], "--copy-to needs the files themselves"),
    (["--features", "f", "-k", "2", "--link"], "--link is for --copy-to DIR"),
    (["--features", "f", "-k", "0"], "-k is '0': give a number of clusters, at least 1, or auto"),
])  # fmt: skip
def test_wrong_words_of_cluster(words, said, capsys, tmp_path):
    assert main(["cluster", *words, "-o", str(tmp_path / "o")]) == 2
    assert said in capsys.readouterr().err


def test_features_of_one_split_are_evaluated_and_kept(features, tmp_path, capsys):
    out = tmp_path / "numbers.json"
    words = ["eval", "--features", str(features), "--metrics", "knn1,effective_rank", "-o", str(out)]
    assert main(words) == 0
    said = capsys.readouterr().out.splitlines()
    found = {row["name"]: row for row in json.loads(out.read_text())}
    assert said[0] == "at most 10 minutes (--budget); metrics that do not fit are left out and named"
    assert said[1] == "60 samples, cross-validated where labels are fitted to"
    assert said[2] == "|        | knn1  | effective_rank |"
    assert said[4] == f"| learnt | 1.000 | {found['effective_rank']['value']:.3f}          |"
    low, high = found["knn1"]["protocol"]["interval_95"]
    assert said[5] == f"95 % intervals of learnt: knn1 1.00 [{low:.2f}, {high:.2f}]"
    assert said[6] == f"with protocols in {out}"
    assert (found["knn1"]["value"], found["knn1"]["protocol"]["n_train"], found["knn1"]["protocol"]["n_test"]) == (1.0, 48, 60)
    assert main([*words[:3], "--metrics", "uniformity", "--budget", "none", "-o", str(out)]) == 0
    assert "--budget" not in capsys.readouterr().out
    assert [row["name"] for row in json.loads(out.read_text())] == ["knn1", "effective_rank", "uniformity"]


def test_at_most_so_many_rows_of_each_split_are_looked_at(features, tmp_path, capsys):
    stored = np.load(features)
    order = np.random.default_rng(1).permutation(60)
    x, y = stored["features"][order], stored["labels"][order]
    np.savez(tmp_path / "s.npz", x_train=x[:38], y_train=y[:38], x_test=x[38:], y_test=y[38:])
    words = ["eval", "--features", str(tmp_path / "s.npz"), "--metrics", "knn1", "-o", str(tmp_path / "n.json")]
    for rows, said in (
        ("30", "fitted to 30 of 38 training samples, scored on 22 held-out ones"),
        ("21", "fitted to 21 of 38 training samples, scored on 21 held-out ones"),
        ("all", "fitted to 38 training samples, scored on 22 held-out ones"),
    ):
        assert main([*words, "--rows", rows]) == 0
        assert capsys.readouterr().out.splitlines()[1] == said
    for wrong in ("0", "-3", "x"):
        assert main([*words, "--rows", wrong]) == 2
        assert f"--rows is {wrong!r}: give a number of samples, at least 1, or all" in capsys.readouterr().err


def test_labels_by_a_table_are_those_that_are_scored(features, tmp_path, capsys):
    lines = [f"a/{i}.png,x" for i in range(12)] + [f"b/{i}.png,y" for i in range(30, 42)]
    (tmp_path / "l.csv").write_text("name,label\n" + "\n".join(lines) + "\nzzz,q\n")
    assert main(["eval", "--features", str(features), "--labels", str(tmp_path / "l.csv"), "--metrics", "knn1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "l.csv: 24 of 60 samples have a label, of 2 classes; 36 have none; 1 name is unknown (the first: zzz)"
    assert said[2] == "24 samples, cross-validated where labels are fitted to"


@pytest.mark.parametrize(("words", "said"), [
    ([], "give a run, or --features F.npz, one of the two"), (["r", "--features", "f"], "one of the two"),
    (["--features", "f", "--data", "d"], "--data is for a run: a file of features holds its own"),
    (["--features", "f", "--pretrained", "none"], "--pretrained is a row beside all baselines"),
    (["r", "--metrics", "svm", "--pretrained", "none"], "leave out --features and --metrics"),
    (["--features", "f", "--budget", "0"], "--budget is '0': give minutes, or none"),
])  # fmt: skip
def test_wrong_words_of_eval(words, said, capsys):
    assert main(["eval", *words]) == 2
    assert said in capsys.readouterr().err


def test_generated_metrics_are_those_that_were_asked_for(monkeypatch):
    images = Images(np.zeros((7, 8, 8, 1), np.uint8))
    asked: list[Any] = []

    def generation(real, drawn, weights, **more):
        asked.append((len(real), len(drawn), weights, more["download"], more["seed"]))
        return [Metric(name, 0.5) for name in ("is_x", "fid_x", "kid_x", "precision_x", "recall_x")]

    share = lambda drawn, real: fake(share=Metric("memorised", len(drawn) / len(real)))  # noqa: E731
    monkeypatch.setattr(evaluating, "evaluate_generation", generation)
    monkeypatch.setattr(evaluating, "memorised", share)
    draw = lambda n, seed: np.zeros((n, 8, 8, 1), np.uint8)  # noqa: E731
    model = fake(bytes_of=lambda x: x, sample=draw, facts=fake(shape=(1, 8, 8)), device="cpu")
    data = fake(test=images, train=Images(np.zeros((10, 8, 8, 1), np.uint8)))

    def names(metrics: list[str] | None, samples: int | None, inception: str | None = None) -> list[tuple[str, float]]:
        found = evaluating._generation(model, data, metrics, fake(samples=samples, seed=3, inception=inception), {"run": "r"})
        assert all(metric.protocol["run"] == "r" for metric in found)
        return [(metric.name, metric.value) for metric in found]

    every = [(f"{name}_x", 0.5) for name in ("is", "fid", "kid", "precision", "recall")]
    assert names(None, None) == []
    assert names(["svm"], 5) == []
    assert names(None, 5) == [*every, ("memorised", 0.5)]
    assert names(["fid", "svm"], None) == [("fid_x", 0.5)]
    assert names(["memorised"], None) == [("memorised", 0.7)]
    assert names(["recall"], 4, "download") == [("recall_x", 0.5)]
    assert asked == [(5, 5, None, False, 3), (7, 7, None, False, 3), (4, 4, None, True, 3)]

    data = fake(test=Vectors(np.zeros((4, 2), np.float32)), train=Vectors(np.zeros((10, 2), np.float32)))
    assert names(["memorised"], 5) == names(None, 5) == [("memorised", 0.5)]  # of vectors too, against the training rows


@pytest.mark.parametrize("splits", [None, ["train", "test"]])
@pytest.mark.parametrize(("labels", "classes"), [(None, None), ([1, 0], None), ([1, 0], ["cat", "dog"])])
def test_written_features_have_all_that_is_known(tmp_path, splits, labels, classes):
    values = np.array([[0.5, -0.123456789012], [1e-9, 3]])
    samples = Vectors(values.astype(np.float32), None if labels is None else np.array(labels), None, classes)
    embed._csv(tmp_path / "f.csv", ["a", "=b"], splits, values, samples)
    named = None if labels is None else ["1", "0"] if classes is None else ["dog", "cat"]
    columns = [["name", "a", "'=b"]] + ([["split", *splits]] if splits else []) + ([["label", *named]] if named else [])
    columns += [["f0", "0.5", "1e-09"], ["f1", "-0.123456789", "3"]]
    assert rows_of(tmp_path / "f.csv") == [list(row) for row in zip(*columns, strict=True)]
    embed._npz(tmp_path / "f.npz", ["a", "=b"], splits, values, samples)
    found = np.load(tmp_path / "f.npz")
    optional = ({"splits"} if splits else set()) | ({"labels"} if labels else set()) | ({"class_names"} if classes else set())
    assert set(found) == {"names", "features"} | optional
    assert found["names"].tolist() == ["a", "=b"]
    assert labels is None or found["labels"].tolist() == labels


def test_the_splits_of_samples_are_those_of_their_names_or_of_the_run(tmp_path):
    def named(*names: str) -> Vectors:
        return Vectors(np.zeros((len(names), 2), np.float32), None, list(names))

    def of(samples: Vectors, place: Any = None, count: int = 15) -> list[str] | None:
        config = fake(data=fake(labels=True, label_file=None, held_out=0.25), seed=4)
        return _splits_of(fake(config=config, facts=fake(place=place, samples=count)), str(tmp_path), samples)

    assert of(named("train 3", "Test 1", "train/4", "val/5")) == ["train", "test", "train", "test"]
    assert of(named("train 3", "photo")) is None
    assert of(named("test 3", "test 4")) is None
    own, place = named(*(f"{i}.png" for i in range(20))), (str(tmp_path), "x")
    held_out = held_out_samples(own.names or (), None, 0.25, 4)[1]
    assert len(held_out) == 5
    assert of(own, place) == ["test" if i in held_out else "train" for i in range(20)]
    assert of(own, place, count=14) is None
    assert of(own, (str(tmp_path / "elsewhere"), "x")) is None


@pytest.mark.parametrize(("queries", "k", "shape"), [(60, 3, (50, 5)), (2, 30, (2, 22)), (50, 20, (50, 22))])
def test_fifty_queries_with_twenty_neighbours_are_drawn(queries, k, shape):
    pixels = Images(np.zeros((max(queries, k), 8, 8, 1), np.uint8))
    found = Neighbours(["q"] * queries, [[""] * k] * queries, np.zeros((queries, k)), np.tile(np.arange(k), (queries, 1)))
    picture = search._picture(found, [("digits", pixels)], ("digits", pixels))
    assert picture is not None
    assert picture.size[::-1] == tuple(2 + 66 * side for side in shape)


def test_the_version_and_every_command_are_said(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"sao {__version__}\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n    {name}" not in said] == []
    assert len(COMMANDS) == 19


@pytest.mark.parametrize(("words", "said"), [
    (["search", "r", "q", "--in", "d", "-k", "0"], "-k is 0: give a number of neighbours, at least 1"),
    (["sample", "r", "-n", "0", "-o", "x"], "-n must be at least 1, got 0"),
    (["report", "r", "--points", "9"], "--points is 9: a map shows between 10 and 20000 samples"),
    (["report", "r", "--points", "20001"], "--points is 20001: a map shows"),
    (["report", "r", "--clusters", "101"], "--clusters is 101: give between 2 and 100"),
    (["explore", "f", "--clusters", "1"], "--clusters is 1: give between 2 and 100"),
    (["bench", "--steps", "0"], "--steps must be at least 1, got 0"),
    (["cache", "--older-than", "3"], "--older-than is for --clear, with a number of days from 0 on"),
    (["reproduce", "table9"], "there is no 'table9' to reproduce; there is: figure1, figure2, table1"),
    (["reproduce", "figure2", "--scale", "cpu"], "sao reproduce figure2 does not take --scale"),
    (["reproduce", "table2", "--no-search"], "sao reproduce table2 does not take --no-search"),
    (["cluster", "r", "d", "-k", "2", "-o", "x", "--seeds", "3"], "sao cluster does not take --seeds (did you mean --seed?)"),
    (["embed", "r", "d", "-o", "x.txt"], "x.txt must end in .npz, .csv, .parquet"),
    (["train", "--minutes", "5", "--preset", "x"], "sao train does not take --preset"),
])  # fmt: skip
def test_a_wrong_word_is_answered_with_what_is_possible(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
