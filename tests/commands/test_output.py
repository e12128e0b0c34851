"""What commands write beside a run: nothing is replaced unasked, and what fails leaves nothing."""

from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sao.cli.main import main


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny.trained(tmp_path_factory.mktemp("made") / "run", train__steps=2)[0].folder


@pytest.fixture
def pictures(tmp_path) -> str:
    (tmp_path / "pictures").mkdir()
    for name, pixels in zip(
        ["=a", "-b", "@c", "+d"], np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8), strict=True
    ):
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{name}.png")
    return str(tmp_path / "pictures")


def words(name: str, run: Path, data: str, out: Path) -> list[str]:
    return {
        "embed": ["embed", str(run), data, "-o", str(out / "f.csv")],
        "cluster": ["cluster", str(run), data, "-k", "2", "-o", str(out / "groups")],
        "sample": ["sample", str(run), "-n", "3", "-o", str(out / "s.npy")],
        "pictures": ["sample", str(run), "-n", "3", "-o", str(out / "drawn")],
        "program": ["export", str(run), "-o", str(out / "encoder.pt2")],
        "export": ["export", str(run), "-o", str(out / "encoder")],
    }[name]


@pytest.mark.parametrize("name", ["embed", "cluster", "sample", "pictures", "program", "export"])
def test_a_second_output_to_the_same_place_needs_overwrite(name, run, pictures, tmp_path, capsys):
    command = words(name, run, pictures, tmp_path / "out")
    assert main(command) == 0
    first = next(path for path in sorted((tmp_path / "out").rglob("*")) if path.is_file())
    first.write_bytes(b"old")
    before = tiny.contents(tmp_path / "out")
    assert "--overwrite" in tiny.refused(capsys, *command)
    assert tiny.contents(tmp_path / "out") == before
    assert main([*command, "--overwrite"]) == 0
    assert tiny.contents(tmp_path / "out").keys() == before.keys()
    assert first.read_bytes() != b"old"


@pytest.mark.parametrize("name", ["pictures", "export"])
def test_a_folder_with_other_files_is_never_replaced(name, run, pictures, tmp_path, capsys):
    command = words(name, run, pictures, tmp_path / "out")
    (tmp_path / "out" / Path(command[-1]).name).mkdir(parents=True)
    (tmp_path / "out" / Path(command[-1]).name / "thesis.tex").write_text("precious")
    before = tiny.contents(tmp_path)
    assert "thesis.tex" in tiny.refused(capsys, *command, "--overwrite")
    assert tiny.contents(tmp_path) == before


@pytest.mark.parametrize(
    "wrong",
    [
        ["cluster", "RUN", "DATA", "-k", "5000", "-o", "a/groups"],
        ["embed", "RUN", "nowhere", "-o", "a/f.npz"],
        ["sample", "nowhere/run", "-o", "a/s"],
        ["export", "nowhere/run", "-o", "a/encoder"],
        ["ship", "nowhere/run", "-o", "a/copy"],
    ],
)
def test_a_command_that_fails_leaves_no_folder(wrong, run, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([{"RUN": str(run), "DATA": pictures}.get(word, word) for word in wrong]) == 2
    assert not (tmp_path / "a").exists()


def test_a_cluster_sheet_that_cannot_be_drawn_leaves_no_table(run, pictures, tmp_path, monkeypatch):
    def fail(self):
        raise MemoryError

    monkeypatch.setattr("sao.report.cluster_sheet.ClusterSheet.picture", fail)
    with pytest.raises(MemoryError):
        main(words("cluster", run, pictures, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["embed", "cluster"])
def test_names_of_files_are_no_formulas(name, run, pictures, tmp_path):
    assert main(words(name, run, pictures, tmp_path / "out")) == 0
    (table,) = (tmp_path / "out").rglob("*.csv")
    names = [line.split(",")[0] for line in table.read_text("utf-8-sig").splitlines()[1:]]
    assert sorted(names) == ["'+d.png", "'-b.png", "'=a.png", "'@c.png"]


@pytest.mark.parametrize(
    "option",
    [
        "--encoder.widths=[4,3000000]",
        "--encoder.widths=[4,3000000000000]",
        "--encoder.blocks=1000000000",
        "--method.bank=1000000000000",
    ],
)
def test_networks_that_no_memory_holds_are_one_line(option, tmp_path, capsys):
    said = tiny.refused(capsys, "train", *tiny.words(), option, "--out", tmp_path / "run")
    assert len([line for line in said.splitlines() if "warning" not in line]) == 1
    assert "GB" in said or "cannot be built" in said or "1000" in said
    assert not (tmp_path / "run").exists()
