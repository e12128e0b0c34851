"""`sao train --data` on the files that people have, in real processes, and then the commands that use the run."""

import os
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image
from tiny import structural_options

from sao.methods.encoders import ResNetOptions
from sao.training.run_folder import Run

DRAWS = np.random.default_rng(0)
STEPS = ["--train.steps", "2", "--train.threads", "1", "--log.report", "false"]
SHORT = [*STEPS, "--encoder.widths", "[4, 8]", "--method.generator.width", "4"]


def keep_decoded_in(cache: Path) -> None:
    """The server that forks a process has the environment of its own beginning."""
    os.environ["SAO_CACHE"] = str(cache)


def sao(folder: Path, *words: str | Path, code: int = 0) -> tuple[str, str]:
    """What a command in a process of its own says, and its errors."""
    folder.mkdir(exist_ok=True)
    command = tiny.Command(folder, *words, first=partial(keep_decoded_in, folder.parent / "cache"))
    assert command.wait() == code, command.errors.read_text()
    return command.output.read_text(), command.errors.read_text()


def pictures(folder: Path, count: int = 24) -> Path:
    """JPEGs of mixed sizes in two class folders, of which one is broken."""
    for index in range(count):
        place = folder / ("dark" if index % 2 else "light")
        place.mkdir(parents=True, exist_ok=True)
        height, width = DRAWS.integers(9, 15, 2)
        pixels = DRAWS.integers(0, 120, (height, width, 3)) + (0 if index % 2 else 130)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.jpg")
    whole = (folder / "dark" / "1.jpg").read_bytes()
    (folder / "dark" / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    return folder


def names_in(path: Path) -> list[str]:
    return [row["name"] for row in tiny.table(path)]


def test_a_folder_of_jpegs_from_end_to_end(tmp_path):
    data, run = pictures(tmp_path / "data"), tmp_path / "run"
    said, _ = sao(tmp_path / "train", "train", "--data", data, "--out", run, *SHORT)
    read, bad, chosen, first = said.splitlines()[:4]
    assert read == "data: 24 colour images of 8x8, 22 to train on, 2 held out, 2 classes"
    assert bad.startswith("1 item could not be used: dark/broken.jpg: ")
    assert bad.endswith(f"; {run / 'skipped.tsv'} lists them")
    assert re.fullmatch(
        r"structural: 0\.\d\d M trained parameters, 2 steps of \d+ on cpu \(1 thread\); about 0m \d\ds on this machine "
        r"\(\S+ s a step\); --why prints the reasons",
        chosen,
    )
    assert first.startswith(("step ", "evaluation "))
    assert f"auto: batch {Run(run).config.train.batch}, because" in (run / "log.txt").read_text()
    assert "kmeans" in said
    assert (run / "skipped.tsv").read_text("utf-8-sig").startswith("dark/broken.jpg\t")
    assert f"sao search {run} {data / 'dark'}" in said
    assert f"sao cluster {run} {data} -k auto" in said
    config = Run(run).config
    assert structural_options(config).bank < Run(run).facts.samples // 2
    assert config.encoder == ResNetOptions(widths=(4, 8), blocks=1)
    assert Run(run).facts.classes == 2
    sao(tmp_path / "embed", "embed", run, data, "-o", tmp_path / "f.csv")
    assert len(names_in(tmp_path / "f.csv")) == 24
    sao(tmp_path / "cluster", "cluster", run, data, "-k", "2", "-o", tmp_path / "clusters")
    assert names_in(tmp_path / "clusters" / "assignments.csv") == names_in(tmp_path / "f.csv")
    again, _ = sao(tmp_path / "resume", "resume", run)
    assert "complete" in again


def test_a_zip_without_its_labels_in_a_size_of_ones_own(tmp_path):
    folder, archive = pictures(tmp_path / "data"), tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*.jpg")):
            file.write(path, path.relative_to(folder))
    words = ["train", "--data", archive, "--out", tmp_path / "run", "--data.labels=false", "--data.size", "16", *SHORT]
    said, _ = sao(tmp_path / "train", *words)
    facts = Run(tmp_path / "run").facts
    assert (facts.shape, facts.classes) == ((3, 16, 16), None)
    assert "kmeans" not in said


def test_strict_stops_at_the_first_bad_item_and_leaves_no_run(tmp_path):
    words = ["train", "--data", pictures(tmp_path / "data"), "--out", tmp_path / "run", "--data.strict=true", *SHORT]
    said, errors = sao(tmp_path / "train", *words, code=2)
    assert said == ""
    assert errors.startswith("sao: dark/broken.jpg: ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_tables_from_end_to_end(tmp_path, ending):
    rows, data, run = DRAWS.normal(3, 5, (40, 4)), tmp_path / f"rows.{ending}", tmp_path / "run"
    if ending == "npy":
        np.save(data, rows)
    else:
        lines = [",".join(f"{value:.6f}" for value in row) for row in rows]
        data.write_text("\n".join(["a,b,c,d", *lines, "1,2,oh,4"]))
    said, _ = sao(tmp_path / "train", "train", "--data", data, "--out", run, "--why", *STEPS)
    assert "auto: a perceptron of width 32" in said
    assert "Lipschitz target 1.0, because" in said
    assert (run / "skipped.tsv").exists() == (ending == "csv")
    sao(tmp_path / "embed", "embed", run, data, "-o", tmp_path / "f.csv")
    assert len(names_in(tmp_path / "f.csv")) == 40
    sao(tmp_path / "cluster", "cluster", run, data, "-k", "3", "-o", tmp_path / "clusters")
    assert len(names_in(tmp_path / "clusters" / "assignments.csv")) == 40


def test_another_method_on_own_images_has_choices_of_its_own(tmp_path):
    np.save(tmp_path / "x.npy", DRAWS.integers(0, 256, (40, 8, 8), dtype=np.uint8))
    words = ["train", "--method", "byol", "--data", tmp_path / "x.npy", "--out", tmp_path / "run", "--why", *SHORT[:-2]]
    said, _ = sao(tmp_path / "train", *words)
    assert "auto: heads of 256 units that end in 64 numbers, because" in said
    assert "auto: a teacher with decay 0.9, because" in said
    assert "bank" not in said
    method = Run(tmp_path / "run").config.method
    assert (method.name, method.model_dump()["predictor_size"]) == ("byol", 256)
    sao(tmp_path / "embed", "embed", tmp_path / "run", tmp_path / "x.npy", "-o", tmp_path / "f.csv")
    assert len(names_in(tmp_path / "f.csv")) == 40


def test_a_preset_given_with_the_data_is_taken_as_it_is(tmp_path):
    np.save(tmp_path / "x.npy", DRAWS.integers(0, 256, (30, 8, 8), dtype=np.uint8))
    words = ["train", "digits", "--data", tmp_path / "x.npy", "--out", tmp_path / "run", "--train.batch", "6", *SHORT]
    said, _ = sao(tmp_path / "train", *words)
    assert "auto:" not in said
    assert Run(tmp_path / "run").rows()[-1]["step"] == 2
    said, _ = sao(tmp_path / "auto", *words, "--auto", "--overwrite", "--why")
    assert "auto: bank" in said


def test_a_dry_run_prices_what_would_be_chosen(tmp_path):
    np.save(tmp_path / "x.npy", DRAWS.normal(0, 1, (40, 3)))
    said, _ = sao(tmp_path / "price", "train", "--data", tmp_path / "x.npy", "--out", tmp_path / "run", "--dry-run")
    assert "auto: a perceptron of width" in said
    assert "whole run   72 steps" in said  # two for each of 36 training samples; the preset's batch would not even fit
    assert not (tmp_path / "run").exists()


def test_minutes_are_for_options_that_are_chosen_and_a_dry_run_shows_sizes(tmp_path):
    np.save(tmp_path / "x.npy", DRAWS.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8))
    words = ["train", "--data", tmp_path / "x.npy", "--out", tmp_path / "run", "--minutes", "0.02", "--train.batch", "4"]
    said, _ = sao(tmp_path / "price", *words, "--dry-run")
    assert "fit into 0.02 minutes" in said
    assert "--data.size 32: " in said
    assert "--data.size 64: " in said
    said, errors = sao(tmp_path / "refused", words[0], "digits", *words[1:], code=2)
    assert "add --auto" in errors
    assert not (tmp_path / "run").exists()


def test_hopeless_data_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "same.npy", np.zeros((30, 8, 8), np.uint8))
    np.save(tmp_path / "few.npy", np.zeros((3, 4)))
    for name in ("missing", "empty", "same.npy", "few.npy"):
        words = ["train", "--data", tmp_path / name, "--out", tmp_path / "run", *SHORT]
        said, errors = sao(tmp_path / "train", *words, code=2)
        assert errors.startswith("sao: ")
        assert errors.count("\n") == 1
        assert said == ""
        assert not (tmp_path / "run").exists()
