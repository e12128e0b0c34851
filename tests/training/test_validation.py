"""Validation during training, and what a run draws."""

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from sao.data.dataset import Dataset, Vectors
from sao.data.named import spirals
from sao.training.log import clock
from sao.training.loop import new_method
from sao.training.pictures import grid, save_samples, to_pixels
from sao.training.validation import validate

ALWAYS = {"eval/effective_rank", "eval/jacobian_norm_q05", "eval/jacobian_norm_q50", "eval/jacobian_norm_q95"}


@pytest.mark.parametrize("name", ["structural", "supervised", "random"])
def test_validates_every_method(name):
    method = tiny.method(method=name)
    found = validate(method, tiny.dataset())
    generating = {"eval/memorised"} if name == "structural" else set()
    labelled = {f"eval/{metric}_n360" for metric in ("kmeans", "probe", "knn1", "knn5")}
    assert found.keys() == ALWAYS | {"eval/clusters_agree"} | generating | labelled
    assert 0 < found["eval/jacobian_norm_q05"] <= found["eval/jacobian_norm_q50"] <= found["eval/jacobian_norm_q95"]
    assert 1 < found["eval/effective_rank"] <= 8
    assert 0.1 < found["eval/knn1_n360"] < 1
    assert validate(method, tiny.dataset()) == found
    assert -0.5 < found["eval/clusters_agree"] <= 1
    assert all(parameter.grad is None for parameter in method.parameters())


def test_validates_vectors_without_labels():
    data = spirals(300)
    assert isinstance(data.train, Vectors)
    assert isinstance(data.test, Vectors)
    bare = Dataset("spirals", Vectors(data.train.rows), Vectors(data.test.rows[:50]))
    method = new_method(tiny.config(encoder="perceptron"), bare, torch.device("cpu"))
    assert validate(method, bare).keys() == ALWAYS | {"eval/clusters_agree"}
    few = Dataset("few", Vectors(data.train.rows), Vectors(data.test.rows[:19]))
    assert validate(method, few).keys() == ALWAYS - {"eval/effective_rank"}


def test_grids_show_every_image_in_its_place(tmp_path):
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1).repeat(8, 1).repeat(8, 2) * 40
    grid(pixels).save(tmp_path / "grid.png")
    drawn = np.asarray(Image.open(tmp_path / "grid.png"))
    assert drawn.shape == (2 * 34 + 2, 3 * 34 + 2, 3)  # three columns of 32 pixels with gaps of two
    for index in range(5):
        top, left = 2 + index // 3 * 34, 2 + index % 3 * 34
        assert (drawn[top : top + 32, left : left + 32] == index * 40).all()


def test_pixels_and_inputs_are_inverse():
    samples = tiny.dataset().test
    assert (to_pixels(samples.inputs(slice(0, 9))) == samples.pixels[:9]).all()  # pyright: ignore[reportAttributeAccessIssue]


def test_samples_are_drawn_for_images_and_vectors_and_not_without_a_generator(tmp_path):
    train = tiny.dataset().train
    for name in ("a", "b"):
        save_samples(tmp_path / f"{name}.png", tiny.method(), train, seed=0)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    save_samples(tmp_path / "c.png", tiny.method(method="random"), train, seed=0)
    assert not (tmp_path / "c.png").exists()
    points = spirals(300)
    method = new_method(tiny.config(encoder="perceptron"), points, torch.device("cpu"))
    save_samples(tmp_path / "d.png", method, points.train, seed=0)
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0m 00s"), (61, "1m 01s"), (3600, "1h 00m"), (90061, "1d 1h"), (float("inf"), "?")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text
