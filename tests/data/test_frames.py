"""Crops of whole pictures: distributed as torchvision's, near its pixels, a function of the row; held-out images are its."""

import importlib
import itertools
import shutil

import numpy as np
import pytest
import tiny
import torch
from opening import encoded, images, names, parts, write_files
from PIL import Image, ImageOps
from scipy.stats import kstest
from sklearn.datasets import load_sample_images

from sao.cli.main import main
from sao.core.random import uniform
from sao.data.augmentation import Augmentation, crop, frame_windows, random_crops
from sao.data.dataset import Frames, Samples
from sao.data.files.open import open_for_embedding, open_path
from sao.data.loader import Batches
from sao.errors import InputError
from sao.runtime.torchvision_import import import_torchvision
from sao.training import checkpoint

import_torchvision()
torchvision = importlib.import_module("torchvision.transforms")
functional = importlib.import_module("torchvision.transforms.functional")
BICUBIC = torchvision.InterpolationMode.BICUBIC
CPU = torch.device("cpu")
# Left, top, right and bottom of parts of a photograph of 640x427: landscape, portrait, wide, square.
SHAPES = ((0, 0, 640, 427), (100, 0, 385, 427), (0, 100, 640, 300), (50, 20, 450, 420))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Real photographs of four shapes as JPEGs, in a folder for each part, as ImageNet lies."""
    folder = tmp_path_factory.mktemp("photographs")
    for number, array in enumerate(load_sample_images()["images"]):
        for shape, box in enumerate(SHAPES):
            image = Image.fromarray(array).crop(box)
            for part, turned in (("train", image), ("val", image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))):
                place = folder / part / ("china", "flower")[number]
                place.mkdir(parents=True, exist_ok=True)
                turned.save(place / f"{shape}.jpg", quality=95)
    return folder


@pytest.fixture(scope="module")
def opened(photographs, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return open_path(photographs, size=128, fit="centre", crop=0.5, cache_folder=cache)


def frames_of(samples: Samples) -> Frames:
    frames = images(samples).frames
    assert frames is not None
    return frames


def original(photographs, name: str) -> Image.Image:
    return Image.open(photographs / name).convert("RGB")


# --- which crops ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "share"), [(500, 375, 0.5), (333, 500, 0.5), (400, 400, 0.5), (500, 375, 0.08), (640, 200, 0.08)]
)
def test_windows_are_distributed_as_torchvisions_of_the_frame(width, height, share):
    """Share of the area, shape and place, in the pixels of the whole picture."""
    n = 3000
    draws = uniform(0, "windows", 0, slice(0, n), (22,), "cpu")
    top, left, tall, wide = frame_windows(draws, share, torch.full((n,), width / height)).unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (top + tall <= 1 + 1e-6) & (left + wide <= 1 + 1e-6)).all())
    found = torch.stack([tall * wide, wide * width / (tall * height), top, left])
    image = torch.zeros(1, height, width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        get = torchvision.RandomResizedCrop.get_params
        crops = torch.tensor([get(image, (share, 1.0), (3 / 4, 4 / 3)) for _ in range(n)]).double()
    tops, lefts, heights, widths = crops.unbind(1)
    expected = torch.stack([heights * widths / (height * width), widths / heights, tops / height, lefts / width])
    draws = np.random.default_rng(0)
    for own, other, pixel in zip(found, expected, (0.004, 0.005, 1 / height, 1 / width), strict=True):
        # Torchvision's are whole pixels: as many draws within one, so that the two can be compared at all.
        noise = [draws.uniform(-pixel / 2, pixel / 2, n) for _ in range(2)]
        assert kstest(own.double().numpy() + noise[0], other.numpy() + noise[1]).pvalue > 1e-3


def test_where_nothing_fits_it_is_the_largest_allowed_window_of_the_middle():
    get = torchvision.RandomResizedCrop.get_params
    for width, height in ((900, 200), (200, 900)):
        found = frame_windows(torch.rand(1, 22), 0.9, torch.tensor([width / height]))[0]
        expected = get(torch.zeros(1, height, width), (0.9, 1.0), (3 / 4, 4 / 3))
        assert found.tolist() == pytest.approx(
            [e / side for e, side in zip(expected, (height, width) * 2, strict=True)], abs=0.003
        )


# --- their pixels --------------------------------------------------------------------------------------------------------


def test_the_cache_keeps_every_whole_picture_with_its_shape(opened, photographs):
    train, test = parts(opened)
    assert frames_of(train).pixels.shape == (8, 256, 256, 3)
    assert images(test).frames is None
    shapes = [(right - left) / (bottom - top) for left, top, right, bottom in SHAPES]
    assert frames_of(train).aspects == pytest.approx(shapes * 2, abs=1e-4)
    assert "training sees random crops of the whole images, which are kept at 256x256 for it" in opened.notes
    assert any("short side of 144, of which the centre 128x128 is kept" in note for note in opened.notes)


def test_a_crop_is_near_the_one_of_the_original(opened, photographs):
    """Windows in whole pixels of the original; the mean difference, in grey levels of 255.

    Measured: at most 1.5, and 4.7 where a picture is 3.2 times as wide as high, of which squashing keeps less. A shift by one
    pixel changes 6 to 17, bilinear instead of bicubic resampling 1 to 2.7.
    """
    frames = frames_of(opened.dataset.train)
    for row, name in enumerate(names(opened.dataset.train)):
        image = original(photographs, name)
        width, height = image.size
        frame = torch.from_numpy(np.array(frames.pixels[row : row + 1])).permute(0, 3, 1, 2).float() / 255
        for share, ratio, across, down in ((1.0, 1, 0, 0), (0.5, 1, 0.3, 0.8), (0.6, 1.2, 1, 0), (0.5, 0.8, 0.5, 0.5)):
            tall = min(height, round((share * width * height / ratio) ** 0.5))
            wide = min(width, round((share * width * height * ratio) ** 0.5))
            top, left = round(down * (height - tall)), round(across * (width - wide))
            window = torch.tensor([[top / height, left / width, tall / height, wide / width]]) * 256
            found = crop(frame, window, (128, 128))[0].permute(1, 2, 0).numpy() * 255
            expected = functional.resized_crop(image, top, left, tall, wide, [128, 128], BICUBIC)
            difference = np.abs(found - np.asarray(expected, np.float32)).mean()
            assert difference < (2 if width / height < 2 else 6), (name, share)


def test_held_out_images_are_torchvisions_short_side_and_centre(opened, photographs):
    """So are those of the training set when they are evaluated, and images that a trained network is shown."""
    way = torchvision.Compose([torchvision.Resize(144, BICUBIC), torchvision.CenterCrop(128)])
    for part in parts(opened):
        for row, name in enumerate(names(part)):
            assert np.array_equal(images(part).pixels[row], np.asarray(way(original(photographs, name)))), name


def test_new_images_are_seen_as_held_out_ones(opened, photographs):
    samples, _, _ = open_for_embedding(photographs / "val", shape=(3, 128, 128), fit="centre")
    assert torch.equal(samples.inputs(slice(None)), opened.dataset.test.inputs(slice(None)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_that_lies_on_its_side_has_its_shape_when_upright(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    lying = Image.fromarray(load_sample_images()["images"][0]).resize((96, 64))
    lying.getexif()[0x0112] = orientation
    both = {"lying": encoded(lying, exif=exif), "upright": encoded(ImageOps.exif_transpose(lying))}
    folders = [write_files(tmp_path / name, {f"{i}.png": data for i in range(10)}) for name, data in both.items()]
    found, expected = (frames_of(open_path(folder, size=16, crop=0.5).dataset.train) for folder in folders)
    assert set(found.aspects) == {np.float32(0.66667 if orientation >= 5 else 1.5)}
    np.testing.assert_array_equal(found.aspects, expected.aspects)
    np.testing.assert_allclose(np.asarray(found.pixels, int), np.asarray(expected.pixels, int), atol=2)


# --- seeded by row -------------------------------------------------------------------------------------------------------


def test_a_crop_depends_on_seed_step_and_place_and_on_nothing_else():
    batches, rows = Batches(tiny.framed().train, CPU), torch.arange(12)
    expected = batches.training_inputs(rows, 3, 5, slice(0, 12))
    assert (expected.shape, expected.dtype) == ((12, 1, 8, 8), torch.float32)
    assert expected.min() >= -1
    assert expected.max() <= 1
    torch.manual_seed(9)
    assert torch.equal(batches.training_inputs(rows, 3, 5, slice(0, 12)), expected)
    for other in ((4, 5, slice(0, 12)), (3, 6, slice(0, 12)), (3, 5, slice(1, 13))):
        assert not torch.equal(batches.training_inputs(rows, *other), expected)


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_make_the_crops_of_one(processes):
    batches, rows = Batches(tiny.framed().train, CPU), torch.arange(16) * 31
    whole = batches.training_inputs(rows, 3, 5, slice(0, 16))
    bounds = [16 * rank // processes for rank in range(processes + 1)]
    for first, last in itertools.pairwise(bounds):
        mine = batches.training_inputs(rows[first:last], 3, 5, slice(first, last))
        torch.testing.assert_close(mine, whole[first:last], atol=1e-6, rtol=0)


def test_each_row_has_its_own_crop_and_every_step_another():
    frames = torch.from_numpy(np.asarray(frames_of(tiny.framed().train).pixels)[:1]).expand(20, -1, -1, -1)
    found = random_crops(frames, torch.ones(20), 0.25, (8, 8), 0, 0, slice(0, 20))
    assert len({tuple(image.flatten().tolist()) for image in found}) == 20


def test_flips_come_on_top_of_crops():
    batches, rows = Batches(tiny.framed().train, CPU), torch.arange(100)
    crops = batches.training_inputs(rows, 0, 0, slice(0, 100))
    changed = Augmentation(flip=True)(crops, 0, "discriminator", 0, 100)
    same = torch.isclose(changed, crops, atol=1e-5).flatten(1).all(1)
    turned = torch.isclose(changed, crops.flip(3), atol=1e-5).flatten(1).all(1)
    assert bool((same | turned).all())
    assert 30 < int(turned.sum()) < 70


def test_a_device_without_memory_can_make_crops():
    """So nothing is read back, and nothing is left on the host."""
    data = tiny.framed().train
    for resident in (None, 0):
        found = Batches(data, torch.device("meta"), resident).training_inputs(torch.arange(4), 0, 0, slice(0, 4))
        assert (found.shape, found.device.type) == ((4, 1, 8, 8), "meta")


# --- a run ---------------------------------------------------------------------------------------------------------------


def test_a_run_learns_from_crops_and_everything_else_looks_at_the_squares(tmp_path):
    data = tiny.framed()
    _, learnt = tiny.trained(tmp_path / "crops", data, method="supervised", train__steps=3)
    _, plain = tiny.trained(tmp_path / "plain", method="supervised", train__steps=3)
    assert not torch.equal(next(learnt.parameters()), next(plain.parameters()))
    assert torch.equal(data.train.inputs(slice(0, 5)), tiny.dataset().train.inputs(slice(0, 5)))
    assert torch.equal(Batches(data.train, CPU).inputs(torch.arange(5)), tiny.dataset().train.inputs(slice(0, 5)))


def test_a_resumed_run_goes_on_alike(photographs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SAO_CACHE", str(tmp_path / "cache"))
    folder = shutil.copytree(photographs, tmp_path / "photographs")
    for index in range(12):  # enough to train on
        shutil.copy(folder / f"train/china/{index % 4}.jpg", folder / f"train/china/more{index}.jpg")
    words = tiny.words(method="supervised", data__size=16, data__fit="centre", data__crop=0.5, train__batch=6)
    words += ["--data", str(folder)]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert main(["train", "digits", *words, "--out", str(whole)]) == 0
    assert main(["train", "digits", *words, "--train.steps", "3", "--out", str(parted)]) == 0
    assert main(["resume", str(parted), "--train.steps", "8"]) == 0
    assert tiny.rows(parted) == tiny.rows(whole)
    one, other = (checkpoint.steps_in(run / "checkpoints")[-1] / "method.safetensors" for run in (whole, parted))
    assert one.read_bytes() == other.read_bytes()
    assert main(["embed", str(whole), str(folder / "val"), "-o", str(tmp_path / "features.npz")]) == 0
    assert "short side of 18, of which the centre 16x16 is kept" in capsys.readouterr().err


def test_what_holds_no_image_files_is_refused(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((20, 16, 16, 3), np.uint8))
    with pytest.raises(InputError, match=r"data.crop takes crops of whole image files, and .*images.npy holds none"):
        open_path(tmp_path / "images.npy", crop=0.5)


def test_a_named_data_set_is_refused_and_told_what_to_set(capsys, tmp_path):
    assert main(["train", "digits", "--data.crop", "0.5", "--out", str(tmp_path / "run")]) == 2
    assert "digits holds none: set method.augmentation.crop" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- the cache -----------------------------------------------------------------------------------------------------------


def test_frames_have_an_entry_of_their_own_and_workers_agree(photographs, tmp_path):
    caches = [tmp_path / name for name in ("one", "two")]
    for cache, workers in zip(caches, (1, 2), strict=True):
        open_path(photographs, size=16, cache_folder=cache, workers=workers)
        open_path(photographs, size=16, crop=0.5, cache_folder=cache, workers=workers)
    one, two = (sorted(path.name for path in cache.iterdir()) for cache in caches)
    assert len(one) == 2
    assert one == two
    for key in one:
        files = sorted(path.name for path in (caches[0] / key).iterdir())
        assert files in (["facts.json", "frames.npy", "pixels.npy"], ["facts.json", "pixels.npy"])
        assert all((caches[0] / key / name).read_bytes() == (caches[1] / key / name).read_bytes() for name in files)
    before = [path.stat().st_mtime_ns for path in caches[0].iterdir()]
    open_path(photographs, size=16, crop=0.3, cache_folder=caches[0])  # the share is not in the pixels
    assert [path.stat().st_mtime_ns for path in caches[0].iterdir()] == before


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damaged_frames_are_made_again(photographs, tmp_path, damage):
    open_path(photographs, size=16, crop=0.5, cache_folder=tmp_path)
    (key,) = tmp_path.iterdir()
    frames = key / "frames.npy"
    before = frames.read_bytes()
    frames.unlink() if damage == "missing" else frames.write_bytes(before[:5000])
    again = open_path(photographs, size=16, crop=0.5, cache_folder=tmp_path).dataset.train
    assert frames_of(again).pixels.shape == (8, 32, 32, 3)
    assert frames.read_bytes() == before


def test_selected_rows_keep_their_frames():
    train = tiny.framed().train
    all_of_them, some = frames_of(train), frames_of(train.select(np.array([5, 2, 9])))
    np.testing.assert_array_equal(some.pixels, np.asarray(all_of_them.pixels)[[5, 2, 9]])
    np.testing.assert_array_equal(some.aspects, all_of_them.aspects[[5, 2, 9]])
    assert some.crop == all_of_them.crop
