"""All commands on images of five channels and 16 bits, of volumes and of DICOM files, on runs of two real steps."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tifffile
import tiny
import torch

import sao
from sao.cli.main import main
from sao.training.run_folder import Run

DRAWS = np.random.default_rng(0)
SMALL = {"train__steps": 2, "log__checkpoint_every": 2}


@pytest.fixture(autouse=True, scope="module")
def cache_of_its_own(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def satellite(n: int = 120) -> np.ndarray:
    """Two kinds of ground, whose bands have ranges of their own."""
    draws = np.random.default_rng(0)
    kind = np.arange(n)[:, None, None, None] % 2
    scale = np.array([1000, 1500, 2000, 3000, 200])
    return (scale * (0.5 + 0.3 * kind) + draws.integers(0, 150, (n, 8, 8, 5))).astype(np.uint16)


def trained(folder: Path, data: Path, **options) -> Path:
    assert main(["train", *tiny.words(data__source=data, **SMALL, **options), "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "bands.npz"
    np.savez(path, x=satellite(), y=np.arange(120) % 2)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, data) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "bands", data)


def test_the_run_keeps_the_range_and_embeds_by_it(run, data, tmp_path, capsys):
    facts = Run.open(run).facts
    assert facts.shape == (5, 8, 8)
    x = satellite()
    assert facts.pixel_range is not None
    assert len(facts.pixel_range["low"]) == 5
    assert facts.pixel_range["high"][3] > 2000 > facts.pixel_range["high"][4]
    for name, array in (("half", x // 2), ("first", np.moveaxis(x, -1, 1))):
        np.save(tmp_path / f"{name}.npy", array)
        assert main(["embed", str(run), str(tmp_path / f"{name}.npy"), "-o", str(tmp_path / f"{name}.npz")]) == 0
    dim, first = (np.load(tmp_path / f"{name}.npz")["features"] for name in ("half", "first"))
    np.testing.assert_array_equal(first, sao.load(run).embed(x))
    assert np.abs(dim - first).max() > 1e-3  # not stretched to the range that it was trained on
    np.testing.assert_allclose(sao.load(run).embed(torch.from_numpy(x[0].astype(np.int32))), first[:1], atol=1e-4)
    np.save(tmp_path / "few.npy", x[..., :3])
    tiny.refused(capsys, "embed", run, tmp_path / "few.npy", "-o", tmp_path / "few.npz")


def test_resuming_opens_the_same_data(run, capsys):
    assert "going on after step 2" in tiny.said(capsys, "resume", run, "--train.steps", "3")


def test_evaluation_has_its_baselines_and_says_which_one_is_left_out(run, capsys):
    assert main(["eval", str(run), "--samples", "20"]) == 0
    said, warned = capsys.readouterr()
    assert "IS and FID are left out" in warned
    assert "memorised" in said
    for name in ("raw", "pca", "untrained", "patches"):
        assert name in said
    assert "it sees colours, and these images have 5 channels" in said
    assert "leave --pretrained out" in tiny.refused(capsys, "eval", run, "--pretrained", "efficientnet_lite0")
    assert "5 channels" in tiny.refused(capsys, "eval", run, "--metrics", "fid")


def test_the_report_shows_the_chosen_channels(run, tmp_path, capsys):
    sheets = []
    for words in ([], ["--channels", "3,2,1"], ["--channels", "5"]):
        target = tmp_path / "report.html"
        assert main(["report", str(run), "-o", str(target), "--points", "40", *words]) == 0
        text = target.read_text(encoding="utf-8")
        sheets.append(text[text.index('"sheets"') :][:3000])
        assert "5 channels" in text
    assert len(set(sheets)) == 3
    for wrong in ("1,2", "0,1,2", "a", "4,5,6"):
        assert "--channels" in tiny.refused(capsys, "report", run, "-o", tmp_path / "r.html", "--channels", wrong)


def test_clusters_and_samples_are_drawn_and_written_in_the_units_of_the_data(run, data, tmp_path):
    assert main(["cluster", str(run), str(data), "-k", "2", "-o", str(tmp_path / "clusters")]) == 0
    assert main(["sample", str(run), "-n", "3", "-o", str(tmp_path / "s.npy")]) == 0
    assert main(["sample", str(run), "-n", "3", "-o", str(tmp_path / "s.png")]) == 0
    assert main(["sample", str(run), "-n", "3", "-o", str(tmp_path / "pictures")]) == 0
    drawn, facts = np.load(tmp_path / "s.npy"), Run.open(run).facts
    assert drawn.shape == (3, 8, 8, 5)
    assert facts.pixel_range is not None
    assert (drawn >= np.array(facts.pixel_range["low"]) - 1).all()
    assert (drawn <= np.array(facts.pixel_range["high"]) + 1).all()


@pytest.mark.parametrize("name", ["plain", "e.onnx"])
def test_exported_encoders_take_the_units_of_the_data(run, name, tmp_path, capsys):
    assert "images (nx8x8x5, float32)" in tiny.said(capsys, "export", run, "-o", tmp_path / name)
    if name == "plain":
        (file,) = (tmp_path / name).glob("*.py")
        features = runpy.run_path(str(file))["load"]()(torch.from_numpy(satellite().astype(np.float32))).detach().numpy()
        np.testing.assert_allclose(features, sao.load(run).embed(satellite()), atol=1e-4)


def test_exported_generators_give_the_units_of_the_data_and_any_size_is_refused(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", str(tmp_path / "g"), "--generator"]) == 0
    said = tiny.refused(capsys, "export", run, "-o", tmp_path / "a.onnx", "--any-size")
    assert "--any-size is for grey and colour images of 8 bits" in said


def test_a_shipped_copy_knows_the_range(run, tmp_path):
    assert main(["ship", str(run), "-o", str(tmp_path / "copy")]) == 0
    x = satellite()[:5]
    np.testing.assert_array_equal(sao.load(tmp_path / "copy").embed(x), sao.load(run).embed(x))


def test_views_with_colours_are_refused_before_anything_is_written(data, tmp_path, capsys):
    words = tiny.words(method="simclr", data__source=data, **SMALL)
    said = tiny.refused(capsys, "train", *words, "--out", tmp_path / "r")
    assert "--method.view.jitter '[0.8,0.8,0,0]' --method.view.grey 0" in said
    assert not (tmp_path / "r").exists()
    more = ["--method.view.jitter", "[0.8,0.8,0,0]", "--method.view.grey", "0"]
    assert main(["train", *words, *more, "--out", str(tmp_path / "r")]) == 0


def test_explore_shows_a_folder_of_stacks(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    for i, image in enumerate(satellite(40)):
        tifffile.imwrite(tmp_path / "d" / f"{i}.tif", np.moveaxis(image, -1, 0), photometric="minisblack", metadata=None)
    assert main(["explore", str(tmp_path / "d"), "-o", str(tmp_path / "page"), "--channels", "4,3,2"]) == 0
    assert "40 images, compared by k-means patches" in capsys.readouterr().out
    assert main(["explore", str(tmp_path / "d"), "-o", str(tmp_path / "other"), "--channels", "7,3,2"]) == 2


def test_volumes_are_trained_on_by_slices_and_keep_their_axes(tmp_path, capsys):
    volumes = DRAWS.normal(0, 300, (12, 9, 8, 8)).astype(np.int16)
    np.save(tmp_path / "v.npy", volumes)
    assert main(["train", *tiny.words(data__source=tmp_path / "v.npy", **SMALL), "--out", str(tmp_path / "r")]) == 2
    assert "--data.axes" in capsys.readouterr().err
    folder = trained(tmp_path / "r", tmp_path / "v.npy", data__axes="ndhw")
    assert "12 volumes of 9 slices: every slice is an image" in capsys.readouterr().out
    assert Run.open(folder).facts.shape == (1, 8, 8)
    assert sao.load(folder).embed(volumes).shape[0] == 108
    assert sao.load(folder).embed(volumes[0]).shape[0] == 9
    assert main(["embed", str(folder), str(tmp_path / "v.npy"), "-o", str(tmp_path / "f.npz")]) == 0
    with np.load(tmp_path / "f.npz") as found:
        train = {name.rpartition(" slice ")[0] for name in found["names"][found["splits"] == "train"]}
        test = {name.rpartition(" slice ")[0] for name in found["names"][found["splits"] == "test"]}
    assert test
    assert not train & test


def test_five_channels_of_bytes_go_through_training_and_evaluation(tmp_path, capsys):
    np.save(tmp_path / "b.npy", (satellite(60) // 16).clip(0, 255).astype(np.uint8))
    folder = trained(tmp_path / "r", tmp_path / "b.npy", data__channels=5)
    assert "5-channel images of 8x8" in capsys.readouterr().out
    assert Run.open(folder).facts.pixel_range is None
    assert sao.load(folder).sample(2).dtype == np.uint8
    assert main(["export", str(folder), "-o", str(tmp_path / "plain")]) == 0


def test_a_range_in_a_strangers_run_that_does_not_fit_is_one_line(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert main(["ship", str(run), "-o", str(copy)]) == 0
    facts = json.loads((copy / "data.json").read_text())
    for wrong in ({"low": [0], "high": [1]}, {"low": [0] * 5, "high": [-1] * 5}, {}):
        (copy / "data.json").write_text(json.dumps({**facts, "pixel_range": wrong}))
        assert "pixel_range" in tiny.refused(capsys, "embed", copy, "x.npy", "-o", tmp_path / "f.npz")
