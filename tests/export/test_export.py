"""Exported networks compute what the run computes, or nothing is written; they need no sao."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

import sao
from sao.cli.main import main
from sao.data.dataset import Dataset, Images, Standardiser, Vectors
from sao.data.files.decode import Recipe, fit, whole_image
from sao.errors import InputError
from sao.export import Whole, whole_encoder, whole_generator, write
from sao.export.any_size import OfAnySize
from sao.export.writing import open_onnx, open_program
from sao.networks.base import Encoder
from sao.networks.vit import VisionTransformer
from sao.runtime.torchvision_import import import_torchvision
from sao.training import checkpoint
from sao.training.loop import new_method
from sao.training.run_folder import DataFacts, Run

ENCODERS = {  # the paper's own is that of the other tests
    "resnet, spectral": {"method__spectral_normalisation": "true"},
    "resnet, batch norm": {"method": "simclr", "encoder": "resnet", "encoder__norm": "batch", "encoder__widths": "[4, 8]"},
    "biggan": {"method": "biggan"},
    "vit": {"method": "mae"},
    "unet": {"method": "ddpm"},
    "convolutions": {"method": "self_conditioned"},
    "style": {"method": "stylegan2"},
}


SLOW = ("resnet, batch norm", "biggan", "unet", "convolutions", "style")


def run_of(folder: Path, data: Dataset | None = None, standardiser: Standardiser | None = None, **options) -> Path:
    """A run whose weights and statistics are all away from where they begin, as after training."""
    data, settings = data or tiny.dataset(), tiny.config(**options)
    facts = DataFacts.of(data, None if standardiser is None else standardiser.to_dict())
    run = Run.create(folder, settings, facts)
    method = new_method(settings, data, torch.device("cpu"))
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in method.state_dict().items():
            if tensor.is_floating_point() and not name.endswith(("._u", "._v")):
                tensor += 0.1 * torch.rand(tensor.shape, generator=draws)
    checkpoint.save(run.checkpoints, method, 3, keep=1)
    return folder


def images(n: int = 20) -> np.ndarray:
    test = tiny.dataset().test
    assert isinstance(test, Images)
    return np.ascontiguousarray(test.pixels[:n])


def table() -> tuple[Dataset, Standardiser, np.ndarray]:
    """Rows with a column that never varies and one whose mean is large against its deviation."""
    draws = np.random.default_rng(0)
    rows = np.stack([draws.normal(1e7, 3, 80), np.full(80, 5.0), draws.normal(0, 1, 80), draws.normal(-2, 9, 80)], axis=1)
    standardiser = Standardiser.fit(rows, ["a", "b", "c", "d"], 16.0, seed=0)
    samples = Vectors(standardiser.apply(rows))
    return Dataset("rows", samples, samples), standardiser, rows


VECTORS = {
    "encoder": "perceptron",
    "encoder__width": "16",
    "method__generator__width": "8",
    "method__generator__latent_size": "8",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_of(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(
    "options",
    [pytest.param(options, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, options in ENCODERS.items()],
)
def test_every_encoder_as_onnx_and_as_plain_torch(options, tmp_path):
    model = sao.load(run_of(tmp_path / "run", **options))
    expected = model.embed(images())
    for name in ("e.onnx", "folder"):  # a .pt2 file is the program that an .onnx file is made of; see the tests below
        difference, function = write(tmp_path / name, whole_encoder(model), images(), "An encoder.")
        assert difference <= 1e-4
        assert (tmp_path / name).exists()
        found = function(images(7))
        assert found.shape == (7, expected.shape[1])
        np.testing.assert_allclose(found, expected[:7], rtol=0, atol=1e-4 * np.abs(expected).max())
    assert np.ptp(expected, axis=0).max() > 1e-3  # features that do not depend on the image would agree with anything
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", [pytest.param("e.onnx", marks=pytest.mark.slow), "folder"])
def test_features_of_all_layers(run, name, tmp_path):
    model = sao.load(run)
    expected = model.embed(images(), "layers")
    assert expected.shape[1] > model.embed(images(1)).shape[1]
    _, function = write(tmp_path / name, whole_encoder(model, "layers"), images(), "An encoder.")
    np.testing.assert_allclose(function(images(7)), expected[:7], rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("ending", [pytest.param("onnx", marks=pytest.mark.slow), "pt2", "folder"])
def test_rows_come_in_their_original_units(ending, tmp_path):
    data, standardiser, rows = table()
    model = sao.load(run_of(tmp_path / "run", data, standardiser, **VECTORS))
    target = tmp_path / (f"e.{ending}" if ending != "folder" else "folder")
    _, function = write(target, whole_encoder(model), rows, "An encoder.")
    expected = model.embed(rows)
    np.testing.assert_allclose(function(rows[:3]), expected[:3], rtol=0, atol=1e-4 * np.abs(expected).max())
    latents = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    _, function = write(target.with_name(f"g{target.suffix}"), whole_generator(model), latents, "A generator.")
    np.testing.assert_allclose(function(latents), model.decode(torch.from_numpy(latents)), rtol=1e-4)


@pytest.mark.parametrize("name", ["g.onnx", "folder"])
def test_the_generator_too(run, name, tmp_path):
    model = sao.load(run)
    latents = np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)
    _, function = write(tmp_path / name, whole_generator(model), latents, "A generator.")
    drawn, expected = function(latents), model.decode(torch.from_numpy(latents))
    assert drawn.dtype == np.uint8
    assert drawn.shape == expected.shape == (9, 8, 8, 1)
    assert np.abs(drawn.astype(int) - expected.astype(int)).max() <= 1
    assert np.ptp(expected) > 10


def test_an_onnx_file_has_the_scaling_inside_and_a_batch_of_any_length(run, tmp_path):
    import onnxruntime

    assert main(["export", str(run), "-o", str(tmp_path / "e.onnx"), "--feature", "embedding"]) == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "e.onnx"))
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [8, 8, 1])
    assert isinstance(given.shape[0], str)
    assert made.name == "features"
    for n in (1, 13):
        found = np.asarray(session.run(None, {"images": images(n)})[0])
        np.testing.assert_allclose(found, sao.load(run).embed(images(n), "embedding"), atol=1e-4)


def test_the_operators_for_the_cpu_would_be_wrong_and_are_found_out(run, tmp_path, monkeypatch):
    """What is written without the switch differs from the run: an error, and no file."""
    for name in ("whole", "writing"):
        monkeypatch.setattr(importlib.import_module(f"sao.export.{name}"), "portable", nullcontext)
    with pytest.raises(InputError, match=r"differs from the run|cannot be exported"):
        write(tmp_path / "e.onnx", whole_encoder(sao.load(run)), images(), "An encoder.")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["e.pt2", "folder"])
def test_what_differs_is_not_written(run, name, tmp_path):
    whole = whole_encoder(sao.load(run))
    wrong = Whole(whole.module, whole.example, lambda x: whole.expected(x) * 1.001, "images", "features", "encoder")
    with pytest.raises(InputError, match=r"differs from the run by 1\.0e-03"):
        write(tmp_path / name, wrong, images(), "An encoder.")
    assert not list(tmp_path.iterdir())


ALONE = """
import sys
for name in ("sao", "safetensors", "timm"):
    sys.modules[name] = None  # importing it fails
