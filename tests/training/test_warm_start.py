"""A run that begins with the weights of another: which ones, what is adapted, and what is refused in a line."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from torch import Tensor

import sao
from sao.cli.main import main
from sao.config import load_preset
from sao.data.dataset import Dataset, Images
from sao.errors import InputError
from sao.methods import METHODS
from sao.models import run_folder
from sao.report import history
from sao.training import checkpoint
from sao.training.loop import new_method
from sao.training.run_folder import Run
from sao.training.warm_start import adapted, take_weights, with_source_networks, with_suited_start

SHORT = {"train.steps": "2", "train.batch": "16", "train.threads": "1", "log.every": "1", "log.report": "false"}
SHORT["log.evaluate_minutes"] = tiny.OPTIONS["log.evaluate_minutes"]
CPU = torch.device("cpu")


def pictures(n: int, size: int, channels: int) -> np.ndarray:
    return np.random.default_rng(size + channels).integers(0, 256, (n, size, size, channels), dtype=np.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Grey images of 8x8."""
    return tiny.trained(tmp_path_factory.mktemp("source") / "grey")[0].folder


@pytest.fixture(scope="module")
def colour(tmp_path_factory) -> Path:
    data = Dataset("colour", Images(pictures(90, 16, 3)), Images(pictures(20, 16, 3)))
    folder = tmp_path_factory.mktemp("source") / "colour"
    return tiny.trained(folder, data, method__spectral_normalisation="true")[0].folder


