"""Folders of real image files, in every format and pixel type that is promised, become the right pixels."""

import json
import sys

import numpy as np
import pytest
from opening import encoded, labels, names, parts, refused
from PIL import Image

from sao.data.files import decode as decoding
from sao.data.files.decode import PAD_VALUE, Failure, Picture, Recipe, decode, digest_chunk, inspect_chunk
from sao.data.files.open import open_data, open_for_embedding, open_path
from sao.errors import InputError, printable

ORANGE = (200, 100, 50)
SMALL = (12, 10)
# What undoes the orientations from 2 on, from the EXIF specification's table of where row 0 and column 0 lie.
TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")


def pixels_of(data, size=8, channels=3, fit="crop"):
    picture = decode(data, Recipe(size, channels, fit))
    assert isinstance(picture, Picture), picture
    return picture.pixels


def deep(value, kind):
    return Image.fromarray(np.full((10, 12), value, kind))


def palette():
    image = Image.new("P", SMALL, 3)
    image.putpalette([0, 0, 0] * 3 + list(ORANGE) + [1, 2, 3] * 252)
    return image


def write_folder(folder, count, size=(16, 16), kind="png", start=0):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        Image.new("RGB", size, (i % 256, 7, 90)).save(folder / f"{i:04d}.{kind}")