sys.path.insert(0, sys.argv[1])
import torch
from encoder import load
model = load()
images = torch.frombuffer(bytearray(open(sys.argv[2], "rb").read()), dtype=torch.uint8).reshape(5, 8, 8, 1)
features = model(images)
maps = model.forward_features(model.prepared(images))
assert maps.ndim == 4 and maps.shape[1] == model.num_features == features.shape[1], maps.shape
assert torch.equal(model.forward_head(maps), features)
assert model.pretrained_cfg["input_size"] == (1, 8, 8)
features.sum().backward()  # it can be trained further
assert all(p.grad is not None for p in model.parameters())
assert set(model.state_dict()) == set(__import__("encoder").read_weights())
model.half().float()
print(",".join(str(value) for value in features.flatten().tolist()))
"""


def test_the_folder_needs_torch_alone(run, tmp_path):
    assert main(["export", str(run), "-o", str(tmp_path / "plain")]) == 0
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == ["encoder.py", "weights.safetensors"]
    (tmp_path / "images").write_bytes(images(5).tobytes())
    words = [sys.executable, "-c", ALONE, str(tmp_path / "plain"), str(tmp_path / "images")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = sao.load(run).embed(images(5))
    np.testing.assert_allclose(np.fromstring(done.stdout, sep=",").reshape(expected.shape), expected, rtol=1e-4, atol=1e-6)


# --- timm's way to ask for maps ------------------------------------------------------------------------------------------


def loaded(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("exported_encoder", folder / "encoder.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


def outputs_of(blocks: Iterable[nn.Module], model: sao.Model) -> list[torch.Tensor]:
    """What blocks of the run's own encoder give for the images, in `sao` itself."""
    found: list[torch.Tensor] = []

    def keep(_block: nn.Module, _inputs: tuple, output: torch.Tensor) -> None:
        found.append(output)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    model.embed(images())
    for hook in hooks:
        hook.remove()
    return found


