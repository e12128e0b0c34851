"""sao explore: a page of a folder without training."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main
from sao.data.dataset import Images

PER_KIND = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Coarse and fine mosaics, a copy of one of each, and a file that is none."""
    root, draws = tmp_path_factory.mktemp("data") / "my photos", np.random.default_rng(0)
    for number in range(PER_KIND):
        for kind, block in (("coarse", 12), ("fine", 6)):
            pixels = draws.integers(0, 256, (48 // block, 48 // block, 3)).repeat(block, 0).repeat(block, 1)
            (root / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(root / kind / f"{number}.png")
    (root / "coarse/copy.png").write_bytes((root / "coarse/3.png").read_bytes())
    Image.open(root / "fine/5.png").save(root / "fine/copy.webp", quality=80)
    (root / "notes.txt").write_text("not an image")
    return root


@pytest.fixture(scope="module")
def explored(folder, tmp_path_factory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("out")
    assert main(["explore", str(folder), "-o", str(out)]) == 0
    text = (out / "report.html").read_text(encoding="utf-8")
    (found,) = json.loads(re.findall(r'(?s)id="data">(.*?)</script>', text)[0])["runs"]
    return found


def test_all_images_of_the_folder_are_on_the_page(explored, folder):
    assert explored["map"]["count"] == explored["map"]["total"] == 2 * PER_KIND + 2
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".png", ".webp")}
    assert set(explored["map"]["names"]) == there
    assert explored["map"]["classes"] == ["coarse", "fine"]
    assert sum(group["size"] for group in explored["groups"]) == len(there)
    assert "Nothing was trained. 1 other file could not be used." in explored["said"][0]


def test_copies_are_found_in_the_whole_folder(explored):
    names = explored["map"]["names"]
    groups = {
        frozenset(names[row] for row in [group["keep"], *(row for row, _ in group["copies"])])
        for group in explored["duplicates"]
    }
    assert {"coarse/3.png", "coarse/copy.png"} in groups
    assert {"fine/5.png", "fine/copy.webp"} in groups


def test_small_grey_digits_are_compared_by_the_model_for_them(tmp_path, capsys):
    test = tiny.dataset().test
    assert isinstance(test, Images)
    for number in range(30):
        digit = Image.fromarray(np.pad(np.asarray(test.pixels[number])[..., 0], 2))
        digit.resize((28, 28)).save(tmp_path / f"{number}.png")
    assert main(["explore", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert "30 images, compared by the model mnist16" in capsys.readouterr().out


def test_the_command_that_would_train_is_printed_with_its_price(folder, tmp_path, capsys):
    assert main(["explore", str(folder), "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"sao train --data {shlex.quote(str(folder))} --out" in said  # at the size that the images have
    assert re.search(r"About \d+ (minutes?|hours) on this machine", said)
    assert main(["explore", str(folder), "-o", str(tmp_path)]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_folder_of_one_image_many_times_has_a_page_too(folder, tmp_path, capsys):
    for number in range(12):
        shutil.copy(folder / "fine/1.png", tmp_path / f"{number}.png")
    assert main(["explore", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "images that are there already: 11" in said
    assert "It cannot be priced: the training samples are all the same" in said


def test_wrong_arguments_are_one_line(folder, tmp_path, capsys):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    for words, said in (
        ([str(tmp_path / "nowhere")], "there is no file or folder"),
        ([str(tmp_path / "table.csv")], "holds no image files"),
        ([str(tmp_path / "empty")], "has no usable image"),
        ([str(folder), "--model", "nobody"], "no model of that name"),
        ([str(folder), "--clusters", "1"], "--clusters"),
        ([str(folder), "-o", str(tmp_path / "table.csv")], "is not a folder"),
    ):
        assert main(["explore", *words, *([] if "-o" in words else ["-o", str(tmp_path / "out")])]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()