@pytest.fixture(scope="module")
def shipped(source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shipped") / "copy"
    assert main(["ship", str(source), "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def data(tmp_path) -> Callable[..., str]:
    def written(size: int = 8, channels: int = 1) -> str:
        np.save(tmp_path / "data.npy", pictures(80, size, channels))
        return str(tmp_path / "data.npy")

    return written


def words(data: str, start: Path | str, out: Path, **options: object) -> list[str]:
    given = SHORT | {name.replace("__", "."): str(value) for name, value in options.items()}
    own = [word for name, value in given.items() for word in (f"--{name}", value)]
    return ["train", "--data", data, "--start-from", str(start), "--out", str(out), *own]


def state(folder: Path, step: int) -> dict[str, Tensor]:
    path = folder / "checkpoints" / f"step-{step:08d}"
    return checkpoint.some_tensors(path, list(checkpoint.tensor_shapes(path)))


def networks(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith("bank.")}


def taken(method_options: dict[str, object], start: Path, shape: tuple[int, int, int]):
    """A new method with the weights of another run, as `sao train --data` builds it, and what was said."""
    given = {"train.start_from": str(start), **{name: str(value) for name, value in method_options.items()}}
    if given.get("method", "structural") == "structural":
        given["method.bank"] = "64"
    config, _ = with_source_networks(load_preset("own", given), given.keys())
    size, channels = shape[-1], shape[0]
    train = Images(pictures(300, size, channels), np.arange(300) % 10)
    data = Dataset("new", train, Images(pictures(20, size, channels), np.arange(20) % 10))
    method = new_method(config, data, CPU)
    fresh = {name: value.clone() for name, value in method.state_dict().items()}
    begun = take_weights(method, config, shape)
    return method, fresh, begun


# --- what is taken -------------------------------------------------------------------------------------------------------


def test_a_run_begins_with_the_weights_of_another_to_the_bit(source, data, tmp_path, capsys):
    out = tmp_path / "warm"
    assert main([*words(data(), source, out), "--log.keep", "5"]) == 0
    before, first = state(source, 8), state(out, 0)
    assert networks(before).keys() == networks(first).keys()
    assert all(torch.equal(value, first[name]) for name, value in networks(before).items())
    images = pictures(9, 8, 1)
    for path in checkpoint.steps_in(out / "checkpoints")[1:]:
        shutil.rmtree(path)
    begun = sao.load(out)
    assert begun.step == 0
    assert np.array_equal(begun.embed(images), sao.load(source).embed(images))
    train = Run.open(out).config.train
    assert train.start_from == str(source)
    assert train.start_weights.startswith("step 8, blake2b ")
    assert f"the weights are those of {source}, step 8" in (out / "log.txt").read_text()
    described = history.described(begun.config, begun.facts, 0, None, [], False)
    assert f"It began with the weights of {source} ({train.start_weights})." in described
    assert "starts fresh" not in (out / "log.txt").read_text()
    assert "encoder widths" not in capsys.readouterr().out, "--auto chose networks"


def test_optimisers_and_bank_start_fresh(source, data, tmp_path):
    out = tmp_path / "warm"
    assert main([*words(data(), source, out), "--log.keep", "5"]) == 0
    moments = out / "checkpoints" / "step-00000000" / checkpoint.OPTIMISERS
    assert moments.stat().st_size < 100, "the optimisers have moments before the first step"
    bank = {name: value for name, value in state(out, 0).items() if name.startswith("bank.")}
    assert bank
    assert not any(bool(value.any()) for value in bank.values())


def test_a_resumed_run_is_bit_equal_without_the_source(source, data, tmp_path):
    gone, one, other = tmp_path / "gone", tmp_path / "one", tmp_path / "other"
    shutil.copytree(source, gone)
    longer = {"train__steps": 5, "log__checkpoint_every": 3, "log__keep": 9}
    assert main(words(data(), gone, one, **longer)) == 0
    shutil.copytree(one, other)
    shutil.rmtree(gone)
    for begun in ("step-00000003", "step-00000000"):  # in the middle; before the first step
        for path in checkpoint.steps_in(other / "checkpoints"):
            if path.name > begun:
                shutil.rmtree(path)
        assert main(["resume", str(other)]) == 0
        assert tiny.rows(other) == tiny.rows(one)
        last = "checkpoints/step-00000005/"
        for name in (checkpoint.METHOD, checkpoint.OPTIMISERS):
            assert (other / last / name).read_bytes() == (one / last / name).read_bytes()


def test_a_run_killed_before_its_checkpoint_of_step_0_begins_again_from_the_same_weights(source, data, tmp_path, capsys):
    start, out = shutil.copytree(source, tmp_path / "start"), tmp_path / "warm"
    assert main(words(data(), start, out)) == 0
    rows = tiny.rows(out)
    shutil.rmtree(out / "checkpoints")
    assert main(["resume", str(out)]) == 0
    assert tiny.rows(out) == rows
    shutil.rmtree(out / "checkpoints")
    shutil.rmtree(start / "checkpoints" / "step-00000008")  # an older one is left
    assert "holds step 6" in tiny.refused(capsys, "resume", out)


def test_raw_and_ema_start_from_the_ema_of_a_shipped_model(source, shipped):
    method, _, begun = taken({}, shipped, (1, 8, 8))
    before, found = state(source, 8), method.state_dict()
    for name in ("discriminator", "generator"):
        averages = {key: value for key, value in before.items() if key.startswith(f"ema_{name}.network.")}
        assert averages
        for key, value in averages.items():
            assert torch.equal(found[key], value)
            assert torch.equal(found[key.replace(f"average_{name}.network.", f"{name}.")], value)
    assert not any("fresh" in note for note in begun.notes)


def test_a_generator_that_a_copy_does_not_hold_starts_fresh(shipped, tmp_path):
    part = shutil.copytree(shipped, tmp_path / "part")
    (path,) = checkpoint.steps_in(part / "checkpoints")
    kept = {name: value for name, value in state(part, 8).items() if "generator" not in name}
    shutil.rmtree(path)
    checkpoint.save_some(part / "checkpoints", kept, 8, ["backbone", "embedding"], half=False)
    method, fresh, begun = taken({}, part, (1, 8, 8))
    assert begun.notes[1:] == [f"generator starts fresh: {part} does not hold it"]
    found = method.state_dict()
    assert all(torch.equal(found[name], value) for name, value in fresh.items() if "generator" in name)
    assert all(torch.equal(found[name], value) for name, value in kept.items())


def test_a_model_in_the_box_is_taken_by_its_name(tmp_path):
    method, _, begun = taken({}, Path("mnist16"), (1, 16, 16))
    assert begun.config.train.start_from == "mnist16"
    images = pictures(7, 16, 1)
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1
    features = method.eval().features(inputs)
    torch.testing.assert_close(features, torch.from_numpy(sao.load("mnist16").embed(images)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"genrep"}))
def test_the_networks_of_every_method_are_taken(name, tmp_path):
    """With the options of its networks: nothing starts fresh, and raw weights, EMAs and teachers are the source's."""
    run, source = tiny.trained(tmp_path / name, method=name, train__steps=2)
    method, _, begun = taken({"method": name}, run.folder, (1, 8, 8))
    assert not any("fresh" in note for note in begun.notes), begun.notes
    trained = {key for key, _ in source.named_parameters()}
    found, before = method.state_dict(), source.state_dict()
    assert trained
    assert all(torch.equal(found[key], before[key]) for key in trained)


def test_the_encoder_alone_is_taken_for_another_method(source, capsys):
    method, _, begun = taken({"method": "simclr"}, source, (1, 8, 8))
    inputs = tiny.batch().inputs
    assert torch.equal(method.eval().features(inputs), sao.load(source).method.features(inputs))
    assert any("only the encoder is taken" in note for note in begun.notes)


# --- what is adapted -----------------------------------------------------------------------------------------------------


def test_grey_images_have_the_features_of_the_same_images_in_three_equal_colours(colour):
    method, _, begun = taken({}, colour, (1, 16, 16))
    grey = torch.rand(6, 1, 16, 16) * 2 - 1
    there = sao.load(colour).method
    # Spectral normalisation of the summed convolution changes the scale of its outputs alone.
    stem = method.get_submodule("ema_discriminator.network.encoder.stem").eval()
    other = there.get_submodule("ema_discriminator.network.encoder.stem").eval()
    made, expected = stem(grey), other(grey.expand(-1, 3, -1, -1))
    torch.testing.assert_close(made / made.norm(), expected / expected.norm(), rtol=1e-4, atol=1e-5)
    assert "adapted from colour to grey" in begun.notes[0]


def test_colour_images_have_the_features_of_their_mean(source):
    method, _, begun = taken({}, source, (3, 8, 8))
    images = torch.rand(6, 3, 8, 8) * 2 - 1
    expected = sao.load(source).method.features(images.mean(1, keepdim=True))
    torch.testing.assert_close(method.eval().features(images), expected, rtol=1e-4, atol=1e-5)
    assert "adapted from grey to colour" in begun.notes[0]
    made = method.decode(torch.randn(4, 8))  # pyright: ignore[reportCallIssue]
    assert made.shape == (4, 3, 8, 8)
    torch.testing.assert_close(made, made[:, :1].expand(-1, 3, -1, -1))


def test_spectral_norms_of_adapted_layers_are_estimated_anew(source):
    method, _, _ = taken({}, source, (3, 8, 8))
    for name in ("generator", "ema_generator.network"):
        weight = method.get_submodule(f"{name}.last").eval().get_parameter("parametrizations.weight.original").detach()
        weight = method.get_submodule(f"{name}.last.parametrizations.weight.0")(weight)
        assert float(torch.linalg.matrix_norm(weight.flatten(1), 2)) == pytest.approx(1, abs=0.05)


def test_a_patch_of_colours_becomes_a_patch_of_greys():
    stored, pixels = torch.randn(5, 3 * 4, 3, 3), torch.rand(2, 1, 8, 8)
    grey = adapted(stored, torch.Size((5, 4, 3, 3)), 3, 1)
    assert grey is not None
    unshuffled = torch.nn.functional.pixel_unshuffle
    made = torch.nn.functional.conv2d(unshuffled(pixels, 2), grey)
    expected = torch.nn.functional.conv2d(unshuffled(pixels.expand(-1, 3, -1, -1), 2), stored)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


def test_the_size_is_that_of_the_source_and_the_generator_starts_fresh_at_another(colour, data, tmp_path, capsys):
    assert main(words(data(24, 3), colour, tmp_path / "same")) == 0
    assert Run.open(tmp_path / "same").facts.shape == (3, 16, 16)
    capsys.readouterr()
    assert main(words(data(24, 3), colour, tmp_path / "larger", data__size=32, log__keep=5)) == 0
    said = (tmp_path / "larger" / "log.txt").read_text()
    assert f"generator starts fresh: {colour} is for images of 3x16x16, and this data has 3x32x32" in said
    found, before = state(tmp_path / "larger", 0), state(colour, 8)
    assert all(torch.equal(found[name], value) for name, value in before.items() if name.startswith("discriminator."))


# --- commands ------------------------------------------------------------------------------------------------------------


def test_a_dry_run_prices_it_and_writes_nothing(source, data, tmp_path, capsys):
    assert main([*words(data(), source, tmp_path / "warm"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "whole run   2 steps" in said
    assert f"the weights are those of {source}" in said
    assert not (tmp_path / "warm").exists()


def test_python_starts_from_a_run_too(source, tmp_path):
    options = {key: value for key, value in SHORT.items() if key != "train.steps"}
    model = sao.train(pictures(80, 8, 1), tmp_path / "warm", steps=1, start_from=source, options=options)
    assert model.config.train.start_from == str(source)
    assert model.config.encoder == Run.open(source).config.encoder


def test_a_warm_run_can_be_given_away_without_the_path(source, data, tmp_path):
    assert main(words(data(), source, tmp_path / "warm")) == 0
    assert main(["ship", str(tmp_path / "warm"), "-o", str(tmp_path / "copy")]) == 0
    assert Run.open(tmp_path / "copy").config.train.start_from == source.name


@pytest.mark.parametrize(
    ("start", "options", "said"),
    [
        ("mnist61", {}, "did you mean mnist16?"),
        ("no/such/run", {}, "no/such/run"),
        ("damaged", {}, "no usable checkpoint"),
        ("unbegun", {}, "has no checkpoint yet"),
        ("source", {"encoder__widths": "[4, 16]"}, "--encoder.widths is 4, 16 and"),
        ("source", {"encoder": "perceptron"}, "--encoder is perceptron and"),
        ("source", {"method__embedding_size": 16}, "--method.embedding_size is 16 and"),
        ("source", {"method__generator__width": 8}, "--method.generator.width is 8 and"),
        ("source", {"data__size": 64}, "fold, and for this image size it would be"),
        ("source", {"method": "mae"}, "which method mae cannot start from"),
        ("source", {"train__start_weights": "step 1, blake2b 00"}, "not step 1, blake2b 00"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(start, options, said, source, data, tmp_path, capsys):
    if start == "source":
        start = str(source)
    elif start in ("damaged", "unbegun"):
        folder = shutil.copytree(source, tmp_path / start)
        for path in checkpoint.steps_in(folder / "checkpoints"):
            if start == "damaged":
                (path / checkpoint.METHOD).write_bytes(b"nothing")
            else:
                shutil.rmtree(path)
        start = str(folder)
    assert said in tiny.refused(capsys, *words(data(), start, tmp_path / "warm", **options))
    assert not (tmp_path / "warm").exists()


def test_vectors_cannot_start_from_images(source, tmp_path, capsys):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(60, 4)))
    tiny.refused(capsys, *words(str(tmp_path / "vectors.npy"), source, tmp_path / "warm"))
    assert not (tmp_path / "warm").exists()


def test_a_run_with_a_link_in_it_is_refused(source, data, tmp_path, capsys):
    folder = shutil.copytree(source, tmp_path / "linked")
    (folder / "extra").symlink_to(tmp_path)
    assert "symbolic link" in tiny.refused(capsys, *words(data(), folder, tmp_path / "warm"))


def test_a_run_keeps_what_it_began_with_when_it_goes_on(source, data, tmp_path, capsys):
    assert main(words(data(), source, tmp_path / "warm")) == 0
    said = tiny.refused(capsys, "resume", tmp_path / "warm", "--train.start_from", "mnist16")
    assert "cannot be changed when a run goes on" in said


def test_other_channels_than_grey_and_colour_are_refused(source):
    with pytest.raises(InputError, match="only grey and colour"):
        taken({}, source, (2, 8, 8))


@pytest.mark.parametrize("name", ["structural", "byol", "dino"])
def test_names_of_followers_are_those_of_tensors(name):
    method = tiny.method(method=name)
    names = list(method.state_dict())
    followers = method.followers()
    assert followers
    for prefix in (*followers, *followers.values()):
        assert any(tensor.startswith(prefix) for tensor in names), prefix


# --- the model in the box ------------------------------------------------------------------------------------------------

TINY_STEPS = ["--train.steps", "1", "--train.batch", "8", "--train.threads", "1", "--log.report", "false"]
TINY_STEPS += ["--log.evaluate_minutes", SHORT["log.evaluate_minutes"]]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """A folder of colour pictures larger than a processor learns from."""
    folder = tmp_path_factory.mktemp("photographs") / "data"
    folder.mkdir()
    for index, pixels in enumerate(pictures(30, 70, 3)):
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def test_photographs_begin_with_the_model_in_the_box_and_the_run_goes_on(photographs, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "--data", str(photographs), "--out", str(out), "--why", *TINY_STEPS]) == 0
    assert "auto: the weights of photos32 to begin with, because" in capsys.readouterr().out
    run, box = Run.open(out), Run.open(run_folder("photos32"))
    assert (run.config.train.start_from, run.facts.shape, run.config.data.size) == ("photos32", (3, 32, 32), 32)
    stem = "ema_discriminator.network.encoder.stem.weight"
    begun, first = (checkpoint.some_tensors(checkpoint.steps_in(one.checkpoints)[-1], [stem])[stem] for one in (box, run))
    torch.testing.assert_close(first, begun, atol=2e-3, rtol=0)  # after one step
    assert main(["resume", str(out), "--train.steps", "2"]) == 0
    assert main(["train", "--data", str(photographs), "--dry-run", *TINY_STEPS]) == 0
    assert "the weights are those of photos32" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--start-from", "none"], ["--encoder.widths", "[4,8]"], ["--method", "hinge"]])
def test_who_wants_other_weights_gets_them(photographs, tmp_path, options):
    assert main(["train", "--data", str(photographs), "--out", str(tmp_path / "run"), *options, *TINY_STEPS]) == 0
    config = Run.open(tmp_path / "run").config
    assert (config.train.start_from, config.data.size) == ("", 32), "files of 70 pixels are read at 32 again when it goes on"


def test_grey_images_and_other_sizes_begin_afresh(tmp_path):
    for name, size, channels in (("grey", 32, 1), ("large", 64, 3)):
        train = Images(pictures(20, size, channels))
        begun = with_suited_start(load_preset("own", {}), train, set())
        assert (begun.config.train.start_from, begun.notes) == ("", []), name