def test_intermediates_are_the_maps_of_every_stage(run, tmp_path):
    model = sao.load(run, device="cpu")
    write(tmp_path / "plain", whole_encoder(model), images(), "An encoder.")
    encoder, pixels = loaded(tmp_path / "plain"), torch.from_numpy(images())
    (network,) = (p for name, p in model.method_for("backbone").named_modules() if isinstance(p, Encoder) and "ema" in name)
    maps = outputs_of(network.blocks_of_maps(), model)
    assert [one["num_chs"] for one in encoder.feature_info] == [one.shape[1] for one in maps] == [4, 8]
    assert [one["reduction"] for one in encoder.feature_info] == [8 // one.shape[2] for one in maps]
    last, found = encoder.forward_intermediates(pixels)
    for expected, given in zip(maps, found, strict=True):
        torch.testing.assert_close(given, expected.contiguous(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, encoder.forward_features(encoder.prepared(pixels)))
    np.testing.assert_allclose(encoder.forward_head(last).detach(), model.embed(images()), rtol=1e-4, atol=1e-5)
    (alone,) = encoder.forward_intermediates(pixels, 1, intermediates_only=True)
    torch.testing.assert_close(alone, found[-1])
    early, (first,) = encoder.forward_intermediates(pixels, [-2], stop_early=True)
    torch.testing.assert_close(first, found[0])
    torch.testing.assert_close(early, found[0])
    for wrong in (0, 3, [2], [-3], []):
        with pytest.raises(ValueError, match="indices must choose among 2 maps"):
            encoder.forward_intermediates(pixels, wrong)
    with pytest.raises(ValueError, match="output_fmt must be NCHW"):
        encoder.forward_intermediates(pixels, output_fmt="NLC")


def test_timm_takes_the_encoder_for_one_of_its_own(run, tmp_path):
    """Its wrapper asks for maps by number; its own rule chooses the same ones."""
    import_torchvision()
    pytest.importorskip("timm")
    from timm.models._features import FeatureGetterNet, feature_take_indices
    from timm.models.resnet import ResNet

    write(tmp_path / "plain", whole_encoder(sao.load(run, device="cpu")), images(), "An encoder.")
    encoder, pixels = loaded(tmp_path / "plain"), torch.from_numpy(images(3))
    every = encoder.forward_intermediates(pixels, intermediates_only=True)
    for indices in (None, 1, 2, [0], [1, 0], [-1]):
        taken, _ = feature_take_indices(2, indices)
        found = encoder.forward_intermediates(pixels, indices, intermediates_only=True)
        assert [tuple(one.shape) for one in found] == [tuple(every[i].shape) for i in sorted(taken)]
    getter = FeatureGetterNet(encoder, out_indices=(0, 1))
    assert getter.feature_info.channels() == [4, 8]
    for given, expected in zip(getter(encoder.prepared(pixels)), every, strict=True):
        torch.testing.assert_close(given, expected)
    theirs = inspect.signature(ResNet.forward_intermediates).parameters
    ours = inspect.signature(type(encoder).forward_intermediates).parameters
    assert [(one.name, one.default) for one in ours.values()] == [(one.name, one.default) for one in theirs.values()]


def test_intermediates_of_a_transformer_are_its_tokens_as_maps(tmp_path):
    model = sao.load(run_of(tmp_path / "run", method="mae"), device="cpu")
    write(tmp_path / "plain", whole_encoder(model), images(), "An encoder.")
    method = model.method_for("backbone")
    (vit,) = (part for part in method.modules() if isinstance(part, VisionTransformer))
    tokens = outputs_of(vit.blocks, model)
    found = loaded(tmp_path / "plain").forward_intermediates(torch.from_numpy(images()), intermediates_only=True)
    assert len(found) == len(tokens) > 0
    for given, expected in zip(found, tokens, strict=True):
        assert given.shape[2:] == (vit.side, vit.side)
        torch.testing.assert_close(given.flatten(2).mT, expected[:, 1:], rtol=1e-4, atol=1e-5)


def test_wrong_maps_are_not_written(run, tmp_path, monkeypatch):
    """Maps that come from another line of the graph than the end of their block."""
    plain = importlib.import_module("sao.export.plain")
    right = plain._maps
    monkeypatch.setattr(plain, "_maps", lambda *given: [plain.Map(m.node.all_input_nodes[0], m.block) for m in right(*given)])
    with pytest.raises(InputError, match="the maps of the exported encoder differ from the run"):
        write(tmp_path / "plain", whole_encoder(sao.load(run)), images(), "An encoder.")
    assert not list(tmp_path.iterdir())


def test_only_the_network_that_is_used_is_written(run):
    model = sao.load(run)
    whole = whole_encoder(model)
    used = sum(p.numel() for p in whole.module.parameters())
    discriminator = model.method.get_submodule("ema_discriminator.network")
    encoder = discriminator.encoder
    assert isinstance(encoder, nn.Module)
    assert used == sum(p.numel() for p in encoder.parameters())


def test_the_command_says_what_it_did(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", str(tmp_path / "g.pt2"), "--generator"]) == 0
    said = capsys.readouterr().out
    assert "generator of step 3 in" in said
    assert "latents (nx8, float32) → images" in said
    assert "agrees with the run on 64 latents" in said
    assert "samples/s" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "-o", "e.tflite"], "must end in .onnx or .pt2"),
        (["RUN", "-o", "full"], "full exists and is not an empty folder"),
        (["nowhere", "-o", "e.pt2"], "is not a run"),
        (["RUN", "-o", "e.pt2", "--data", "nothing"], "there is no file or folder nothing"),
    ],
)
def test_bad_input_is_one_line(run, arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("full").mkdir()
    Path("full/file").touch()
    assert main(["export", *(str(run) if word == "RUN" else word for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_missing_package_is_one_line(run, tmp_path, monkeypatch, capsys):
    known = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "onnxruntime" else known(name, *more))
    assert main(["export", str(run), "-o", str(tmp_path / "e.onnx")]) == 2
    assert "writing .onnx needs onnxruntime: pip install 'sao[export]'" in capsys.readouterr().err


def test_a_generator_that_draws_on_its_way_is_refused_in_one_line(tmp_path):
    model = sao.load(run_of(tmp_path / "run", method="ddpm"))
    with pytest.raises(InputError, match="generator of this run cannot be exported in this form"):
        write(tmp_path / "g.pt2", whole_generator(model), np.zeros((3, 1, 8, 8), np.float32), "A generator.")
    assert not (tmp_path / "g.pt2").exists()


# --- images of any size --------------------------------------------------------------------------------------------------


def photographs(folder: Path) -> Path:
    """Real photographs, which come with scikit-learn, as files of several sizes and kinds; one of them lies on its side."""
    folder.mkdir()
    for number, (pixels, size) in enumerate(
        zip(2 * load_sample_images().images, [(640, 427), (97, 301), (150, 150), (33, 20)], strict=True)
    ):
        picture = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
        exif = picture.getexif()
        exif[0x0112] = 6 if number == 1 else 1
        picture.save(folder / f"{number}.{'jpg' if number % 2 else 'png'}", exif=exif)
    return folder


@pytest.mark.parametrize("fit_", ["crop", "pad", "centre"])
@pytest.mark.parametrize(
    "size", [(427, 640), (301, 97), (16, 16), (11, 20), (640, 3), (2, 99)], ids=lambda size: "x".join(map(str, size))
)
def test_images_are_prepared_in_the_graph_as_pillow_does_it(fit_, size):
    picture = Image.fromarray(load_sample_images().images[0]).resize(size[::-1], Image.Resampling.BICUBIC)
    recipe = Recipe(16, 3, fit_)
    found = OfAnySize(nn.Identity(), recipe).prepared(torch.from_numpy(np.array(picture)[None]))[0].permute(1, 2, 0).numpy()
    apart = np.abs(found - fit(picture, recipe).astype(np.float32))
    assert apart.max() <= 2  # Pillow may begin with the rows of a tall image, and rounds between
    assert apart.mean() < 0.2


@pytest.fixture(scope="module")
def colour_run(tmp_path_factory) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    data = Dataset("noise", Images(pixels[:30]), Images(pixels[30:]))
    return run_of(tmp_path_factory.mktemp("runs") / "colour", data, method__bank="8")


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_file_that_takes_images_of_any_size_says_how_far_it_is_from_sao(colour_run, tmp_path, capsys, ending):
    folder, target = photographs(tmp_path / "photos"), tmp_path / f"encoder.{ending}"
    assert main(["export", str(colour_run), "-o", str(target), "--any-size", "--data", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "images (nxhxwx3, uint8) → features" in said
    assert (
        "it prepares images so: upright, transparency on white, the centre square, resized to 16x16 by Pillow's LANCZOS" in said
    )
    assert "on 4 image files of 4 sizes, against sao's own preparation, which " in said
    function = (open_onnx if ending == "onnx" else open_program)(target)
    expected = sao.load(colour_run, device="cpu").embed(folder)
    for path, ours in zip(sorted(folder.iterdir()), expected, strict=True):
        image = whole_image(str(path), 3)
        assert image is not None
        (theirs,) = function(image[None])
        assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.999


def test_an_export_says_how_images_are_prepared(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", str(tmp_path / "plain")]) == 0
    text = "upright, transparency on white, the centre square, resized to 8x8 by Pillow's LANCZOS filter"
    assert f"prepare images so: {text}; grey (Pillow's L) as bytes, then x / 127.5 - 1" in capsys.readouterr().out
    assert text in (tmp_path / "plain" / "encoder.py").read_text()


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_file_itself_says_how_images_are_prepared(ending, tmp_path):
    whole = Whole(nn.Flatten(), torch.zeros(2, 4), lambda x: x, "images", "features", "encoder", preparation="upright, grey")
    write(tmp_path / f"e.{ending}", whole, np.ones((3, 4), np.float32), "An encoder.")
    if ending == "onnx":
        import onnxruntime

        said = onnxruntime.InferenceSession(str(tmp_path / "e.onnx")).get_modelmeta().custom_metadata_map["preparation"]
    else:
        kept = {"preparation.txt": ""}
        torch.export.load(tmp_path / "e.pt2", extra_files=kept)
        said = kept["preparation.txt"]
    assert said == "upright, grey"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "folder", "--any-size"], "--any-size is for .onnx and .pt2"),
        (["-o", "g.pt2", "--any-size", "--generator"], "--any-size is for the encoder"),
    ],
)
def test_any_size_where_there_is_none_is_refused(run, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run), *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
