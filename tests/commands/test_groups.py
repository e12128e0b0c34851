"""sao cluster with what people do with groups: names for them, folders of them, features of another library."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main
from sao.data.dataset import Images
from sao.data.files.grouped import MARK, safe_name

ODD = "of: 1/\u0661?"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """60 digits of three kinds, two of them of one file name, and features in which the kinds are far apart."""
    place, digits = tmp_path_factory.mktemp("groups"), tiny.dataset().train
    assert isinstance(digits, Images)
    assert digits.labels is not None
    rows = np.concatenate([np.flatnonzero(digits.labels == digit)[:20] for digit in (0, 1, 2)])
    names = [f"{'ab'[i % 2]}/{i // 2 if i < 2 else i}.png" for i in range(60)]
    for name, row in zip(names, rows, strict=True):
        (place / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.pixels[row][..., 0]).save(place / "images" / name)
    features = np.eye(3, 16)[digits.labels[rows]] + 0.05 * np.random.default_rng(0).standard_normal((60, 16))
    np.savez(place / "f.npz", features=features, names=np.array(names))
    kinds = {0: "zero", 1: ODD}
    digit_of = dict(zip(names, digits.labels[rows].tolist(), strict=True))
    lines = [(name, kinds[digit]) for name, digit in digit_of.items() if digit in kinds]
    lines = [(lines[0][0], ODD), *lines[1:-5]]  # one zero is called otherwise, five ones are not named
    with (place / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("name", "label"), *lines])
    tiny.trained(place / "run", method="random", train__steps=1)
    return place


def test_groups_of_features_take_the_names_of_most_of_their_members(place, tmp_path, capsys):
    words = ["--features", str(place / "f.npz"), "--names", str(place / "labels.csv"), "-k", "3", "-o", str(tmp_path / "out")]
    assert main(["cluster", *words]) == 0
    said, rows = capsys.readouterr().out, tiny.table(tmp_path / "out/assignments.csv")
    assert "zero, as 19 of 20 labelled members say" in said
    assert re.search(r"^group \d of 20: .* as 15 of 15 labelled members say$", said, re.MULTILINE)
    assert "1 of 3 groups have no labelled member, and no name" in said
    assert [row["group"] for row in rows] == ["zero"] * 20 + [ODD] * 20 + [""] * 20
    assert rows[0]["name"] == "a/0.png"
    assert not (tmp_path / "out" / "clusters.png").exists()


def test_well_separated_groups_are_proposed_without_doubt(place, tmp_path, capsys):
    assert main(["cluster", "--features", str(place / "f.npz"), "-k", "auto", "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("3 clusters: the eigenvalues")


@pytest.mark.parametrize("link", [False, True], ids=["copies", "links"])
def test_images_are_copied_into_a_folder_for_each_group(place, tmp_path, capsys, link):
    before = {path: (path.read_bytes(), path.stat().st_mtime) for path in (place / "images").rglob("*.png")}
    words = ["cluster", str(place / "run"), str(place / "images"), "-k", "4", "-o", str(tmp_path / "out")]
    words += ["--copy-to", str(tmp_path / "groups"), "--names", str(place / "labels.csv"), *(["--link"] if link else [])]
    assert f"60 images as {'links to them' if link else 'copies'} in " in tiny.said(capsys, *words)
    copies = sorted((tmp_path / "groups").rglob("*.png"))
    assert len(copies) == 60
    assert all(path.is_symlink() == link for path in copies)
    assert {path: (path.read_bytes(), path.stat().st_mtime) for path in before} == before
    called = {row["name"]: row["group"] or f"group-{row['cluster']}" for row in tiny.table(tmp_path / "out/assignments.csv")}
    for name, group in called.items():
        folder = tmp_path / "groups" / safe_name(group)
        own, among = folder / Path(name).name, folder / name.replace("/", "__")
        assert (place / "images" / name).read_bytes() in [path.read_bytes() for path in (own, among) if path.exists()]
    assert main(words) == 2
    assert main([*words, "--overwrite"]) == 0
    (tmp_path / "groups" / "mine.txt").write_text("mine")
    assert "mine.txt is not what this command wrote, and is kept" in tiny.refused(capsys, *words, "--overwrite")
    assert (tmp_path / "groups" / MARK).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN", "IMAGES", "--features", "F"], "give RUN and DATA, or --features"),
        (["RUN"], "give RUN and DATA, or --features"),
        (["--features", "F", "--copy-to", "new"], "--copy-to needs the files themselves"),
        (["RUN", "IMAGES", "--link"], "--link is for --copy-to"),
        (["RUN", "IMAGES", "--copy-to", "IMAGES/new"], "lies in the data"),
        (["RUN", "IMAGES", "--copy-to", "full"], "full exists and is not an empty folder"),
        (["RUN", "IMAGES", "--copy-to", "full", "--overwrite"], "is not what this command wrote"),
        (["RUN", "digits", "--copy-to", "new"], "there is no file or folder digits"),
        (["RUN", "IMAGES", "--names", "nowhere.csv"], "there is no file nowhere.csv"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(place, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    places = {"RUN": place / "run", "IMAGES": place / "images", "F": place / "f.npz"}
    given = [str(places.get(word, word)).replace("IMAGES", str(place / "images")) for word in words]
    assert said in tiny.refused(capsys, "cluster", *given, "-k", "2", "-o", "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_names_of_groups_are_names_of_folders_on_any_system():
    assert safe_name("a/b\\c:d") == "a_b_c_d"
    assert safe_name("..") == "_"
    assert safe_name(" con ") == "_con"
    assert safe_name("Katze é") == "Katze é"
    assert len(safe_name("x" * 300)) == 100
