"""Checkpoints: what is written comes back, what is damaged is named, and nothing is ever unpickled."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import tiny
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tiny import make_steps

from sao.config import load_preset
from sao.errors import InputError
from sao.methods import Method
from sao.training import checkpoint


def everything(method: Method) -> dict[str, torch.Tensor]:
    """Weights, EMAs, bank and moments, copied."""
    values = {name: value.clone() for name, value in method.state_dict().items()}
    for name, optimiser in method.optimisers.items():
        for index, quantities in optimiser.state_dict()["state"].items():
            values |= {f"{name}/{index}/{quantity}": torch.as_tensor(value).clone() for quantity, value in quantities.items()}
    return values


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """Checkpoints of steps 1 and 2."""
    folder, method = tmp_path_factory.mktemp("checkpoints"), tiny.method()
    for step in (1, 2):
        make_steps(method, step - 1, step)
        checkpoint.save(folder, method, step, keep=5)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    shutil.copytree(saved, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def load(folder: Path, method: Method | None = None) -> tuple[int, list[str]]:
    said: list[str] = []
    return checkpoint.load_latest(folder, method or tiny.method(), said.append), said


EVERY_KIND = ["structural", "self_conditioned", "stylegan2", "bigbigan", "genrep", "supervised", "random"]
SPECTRAL = {"method": "structural", "method__spectral_normalisation": True}


@pytest.mark.parametrize("options", [*({"method": name} for name in EVERY_KIND), SPECTRAL], ids=[*EVERY_KIND, "spectral"])
def test_everything_comes_back_and_goes_on_alike(options, tmp_path):
    method = tiny.method(**options)
    make_steps(method, 0, 2)
    checkpoint.save(tmp_path, method, 2, keep=1)
    restored = tiny.method(**options)
    assert load(tmp_path, restored) == (2, [])
    assert_equal(everything(restored), everything(method))
    make_steps(method, 2, 4)
    make_steps(restored, 2, 4)
    assert_equal(everything(restored), everything(method))


def test_what_is_held(folder):
    names = load_file(folder / "step-00000002" / "method.safetensors").keys()
    for part in ("discriminator.", "generator.", "ema_discriminator.", "ema_generator.", "bank."):
        assert any(name.startswith(part) for name in names)
    moments = load_file(folder / "step-00000002" / "optimisers.safetensors").keys()
    assert {key.split("/")[2] for key in moments} == {"exp_avg", "exp_avg_sq", "step"}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip, empty, Path.unlink])
@pytest.mark.parametrize("name", ["method.safetensors", "optimisers.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_passed_over(damage, name, folder):
    damage(folder / "step-00000002" / name)
    step, said = load(folder)
    assert step == 1
    assert len(said) == 1
    assert str(folder / "step-00000002") in said[0]
    assert "is damaged" in said[0]
    assert "\n" not in said[0]


STATES = ["[]", "{}", "null", '{"format": 1}', *(f'{{"format": 1, "step": 2, "checksums": {none}}}' for none in ("[]", "{}"))]


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_says_nothing_is_damage(state, folder):
    (folder / "step-00000002" / "state.json").write_text(state)
    assert load(folder)[0] == 1


def change_state(path: Path, **changes: object) -> None:
    (path / "state.json").write_text(json.dumps(json.loads((path / "state.json").read_text()) | changes))


def vouch_for(path: Path, name: str) -> None:
    """Make a checksum that of the file."""
    checksums = json.loads((path / "state.json").read_text())["checksums"]
    change_state(path, checksums=checksums | {name: checkpoint._checksum(path / name)})


@pytest.mark.parametrize(("key", "value"), [("step", 1), ("format", 9)])
def test_a_state_that_does_not_fit_its_folder_is_damage(key, value, folder):
    change_state(folder / "step-00000002", **{key: value})
    step, said = load(folder)
    assert step == 1
    assert "state.json says" in said[0]


def test_nothing_usable_is_one_line_that_names_each(folder):
    for path in folder.iterdir():
        flip(path / "method.safetensors")
    with pytest.raises(InputError, match="no usable checkpoint") as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)
    for step in (1, 2):
        assert f"step-0000000{step} is damaged" in str(refusal.value)
    with pytest.raises(InputError, match="no checkpoint yet: wait"):
        load(folder / "nowhere")


def test_a_checkpoint_of_another_network_is_refused(folder):
    with pytest.raises(InputError, match="of another network"):
        load(folder, tiny.method(encoder__widths="[4, 4]"))


def test_nothing_is_unpickled(folder, tmp_path):
    """Files that would run a program if they were unpickled, with checksums that are right."""

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    for name in ("method.safetensors", "optimisers.safetensors"):
        (folder / "step-00000002" / name).write_bytes(pickle.dumps({"a": Bomb()}))
        vouch_for(folder / "step-00000002", name)
        assert load(folder)[0] == 1
    assert not (tmp_path / "ran").exists()


def test_moments_under_strange_names_are_refused(folder):
    path = folder / "step-00000002"
    save_file({"discriminator/9999/exp_avg": torch.zeros(1)}, path / "optimisers.safetensors")
    vouch_for(path, "optimisers.safetensors")
    assert load(folder)[0] == 1


def test_the_latest_are_kept_and_unfinished_ones_swept_away(tmp_path):
    method = tiny.method(method="random")
    for unfinished in (".writing-00000001-1", ".step-00000001.writing-1"):  # of earlier versions, and of this
        (tmp_path / unfinished).mkdir()
    for step in range(1, 5):
        checkpoint.save(tmp_path, method, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_unless_asked_otherwise_a_damaged_last_one_leaves_one_to_go_on_from(tmp_path):
    method = tiny.method(method="random")
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, method, step, load_preset("own", {}).log.keep)
    flip(tmp_path / "step-00000015" / "method.safetensors")
    assert load(tmp_path, method)[0] == 10


def test_a_damaged_newer_one_does_not_push_a_good_one_out(tmp_path):
    method = tiny.method(method="random")
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, method, step, keep=3)
    for step in (10, 15):
        flip(tmp_path / f"step-000000{step}" / "method.safetensors")
    assert load(tmp_path, tiny.method(method="random"))[0] == 5
    checkpoint.save(tmp_path, method, 7, keep=1)
    assert load(tmp_path, tiny.method(method="random"))[0] == 7


def test_the_size_that_is_priced_is_the_size_on_disk(folder):
    """But for the names of the tensors, and a counter of each parameter."""
    path = folder / "step-00000002"
    tensors = load_file(path / "method.safetensors") | load_file(path / "optimisers.safetensors")
    numbers = sum(4 * value.numel() for name, value in tensors.items() if not name.endswith("/step"))
    assert checkpoint.size_on_disk(tiny.method()) == pytest.approx(numbers, rel=0.01)
    assert checkpoint.size_on_disk(tiny.method()) < sum(file.stat().st_size for file in path.iterdir())


def test_folders_on_the_way_are_made(tmp_path):
    method = tiny.method(method="random")
    with pytest.raises(InputError, match="cannot be written"):  # a run that was deleted is not made again
        checkpoint.save(tmp_path / "run" / "checkpoints", method, 1, keep=1)
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        checkpoint.save(tmp_path / "run" / "checkpoints", method, step, keep=1)
    assert load(tmp_path / "run" / "checkpoints", method)[0] == 2


def test_what_the_writer_says_is_passed_on(tmp_path, monkeypatch):
    def fail(*_):
        raise SafetensorError("no room\nand more")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(InputError, match=r"step-00000001 cannot be written \(no room\); those before it are kept"):
        checkpoint.save(tmp_path, tiny.method(method="random"), 1, keep=1)
    assert list(tmp_path.iterdir()) == []
