"""Labels in a table, as people have them: train, eval and report on a flat folder of which some images are labelled."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

import sao
from sao.cli.main import main
from sao.data.dataset import Images
from sao.errors import InputError
from sao.training.run_folder import Run

LABELLED, SAMPLES = 120, 200
WORDS = ["--log.evaluate_every", "1", "--train.steps", "2", "--log.evaluate_minutes", "5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """200 digits in one folder, and labels of 120 of them beside it; one digit is there once."""
    place, digits = tmp_path_factory.mktemp("labels"), tiny.dataset().train
    assert isinstance(digits, Images)
    assert digits.labels is not None
    known = np.flatnonzero(digits.labels < 5)[: SAMPLES - 1]
    rows = [*known, int(np.flatnonzero(digits.labels == 9)[0])][::-1]
    (place / "images").mkdir()
    for number, row in enumerate(rows):
        Image.fromarray(digits.pixels[row][..., 0]).save(place / "images" / f"{number:03d}.png")
    lines = [f"{number:03d}.png,digit {digits.labels[row]}" for number, row in enumerate(rows[:LABELLED])]
    (place / "labels.csv").write_text("\n".join(["name,label", *lines, "gone.png,digit 1"]), encoding="utf-8-sig")
    return place


@pytest.fixture(scope="module")
def run(folder) -> Path:
    words = ["--data", str(folder / "images"), "--labels", str(folder / "labels.csv"), *tiny.words(), *WORDS]
    assert main(["train", "digits", "--out", str(folder / "run"), *words]) == 0
    return folder / "run"


def test_few_labels_are_cross_validated_with_an_interval(run):
    said, found = (run / "log.txt").read_text(), tiny.metrics(run / "eval" / "summary.json")
    assert f"labels.csv: {LABELLED} of {SAMPLES} samples have a label, of 6 classes" in said
    assert "1 name is unknown (the first: gone.png)" in said
    assert "119 samples, cross-validated where labels are fitted to" in said
    assert "– 1 labelled sample of 1 class: cross-validation needs two of each" in said
    assert all(found[name]["value"] > 0.3 for name in ("kmeans", "manifold", "svm", "knn1", "knn5", "raw/svm", "patches/knn5"))
    low, high = found["svm"]["protocol"]["interval_95"]
    assert low < found["svm"]["value"] < high
    assert f"svm {found['svm']['value']:.2f} [{low:.2f}, {high:.2f}]" in said
    assert found["svm"]["protocol"]["split"] == "one split, 5-fold cross-validation"
    assert "the baselines (the best of" in said


def test_python_takes_the_same_table_for_a_path(folder, tmp_path):
    options = {"train.batch": 16, "encoder.widths": [4, 4], "log.evaluate_minutes": 0.001, "log.report": False}
    images, labels = str(folder / "images"), folder / "labels.csv"
    model = sao.train(images, tmp_path / "run", labels=labels, method="vicreg", steps=1, options=options)
    assert model.facts.classes == 6
    assert (tmp_path / "run" / "labels.csv").read_text() == labels.read_text("utf-8-sig")
    with pytest.raises(InputError, match="give the path of a CSV file"):
        sao.train(images, tmp_path / "other", labels=[0, 1])


def test_a_run_keeps_the_labels_that_it_began_with(run, folder, capsys):
    kept = (folder / "labels.csv").read_text("utf-8-sig")
    assert (run / "labels.csv").read_text() == kept
    (folder / "labels.csv").write_text("name,label\n000.png,other\n")
    try:
        assert main(["eval", str(run), "--metrics", "knn1"]) == 0
    finally:
        (folder / "labels.csv").write_text(kept, encoding="utf-8-sig")
    assert "119 samples, cross-validated" in capsys.readouterr().out


def test_other_labels_for_an_evaluation(run, folder, capsys):
    lines = (folder / "labels.csv").read_text("utf-8-sig").splitlines()
    (folder / "more.csv").write_text("\n".join(lines[:61]))
    said = tiny.said(capsys, "eval", run, "--labels", folder / "more.csv", "--metrics", "knn1,svm")
    assert "more.csv: 60 of 200 samples have a label" in said
    found = tiny.metrics(run / "eval" / "step-00000002-backbone-ema-on-more.csv.json")
    assert found["knn1"]["protocol"]["labels"] == str(folder / "more.csv")
    assert Run.open(run)


def test_labels_for_a_file_of_features(run, folder, tmp_path, capsys):
    assert main(["embed", str(run), str(folder / "images"), "-o", str(tmp_path / "f.npz")]) == 0
    words = ["--features", str(tmp_path / "f.npz"), "--labels", str(folder / "labels.csv"), "--metrics", "knn5"]
    assert main(["eval", *words, "-o", str(tmp_path / "f.json")]) == 2  # one digit is there once
    assert "one sample of class" in capsys.readouterr().err
    lines = (folder / "labels.csv").read_text("utf-8-sig").splitlines()
    (tmp_path / "l.csv").write_text("\n".join([lines[0], *lines[2:]]))
    words[3] = str(tmp_path / "l.csv")
    assert main(["eval", *words, "-o", str(tmp_path / "f.json")]) == 0
    assert tiny.metrics(tmp_path / "f.json")["knn5"]["protocol"]["n_test"] == LABELLED - 1


def test_a_copy_to_give_away_names_no_file_of_labels(run, tmp_path):
    assert main(["ship", str(run), "-o", str(tmp_path / "copy")]) == 0
    assert "labels.csv" not in (tmp_path / "copy" / "config.yaml").read_text()


def test_a_report_shows_the_labels_and_who_has_none(run, folder, tmp_path):
    words = ["--labels", str(folder / "labels.csv"), "-o", str(tmp_path / "page.html"), "--points", "20", "--clusters", "3"]
    assert main(["report", str(run), *words]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "no label" in text
    assert "digit 3" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "digits", "--labels", "LABELS"], "the samples of digits have no names"),
        (["train", "--data", "IMAGES", "--labels", "nowhere.csv"], "there is no file nowhere.csv"),
        (["train", "--data", "IMAGES", "--labels", "LABELS", "--method", "supervised"], "training samples have none"),
        (["eval", "RUN", "--labels", "nowhere.csv"], "there is no file nowhere.csv"),
        (["report", "RUN", "--labels", "nowhere.csv"], "there is no file nowhere.csv"),
    ],
)
def test_bad_input_is_one_line(run, folder, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    places = {"LABELS": folder / "labels.csv", "IMAGES": folder / "images", "RUN": run}
    assert said in tiny.refused(capsys, *[str(places.get(word, word)) for word in words])
    assert not (tmp_path / "runs").exists()


def test_a_class_tree_of_links_works_as_a_list(folder, tmp_path, monkeypatch, capsys):
    """Links that leave a folder are not followed, because folders may come from strangers; the message says how."""
    for number in range(20):
        place = tmp_path / "tree" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").symlink_to(folder / "images" / f"{number:03d}.png")
    monkeypatch.chdir(tmp_path)
    words = ["--train.steps", "1", "--train.batch", "8", "--log.report", "false"]
    error = tiny.refused(capsys, "train", "--data", "tree", "--out", "run", *words)
    assert "find -L tree -type f > images.txt" in error
    (tmp_path / "images.txt").write_text("\n".join(str(path) for path in sorted(Path("tree").rglob("*.png"))))
    assert main(["train", "--data", "images.txt", "--out", "run", *words]) == 0
    assert Run.open(tmp_path / "run").facts.classes == 2
