"""sao duplicates, as a person types it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main

NAMES = ["b & <i>.png", "c.jpg", "d.png", "e.png"]


def drawn(seed: int, side: int = 48) -> Image.Image:
    """Rectangles of random colours."""
    draws = np.random.default_rng(seed)
    image = Image.new("RGB", (side, side), tuple(draws.integers(0, 256, 3).tolist()))
    for left, top, width, height, *colour in draws.integers(0, 256, (20, 7)) % ([side - 6] * 2 + [side // 2] * 2 + [256] * 3):
        image.paste(tuple(map(int, colour)), (left, top, left + 3 + width, top + 3 + height))
    return image


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Four images, of the first a copy, one with the same pixels and a smaller one; and a file that is no image."""
    place = tmp_path_factory.mktemp("data") / "photos"
    (place / "sub").mkdir(parents=True)
    images = [drawn(seed) for seed in range(4)]
    for name, image in zip(NAMES, images, strict=True):
        image.save(place / name)
    shutil.copy(place / NAMES[0], place / "sub" / "copy.png")
    images[0].save(place / "same pixels.bmp")
    images[0].resize((40, 40), Image.Resampling.LANCZOS).save(place / "a smaller.png")
    (place / "notes.txt").write_text("no image")
    return place


def test_copies_are_named_with_their_kind_and_shown_on_a_page_that_escapes_names(folder, tmp_path, capsys):
    before = tiny.contents(folder)
    assert main(["duplicates", str(folder), "-o", str(tmp_path / "out")]) == 0
    rows = tiny.table(tmp_path / "out" / "duplicates.csv")
    found = {row["name"]: (row["keep"], row["kind"], row["why"]) for row in rows}
    assert found == {
        "same pixels.bmp": ("1", "", "largest file"),
        NAMES[0]: ("0", "same pixels", ""),
        "sub/copy.png": ("0", "same pixels", ""),
        "a smaller.png": ("0", "near", ""),
    }
    assert {row["group"] for row in rows} == {"1"}
    assert [rows[-1][column] for column in ("width", "height")] == ["40", "40"]
    said = capsys.readouterr()
    assert "3 copies in 1 group among 7 images: 2 same pixels, 1 near" in said.out
    assert "1 item could not be used: notes.txt" in said.err
    assert tiny.contents(folder) == before

    page = (tmp_path / "out" / "duplicates.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/webp;base64,') == 4
    assert "<i>" not in page
    assert "b &amp; &lt;i&gt;.png" in page
    assert "b%20%26%20%3Ci%3E.png" in page
    assert "<script" not in page


def test_without_output_nothing_is_written(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["duplicates", str(folder)]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "-o DIR writes" in capsys.readouterr().out


def test_what_is_there_is_kept_unless_asked(folder, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "duplicates.csv").write_text("mine")
    assert main(["duplicates", str(folder), "-o", str(out)]) == 2
    assert (out / "duplicates.csv").read_text() == "mine"
    assert main(["duplicates", str(folder), "-o", str(out), "--overwrite"]) == 0
    (out / "other.txt").write_text("mine")
    assert "other.txt is not what this command writes" in tiny.refused(capsys, "duplicates", folder, "-o", out, "--overwrite")


def test_a_file_of_features_is_enough(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    rows[9] = 2 * rows[4]  # of the same direction
    np.savez(tmp_path / "f.npz", features=rows, names=np.array([f"n{i}" for i in range(50)]))
    assert main(["duplicates", "--features", str(tmp_path / "f.npz"), "-o", str(tmp_path / "out")]) == 0
    assert [row["name"] for row in tiny.table(tmp_path / "out" / "duplicates.csv")] == ["n4", "n9"]
    assert not (tmp_path / "out" / "duplicates.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a folder of images, or --features F.npz"),
        (["a", "--features", "b"], "one of the two"),
        (["--features", "b", "--model", "mnist16"], "--model is for images"),
        (["nowhere"], "there is no file or folder nowhere"),
        (["--features", "nowhere.npz"], "nowhere.npz does not exist"),
        (["a", "--keep"], "does not take --keep"),
    ],
)
def test_wrong_arguments_are_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in tiny.refused(capsys, "duplicates", *words)


def test_a_model_in_the_box_can_be_named(folder, tmp_path, capsys):
    assert "3 copies in 1 group" in tiny.said(capsys, "duplicates", folder, "--model", "mnist16")
    assert main(["duplicates", str(folder), "--model", "mnist17"]) == 2
    assert "mnist16" in capsys.readouterr().err
