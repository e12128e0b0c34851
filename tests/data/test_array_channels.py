"""Arrays of any number of channels, volumes as slices, and values of 16 bits that stay what they are."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
import torch
from opening import embedded_images, images, labels, names, numbers, opened_images, parts, refused, total

from sao.data.augmentation import Augmentation
from sao.data.dataset import Images, PixelRange
from sao.data.files.objects import readable
from sao.data.files.open import open_for_embedding, open_path
from sao.data.loader import Batches
from sao.data.split import held_out_samples
from sao.errors import InputError

DRAWS = np.random.default_rng(0)
SATELLITE = DRAWS.integers(100, 4096, (24, 16, 16, 5)).astype(np.uint16)


def test_five_channels_are_read_in_either_order_and_said():
    for array, word in ((SATELLITE, "(n, h, w, c)"), (np.moveaxis(SATELLITE, -1, 1), "(n, c, h, w)")):
        opened = open_path(readable(array))
        assert opened.dataset.train.shape == (5, 16, 16)
        assert any(word in note and "--data.axes" in note for note in opened.reading)
    assert opened_images(torch.from_numpy(SATELLITE.astype(np.uint8))).shape == (5, 16, 16)


OF_ANY_KIND = [*product((np.uint8, np.uint16), (1, 2, 3, 5)), *product((np.int16, np.int32, np.float32, np.float64), (2, 5))]


@pytest.mark.parametrize(("kind", "channels"), OF_ANY_KIND)
def test_a_list_of_arrays_is_read_back_equal_in_either_order(kind, channels):
    array = (SATELLITE[..., :1] // 16 + np.arange(channels)).astype(kind) * kind(1 if kind == np.uint8 else 16)
    known = {} if kind == np.uint8 else {"pixel_range": PixelRange.everywhere(0, 65535, channels)}
    for items in (array, np.moveaxis(array, -1, 1)):
        found = embedded_images(list(items), (channels, 16, 16), **known)
        np.testing.assert_array_equal(np.asarray(found.pixels), array)


@pytest.mark.parametrize("shape", [(20, 8, 8, 8), (20, 40, 64, 64), (20, 64, 64, 40), (20, 5, 64, 5), (3, 4, 5, 8, 8)])
def test_ambiguous_shapes_are_refused_in_one_line_that_names_the_option(shape):
    with refused(r"--data\.axes"):
        open_path(readable(np.zeros(shape, np.uint8)))


@pytest.mark.parametrize(
    ("axes", "shape", "seen", "count"),
    [
        ("NHWC", (20, 8, 8, 8), (8, 8, 8), 20),
        ("NCHW", (20, 40, 16, 16), (40, 16, 16), 20),
        ("NDHW", (20, 40, 16, 16), (1, 16, 16), 800),
        ("NHWD", (20, 16, 16, 40), (1, 16, 16), 800),
        ("NDHWC", (5, 4, 16, 16, 2), (2, 16, 16), 20),
        ("NCDHW", (5, 2, 4, 16, 16), (2, 16, 16), 20),
        ("HWD", (16, 16, 40), (1, 16, 16), 40),
        ("DHW", (40, 16, 16), (1, 16, 16), 40),
    ],
)
def test_axes_can_be_said(axes, shape, seen, count):
    array = DRAWS.integers(0, 256, shape, dtype=np.uint8)
    opened = open_path(readable(array), axes=axes)
    assert opened.dataset.train.shape == seen
    assert total(opened) == count
    samples = embedded_images(array, seen, axes=axes)
    there = {letter: i for i, letter in enumerate(axes)}
    order = [there[letter] for letter in "NDHWC" if letter in there]
    np.testing.assert_array_equal(np.asarray(samples.pixels).ravel(), array.transpose(order).ravel())


def test_slices_have_names_and_labels_of_their_volume_and_are_held_out_together(tmp_path):
    volumes = DRAWS.integers(0, 256, (20, 6, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "v.npz", x=volumes, y=np.arange(20) % 2)
    opened = open_path(tmp_path / "v.npz", axes="NDHW")
    assert any("20 volumes of 6 slices: every slice is an image" in note for note in opened.reading)
    train, test = ({name.rpartition(" slice ")[0] for name in names(part)} for part in parts(opened))
    assert not train & test
    for part in parts(opened):
        np.testing.assert_array_equal(labels(part), np.array(numbers(part)) % 2)


def test_slices_of_one_volume_are_split_and_other_names_are_no_volumes():
    for name in ("a slice {}", "brain slice {}.png"):
        train, test = held_out_samples([name.format(i) for i in range(20)], None, 0.1, 0)
        assert (len(train), len(test)) == (18, 2)


@pytest.mark.parametrize("axes", [None, "NDHW"])
def test_uint16_is_neither_copied_nor_widened(tmp_path, axes):
    array = DRAWS.integers(0, 4096, (64, 64, 64) if axes is None else (8, 8, 64, 64)).astype(np.uint16)
    np.save(tmp_path / "x.npy", array)
    tracemalloc.start()
    samples = embedded_images(tmp_path / "x.npy", (1, 64, 64), axes=axes, pixel_range=PixelRange.everywhere(0, 4095, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert samples.pixels.dtype == np.uint16
    assert isinstance(samples.pixels, np.memmap)
    assert peak < 0.2 * array.nbytes


def test_sixteen_bits_are_kept_and_normalised_by_the_range_of_each_channel():
    train = opened_images(SATELLITE * np.array([1, 2, 3, 4, 5], np.uint16))
    assert train.pixels.dtype == np.uint16
    assert train.levels is not None
    for c in range(5):
        assert train.levels.low[c] >= 100 * (c + 1)
    inputs = train.inputs(slice(None))
    assert inputs.dtype == torch.float32
    values = np.asarray(train.pixels)[..., 2].astype(np.float64)
    low, high = train.levels.low[2], train.levels.high[2]
    np.testing.assert_allclose(inputs[:, 2].numpy(), (values - low) / (high - low) * 2 - 1, atol=1e-6)
    assert len(np.unique(inputs[:, 0].numpy())) > 1000  # more than 8 bits can tell apart


def test_three_channels_share_one_range():
    train = opened_images(SATELLITE[..., :3])
    assert train.levels is not None
    assert len(set(train.levels.low)) == len(set(train.levels.high)) == 1


def test_embedding_uses_the_range_of_training_and_clips():
    opened = open_path(readable(SATELLITE))
    samples = embedded_images(SATELLITE // 2, (5, 16, 16), pixel_range=opened.pixel_range)
    assert samples.levels == opened.pixel_range
    assert float(samples.inputs(slice(None)).max()) < 0.1
    beyond = embedded_images(SATELLITE * 8, (5, 16, 16), pixel_range=opened.pixel_range)
    assert float(beyond.inputs(slice(None)).max()) == 1.0


def test_signed_and_floating_point_values_are_counted_in_sixteen_bits():
    hounsfield = DRAWS.normal(0, 400, (24, 16, 16)).round()
    for kind in (np.int16, np.int32, np.float32, np.float64):
        opened = open_path(readable(hounsfield.astype(kind)))
        train, known = images(opened.dataset.train), opened.pixel_range
        assert train.pixels.dtype == np.uint16
        assert known is not None
        assert (known.low[0], known.high[0]) == (hounsfield.min(), hounsfield.max())
        found = known.values(train.inputs(slice(None)))[..., 0].numpy()
        np.testing.assert_allclose(found, hounsfield[numbers(train)], atol=0.05)


def test_a_range_can_be_said():
    opened = open_path(readable(SATELLITE), range=(0, 65535))
    assert opened.pixel_range == PixelRange.everywhere(0, 65535, 5)
    with pytest.raises(InputError, match="lower value first"):
        open_path(readable(SATELLITE), range=(5, 5))


def test_constant_values_become_constant_inputs():
    for array in (np.full((20, 8, 8, 5), 700, np.uint16), np.full((20, 8, 8, 5), -3.5)):
        inputs = opened_images(array).inputs(slice(None))
        assert bool((inputs == -1).all())


def test_rows_with_nan_are_left_out_of_the_range():
    array = DRAWS.normal(0, 100, (24, 8, 8, 5))
    array[3, 0, 0, 0], array[4, 1, 1, 1] = np.nan, 1e300
    opened = open_path(readable(array))
    assert [item.name for item in opened.skipped] == ["row 3", "row 4"]
    assert opened.pixel_range is not None
    assert max(opened.pixel_range.high) < 1000


def test_eight_bits_where_sixteen_are_expected_are_refused_and_the_other_way_reduced():
    given = PixelRange.everywhere(0, 4095, 5)
    with pytest.raises(InputError, match="8 bits a value, where 16 are expected"):
        open_for_embedding(readable(SATELLITE.astype(np.uint8)), shape=(5, 16, 16), pixel_range=given)
    assert embedded_images(SATELLITE[..., :3] * 16, (3, 16, 16)).pixels.dtype == np.uint8


@pytest.mark.parametrize("shape", [(20, 16, 16, 4), (20, 4, 16, 16)])
def test_four_channels_of_bytes_are_transparency_unless_said(shape):
    array = DRAWS.integers(0, 256, shape, dtype=np.uint8)
    opened = open_path(readable(array))
    assert opened.dataset.train.shape == (3, 16, 16)
    assert any("--data.channels 4" in note for note in opened.reading)
    assert open_path(readable(array), channels=4).dataset.train.shape == (4, 16, 16)
    assert opened_images(array.astype(np.uint16) * 9).shape == (4, 16, 16)


def test_another_number_of_channels_than_the_network_has_is_one_line():
    for array in (SATELLITE[..., :3], SATELLITE[..., :2], np.zeros((20, 16, 16, 6), np.uint8)):
        with pytest.raises(InputError, match="5"):
            open_for_embedding(readable(array), shape=(5, 16, 16))


@pytest.mark.parametrize("fit", ["crop", "pad", "centre"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_other_sizes_are_resized_channel_by_channel(fit, kind):
    ramp = np.linspace(0, 200, 40 * 24 * 5).reshape(1, 40, 24, 5).repeat(12, 0).astype(kind) * (1 if kind == np.uint8 else 300)
    found = opened_images(ramp, size=8, fit=fit)
    assert found.shape == (5, 8, 8)
    one = opened_images(ramp[..., 2], size=8, fit=fit)
    apart = np.abs(np.asarray(found.pixels)[..., 2].astype(float) - np.asarray(one.pixels)[..., 0])
    assert apart.max() <= (1 if kind == np.uint8 else 0)


def test_a_step_sees_sixteen_bits_from_memory_and_from_a_file(tmp_path):
    np.save(tmp_path / "x.npy", SATELLITE)
    samples = opened_images(tmp_path / "x.npy")
    rows = torch.tensor([5, 0, 7])
    expected = samples.inputs(rows.numpy())
    mapped = Images(np.load(tmp_path / "x.npy", mmap_mode="r"), levels=samples.levels)
    for read, wanted in ((samples, expected), (mapped, mapped.inputs(rows.numpy()))):
        batches = Batches(read, torch.device("cpu"))
        batches.prefetch(rows)
        assert torch.equal(batches.inputs(rows), wanted)
    assert not Batches(mapped, torch.device("cpu")).resident


def test_shown_bytes_and_numbers_of_baselines_are_of_the_same_range():
    train = opened_images(SATELLITE)
    shown, numbers = np.asarray(train.bytes[:4]), train.intensities[:4]
    assert shown.dtype == np.uint8
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(shown, numbers, atol=0.5)
    np.testing.assert_allclose((train.inputs(slice(0, 4)).permute(0, 2, 3, 1).numpy() + 1) * 127.5, numbers, atol=1e-3)
    eight = Images(shown)
    assert eight.bytes is eight.pixels is eight.intensities


def test_colours_are_refused_for_other_channels_with_what_to_type():
    views = Augmentation(crop=0.5, jitter=(0.8, 0.8, 0.8, 0.2), grey=0.2, solarise=0.1, flip=True)
    for channels in (2, 5):
        with refused(r"--method.view.jitter '\[0.8,0.8,0,0\]' --method.view.grey 0"):
            views.check_channels(channels, "method.view")
    for channels in (1, 3):
        views.check_channels(channels, "method.view")
    Augmentation(crop=0.5, jitter=(0.8, 0.8, 0, 0), blur=1.0, solarise=1.0, flip=True).check_channels(5, "method.view")


def test_five_channels_are_jittered_by_one_brightness():
    images = torch.rand(6, 5, 8, 8) * 2 - 1
    changed = Augmentation(jitter=(0.4, 0.4, 0, 0))(images, seed=0, purpose="test", step=0, global_batch=6)
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)
    same = images[:, :1].expand(-1, 5, -1, -1)
    changed = Augmentation(jitter=(0.4, 0.4, 0, 0))(same, seed=0, purpose="test", step=0, global_batch=6)
    torch.testing.assert_close(changed, changed[:, :1].expand(-1, 5, -1, -1))
