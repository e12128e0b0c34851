"""hf:OWNER/NAME is a model of the Hugging Face Hub: fetched when asked for, read as a stranger's, refused in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from local_hub import LocalHub, serving
from PIL import Image

import sao
from sao.cli.main import main
from sao.errors import InputError

pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Two models as `sao ship` writes them, first/ with files beside it that are none of its own, and a whole run."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("first", "second"):
        method = tiny.method()
        if name == "second":
            for tensor in method.parameters():
                tensor.data += 0.03
        run = tiny.untrained(folder / f"{name}-run", method)
        assert main(["ship", str(run.folder), "-o", str(folder / name), "--licence", "MIT"]) == 0
    (folder / "first/setup.py").write_text("raise SystemExit('nobody runs this')")
    (folder / "first/pytorch_model.bin").write_bytes(b"no pickle is read")
    (folder / "first/checkpoints/step-00000008/deeper").mkdir()
    (folder / "first/checkpoints/step-00000008/deeper/method.safetensors").write_bytes(b"none of its own")
    return folder


@pytest.fixture
def hub(models, tmp_path, monkeypatch):
    """On a port of this machine, with the first model as main and the second as v2; its cache is empty."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving() as local:
        monkeypatch.setattr(constants, "ENDPOINT", local.address)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", local.address + "".join(template[1:]))
        local.add("somebody/digits", models / "first")
        local.add("somebody/digits", models / "second", "v2")
        local.add("somebody/run", models / "first-run")
        yield local


def images(n: int = 12) -> np.ndarray:
    return np.asarray(tiny.dataset().test.pixels[:n])  # pyright: ignore[reportAttributeAccessIssue]


def test_a_model_of_the_hub_is_the_model(hub: LocalHub, models):
    for name, folder in (("hf:somebody/digits", "first"), ("hf:somebody/digits@v2", "second")):
        ours, theirs = sao.load(models / folder, device="cpu"), sao.load(name, device="cpu")
        np.testing.assert_array_equal(theirs.embed(images()), ours.embed(images()))
        np.testing.assert_array_equal(theirs.sample(3), ours.sample(3))
    first, second = (sao.load(models / name, device="cpu").embed(images()) for name in ("first", "second"))
    assert not np.array_equal(first, second)


def test_only_the_files_of_a_model_are_fetched_and_only_once(hub: LocalHub):
    assert sao.load("hf:somebody/digits", device="cpu").step == 8
    inner = "checkpoints/step-00000008"
    wanted = {"sao-run.json", "config.yaml", "data.json", f"{inner}/method.safetensors", f"{inner}/state.json"}
    assert wanted <= set(hub.asked)
    assert set(hub.asked) - wanted <= {f"{inner}/deeper/method.safetensors"}  # fetched, as the pattern has it, and left
    assert not list(sao.load("hf:somebody/digits", device="cpu").partial.path.rglob("deeper"))  # pyright: ignore[reportOptionalMemberAccess]
    assert len(hub.asked) == len(set(hub.asked))


def test_what_was_fetched_is_there_without_a_network(hub: LocalHub, monkeypatch):
    from huggingface_hub import constants

    expected = sao.load("hf:somebody/digits", device="cpu").embed(images())
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
    np.testing.assert_array_equal(sao.load("hf:somebody/digits", device="cpu").embed(images()), expected)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:digits", "hf:digits is no name on the Hugging Face Hub: write hf:OWNER/NAME"),
        ("hf:../../etc", "is no name on the Hugging Face Hub"),
        ("hf:nobody/digits", "nobody/digits is not on the Hugging Face Hub, or is private"),
        ("hf:somebody/digits@v3", "somebody/digits has no revision v3"),
        ("hf:somebody/run", "somebody/run on the Hugging Face Hub is no model of sao"),
    ],
)
def test_what_is_not_there_is_one_line(hub: LocalHub, name, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sample", name, "-o", "x.png"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert [line for line in error.splitlines() if line.startswith("sao: ")] == [error.splitlines()[-1]]
    assert not Path("x.png").exists()


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_out_of_reach_is_one_line(hub: LocalHub, offline, monkeypatch):
    from huggingface_hub import constants

    if offline:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be fetched, and is not in the Hub's cache") as caught:
        sao.load("hf:somebody/digits")
    assert "\n" not in str(caught.value)
    assert not hub.asked


def test_without_the_extra_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"needs huggingface_hub: pip install 'sao\[hub\]'"):
        sao.load("hf:somebody/digits")


def test_damaged_weights_of_the_hub_are_refused(hub: LocalHub, models, tmp_path):
    shutil.copytree(models / "second", tmp_path / "damaged")
    weights = tmp_path / "damaged/checkpoints/step-00000008/method.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"0000")
    hub.add("somebody/damaged", tmp_path / "damaged")
    with pytest.raises(InputError, match="checksum"), pytest.warns(UserWarning, match="trying the one before"):
        sao.load("hf:somebody/damaged", device="cpu")


def test_the_command_embeds_a_folder_with_a_model_of_the_hub(hub: LocalHub, models, tmp_path):
    """As a person types it, in a process of its own, which finds the Hub by HF_ENDPOINT."""
    for number, image in enumerate(images(3)):
        Image.fromarray(image[..., 0]).save(tmp_path / f"{number}.png")
    words = [sys.executable, "-m", "sao", "embed", "hf:somebody/digits@v2", str(tmp_path), "-o", str(tmp_path / "f.npz")]
    own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "SAO_CACHE": str(tmp_path / "sao")}
    own |= {"PYTHONPATH": str(Path(sao.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "f.npz")["features"]
    np.testing.assert_allclose(found, sao.load(models / "second", device="cpu").embed(images(3)), rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.glob("sao-hub-*"))  # the copy is gone with the process