PLAIN = Image.new("RGB", SMALL, ORANGE)
CASES = {
    **{kind: (PLAIN, kind, {}, ORANGE) for kind in ("PNG", "BMP", "TIFF", "GIF")},
    "jpeg": (PLAIN, "JPEG", {"quality": 95}, ORANGE),
    "webp": (PLAIN, "WEBP", {"lossless": True}, ORANGE),
    "tiff, lzw": (PLAIN, "TIFF", {"compression": "tiff_lzw"}, ORANGE),
    "grey": (Image.new("L", SMALL, 77), "PNG", {}, (77, 77, 77)),
    "one bit": (Image.new("1", SMALL, 1), "PNG", {}, (255, 255, 255)),
    "palette": (palette(), "PNG", {}, ORANGE),
    "palette with transparency": (palette(), "PNG", {"transparency": 3}, (255, 255, 255)),
    "gif with transparency": (palette(), "GIF", {"transparency": 3}, (255, 255, 255)),
    "rgba": (Image.new("RGBA", SMALL, (*ORANGE, 128)), "PNG", {}, (227, 177, 152)),
    "grey and alpha": (Image.new("LA", SMALL, (100, 128)), "PNG", {}, (177, 177, 177)),
    "colour key": (PLAIN, "PNG", {"transparency": ORANGE}, (255, 255, 255)),
    "cmyk jpeg": (PLAIN.convert("CMYK"), "JPEG", {"quality": 95}, ORANGE),
    "cmyk tiff": (PLAIN.convert("CMYK"), "TIFF", {}, ORANGE),
    **{f"16-bit {kind}": (deep(200 * 257, np.uint16), kind, {}, (200, 200, 200)) for kind in ("PNG", "TIFF")},
    "32-bit tiff": (deep(200 * 257, np.int32), "TIFF", {}, (200, 200, 200)),
    "float tiff": (deep(0.5, np.float32), "TIFF", {}, (128, 128, 128)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_and_pixel_type_gives_its_colour(name):
    image, kind, options, colour = CASES[name]
    pixels = pixels_of(encoded(image, kind, **options))
    np.testing.assert_allclose(pixels.reshape(-1, 3).astype(int), np.tile(colour, (64, 1)), atol=2)


def test_gif_and_tiff_use_their_first_frame():
    for kind in ("GIF", "TIFF", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(PLAIN, kind, save_all=True, append_images=[Image.new("RGB", SMALL, (0, 0, 255))], **options)
        np.testing.assert_allclose(pixels_of(data)[4, 4].astype(int), ORANGE, atol=2)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG", "TIFF"])
def test_exif_rotation_is_respected(kind, orientation):
    """Our way (turn the small image) equals the slow way (turn the photograph, then crop and resize)."""
    image = Image.fromarray(np.random.default_rng(orientation).integers(0, 256, (31, 47, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"PNG": {}, "WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}, "TIFF": {}}[kind]
    data = encoded(image, kind, exif=exif, **options)
    turned = image if orientation == 1 else image.transpose(Image.Transpose[TURNS[orientation - 2]])
    for fit in ("crop", "pad"):
        expected = pixels_of(encoded(turned, "PNG"), fit=fit).astype(int)
        np.testing.assert_allclose(pixels_of(data, fit=fit).astype(int), expected, atol=4)


def test_crop_takes_the_middle_and_pad_keeps_everything():
    image = Image.new("RGB", (32, 16), (255, 0, 0))
    image.paste((0, 255, 0), (8, 0, 24, 16))
    data = encoded(image, "PNG")
    assert (pixels_of(data, 16)[:, 2:-2] == (0, 255, 0)).all()
    padded = pixels_of(data, 16, fit="pad")
    assert (padded[:4] == PAD_VALUE).all()
    assert (padded[-4:] == PAD_VALUE).all()
    np.testing.assert_allclose(padded[5:11, 1].astype(int), np.tile((255, 0, 0), (6, 1)), atol=2)


def test_a_large_jpeg_is_reduced_while_decoding_to_nearly_the_same_pixels():
    y, x = np.mgrid[0:1024, 0:1536]
    image = Image.fromarray(np.stack([x // 6, y // 4, (x + y) // 10], -1).astype(np.uint8))
    reduced, whole = (pixels_of(data, 32).astype(int) for data in (encoded(image, "JPEG", quality=95), encoded(image)))
    assert np.abs(reduced - whole).max() <= 3


@pytest.mark.parametrize("frame", [None, 24])
@pytest.mark.parametrize("side", [130, 255, 700])
def test_a_large_jpeg_is_never_reduced_below_twice_what_is_needed(side, frame, monkeypatch):
    """By libjpeg, which averages blocks: the rest of the way is the filter's."""
    fit, sizes = decoding.fit, []
    monkeypatch.setattr(decoding, "fit", lambda image, *others: sizes.append(image.size) or fit(image, *others))
    decode(encoded(Image.new("RGB", (side + 40, side)), "JPEG"), Recipe(16, 3, "crop", frame))
    (size,) = sizes
    assert 2 * (frame or 16) <= min(size) < side


@pytest.mark.parametrize(("fit", "box", "inner"), [("crop", (8, 0, 39, 31), (8, 8)), ("pad", None, (8, 5))])
def test_pixels_are_those_of_pillows_lanczos(fit, box, inner):
    """The filter that docs and exports name: every trained network expects what it makes."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 47, 3), dtype=np.uint8))
    found = pixels_of(encoded(image, "PNG"), fit=fit)
    expected = np.asarray(image.resize(inner, Image.Resampling.LANCZOS, box=box))
    top = (8 - inner[1]) // 2
    np.testing.assert_array_equal(found[top : top + inner[1]], expected)


def test_the_header_alone_says_grey():
    grey = [encoded(Image.new("L", SMALL, 9).convert(mode), "PNG") for mode in ("L", "1", "LA", "P")]
    grey.append(encoded(deep(500, np.uint16), "PNG"))
    assert all(not isinstance(h, Failure) and h.grey for h in inspect_chunk([*grey]))
    (colour,) = inspect_chunk([encoded(palette(), "PNG")])
    assert not isinstance(colour, Failure)
    assert not colour.grey


def test_size_channels_labels_and_split_come_from_the_folder(tmp_path):
    write_folder(tmp_path / "d" / "cat", 15, (40, 50))
    write_folder(tmp_path / "d" / "dog" / "deeper", 25, (70, 35), "jpg")
    opened = open_path(tmp_path / "d")
    train, test = parts(opened)
    assert train.shape == (3, 32, 32)
    assert (len(train), len(test)) == (36, 4)
    assert train.class_names == ["cat", "dog"]
    assert np.bincount(labels(train)).tolist() in ([13, 23], [14, 22])
    assert test.labels is not None
    assert names(train)[0].startswith("cat/")
    assert opened.skipped == []
    notes = " | ".join(opened.notes)
    for fragment in ("size 32 was chosen", "2 different sizes", "centre-cropped", "2 class subfolders", "held out"):
        assert fragment in notes
    again = open_path(tmp_path / "d")
    np.testing.assert_array_equal(again.dataset.train.inputs(slice(None)), train.inputs(slice(None)))
    assert open_path(tmp_path / "d", seed=1).dataset.test.names != test.names
    assert open_path(tmp_path / "d", use_labels=False).dataset.train.labels is None


def test_a_folder_crosses_at_most_eight_modules(tmp_path):
    write_folder(tmp_path / "d", 12, kind="jpg")
    crossed = set()
    sys.setprofile(lambda frame, event, _: crossed.add(frame.f_globals.get("__name__", "")))
    try:
        open_data(str(tmp_path / "d"), folder="")
    finally:
        sys.setprofile(None)
    assert 1 < len({name for name in crossed if name.startswith("sao.data.")}) <= 8


def test_every_image_is_grey_so_one_channel(tmp_path):
    for i in range(10):
        Image.new("L", (30, 30), i).save(tmp_path / f"{i}.png")
    dataset = open_path(tmp_path).dataset
    assert dataset.train.shape == (1, 16, 16)
    assert open_path(tmp_path, channels=3).dataset.train.shape == (3, 16, 16)


def test_train_and_test_folders_are_the_split(tmp_path):
    for part, count in (("train", 20), ("val", 6), ("test", 8)):
        for name in ("a", "b"):
            write_folder(tmp_path / part / name, count)
    opened = open_path(tmp_path)
    assert (len(opened.dataset.train), len(opened.dataset.test)) == (40, 16)
    assert opened.dataset.train.class_names == ["a", "b"]
    assert any("12 images beside them were left out" in note for note in opened.notes)
    samples, _, notes = open_for_embedding(tmp_path, shape=(3, 16, 16))
    assert len(samples) == 68
    assert samples.class_names == ["a", "b"]
    assert not any("held-out" in note for note in notes)


def test_transparency_and_depth_are_said(tmp_path):
    for i in range(10):
        Image.new("RGBA", (8, 8), (i, 2, 3, 4)).save(tmp_path / f"{i}.png")
        deep(i, np.uint16).save(tmp_path / f"deep{i}.png")
    opened = open_path(tmp_path)
    notes = " | ".join([*opened.notes, *opened.reading])
    assert "10 of 20 images have transparency and were composited on white" in notes
    assert "10 of 20 images have more than 8 bits" in notes


def test_embedding_reads_in_the_networks_shape(tmp_path):
    write_folder(tmp_path, 3, (50, 60))
    samples, skipped, _ = open_for_embedding(tmp_path, shape=(1, 8, 8), fit="pad")
    assert samples.shape == (1, 8, 8)
    assert samples.names == ["0000.png", "0001.png", "0002.png"]
    assert skipped == []
    with pytest.raises(InputError, match="give vectors"):
        open_for_embedding(tmp_path, shape=(4,))


@pytest.mark.parametrize(
    "options", [{"size": 24}, {"size": 512}, {"channels": 2}, {"fit": "stretch"}, {"held_out": 1.5}, {"workers": 0}]
)
def test_impossible_options_are_one_line(tmp_path, options):
    write_folder(tmp_path, 10)
    with refused():
        open_path(tmp_path, **options)


def test_progress_ends_complete(tmp_path):
    write_folder(tmp_path, 30)
    for _ in range(2):
        calls = []
        open_path(tmp_path, progress=lambda done, total, c=calls: c.append((done, total)))
        assert calls[-1][0] == calls[-1][1]
        assert calls == sorted(calls)


def test_names_in_any_encoding_can_be_printed_and_written_as_json():
    for name in ("caf\udce9", "a\nb", "\x1b[31m", "名前", "\ud800"):
        shown = printable(name)
        assert "\n" not in shown
        assert "\x1b" not in shown
        json.dumps(shown).encode()
        shown.encode("utf-8")
    assert printable("名前") == "名前"


def test_equal_bytes_have_equal_digests_and_failures_have_their_own(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    one, same, missing = digest_chunk([b"x", str(tmp_path / "a"), str(tmp_path / "none")])
    assert one == same != missing
