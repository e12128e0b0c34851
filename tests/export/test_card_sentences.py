"""A model card, an export and a model in words, from numbers that are given to them."""

from typing import Any

import numpy as np
import pytest
import tiny
import torch
import yaml
from tiny import fake

from sao.config import load_preset
from sao.data.dataset import PixelRange
from sao.data.files.decode import PAD_VALUE
from sao.errors import InputError
from sao.evaluation.result import Metric, write_json
from sao.export import card, check, measured
from sao.export.any_size import preparation
from sao.export.check import BATCHES, PREPARED, TOLERANCE
from sao.export.ship import check_no_paths, shared_config
from sao.training.data_facts import DataFacts
from sao.training.model import Model

FACTS = DataFacts("photos", (3, 16, 24), 1234, 5)


def model(facts: DataFacts = FACTS, step: int = 70, labels: bool = False) -> Any:
    return fake(facts=facts, step=step, method_for=lambda use: fake(needs_labels=labels))


def row(value: float, **protocol: Any) -> dict[str, Any]:
    return {"name": "x", "value": value, "std": None, "protocol": protocol}


def test_the_table_of_a_card():
    metrics = {
        "knn5": row(0.98765, n_test=360, seed=3, k=5, interval_95=[0.9512, 0.9987]),
        "svm": row(0.5, n_test=360, C=0.1, C_chosen_on="a fifth", unknown=7),
        "raw/svm": row(0.25),
    }
    assert card._table(metrics) == [
        "Measured on 360 held-out samples, evaluation seed 0:",
        "",
        "| metric | learnt | 95 % interval | raw inputs |",
        "|---|---|---|---|",
        "| svm | 0.500 | – | 0.250 |",
        "| knn5 | 0.988 | 0.951 to 0.999 | – |",
        "",
        "How each was measured:",
        "",
        "- svm: linear SVM accuracy; C 0.1; C_chosen_on a fifth; n_test 360",
        "- knn5: 5-nearest-neighbour accuracy; k 5; n_test 360",
    ]
    assert card._table({"svm": row(0.5)})[2:5] == ["| metric | learnt |", "|---|---|", "| svm | 0.500 |"]
    assert card._table({}) == ["Not evaluated: `sao eval` of the run, before `sao ship`, fills in numbers."]


def test_the_numbers_of_the_hub_are_those_of_the_learnt_features():
    metrics = {"svm": row(0.123456, split="test", C=1, interval_95=[0.1, 0.2]), "raw/svm": row(0.5), "manifold_nmi": row(0.75)}
    found = card._result(model(), tiny.config(data__source="mnist"), metrics)
    assert found["dataset"] == {"type": "ylecun/mnist", "name": "photos", "split": "test"}
    assert found["task"]["type"] == "image-feature-extraction"
    assert [(one["type"], one["name"], one["value"]) for one in found["metrics"]] == [
        ("accuracy", "linear SVM accuracy", 0.1235),
        ("nmi", "NMI of clusters on a manifold", 0.75),
    ]
    assert found["metrics"][0]["args"] == {"C": 1, "split": "test", "interval_95": [0.1, 0.2]}
    vectors = DataFacts("table", (4,), 10)
    assert card._result(model(vectors), tiny.config(), {"svm": row(0.5)})["task"]["type"] == "feature-extraction"


@pytest.mark.parametrize(("typed", "front"), [
    ("MIT", {"license": "mit"}), ("cc-by-4.0", {"license": "cc-by-4.0"}), ("not stated", {}),
    ("for friends", {"license": "other", "license_name": "for friends"}),
])  # fmt: skip
def test_the_licence_of_a_card(typed, front):
    assert card._licence(typed) == front


def test_the_front_of_a_card_says_what_it_is():
    found = card._front_matter(model(), tiny.config(data__source="cifar10"), "mit", {}, "a title")
    assert found == {
        "license": "mit",
        "library_name": "sao",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["sao", "feature-extraction", "self-supervised-learning", "structural"],
        "datasets": ["uoft-cs/cifar10"],
    }
    table = model(DataFacts("t", (4,), 9), labels=True)
    vectors = card._front_matter(table, tiny.config(), "not stated", {"svm": row(1)}, "a title")
    assert vectors.keys() == {"library_name", "tags", "model-index"}
    assert vectors["tags"] == ["sao", "feature-extraction", "structural"]
    assert vectors["model-index"][0]["name"] == "a title"


def test_what_a_card_says_of_data_and_training():
    config = tiny.config(train__batch=32, seed=7)
    assert card._training_data(model(), config)[0].endswith("; 1234 training samples of 3x16x24, labels not seen")
    assert card._training_data(model(labels=True), config)[0].endswith(", with their labels")
    assert len(card._training_data(model(DataFacts("t", (4,), 9)), config)) == 1
    said = "- method structural, encoder resnet, 70 steps with batches of 32, seed 7, float32"
    assert card._training(model(), config)[1] == said
    assert card._limits(model())[0].startswith("- It knows 1234 training samples and what is like them.")
    assert card._limits(model())[1].startswith("- It sees images of 24x16 pixels")
    assert len(card._limits(model(DataFacts("t", (4,), 9)))) == 2


def test_the_metrics_of_a_card_are_of_the_step_and_of_all_layers_first(tmp_path):
    run = tiny.Run.create(tmp_path / "run", tiny.config(), DataFacts("d", (1, 8, 8), 20))
    assert card._metrics(run, 8) == {}
    write_json(run.evaluations / "summary.json", [Metric("svm", 0.25), Metric("raw/svm", 0.5), Metric("raw/nmi", 0.5)])
    assert {name: one["value"] for name, one in card._metrics(run, 8).items()} == {"svm": 0.25, "raw/svm": 0.5}
    for value, feature in ((0.5, "backbone"), (0.75, "layers")):
        write_json(run.evaluations / f"step-00000008-{feature}-ema.json", [Metric("svm", value), Metric("knn5", float("nan"))])
        assert {name: one["value"] for name, one in card._metrics(run, 8).items()} == {"svm": value}
    assert card._metrics(run, 7) == {}
    write_json(run.evaluations / "step-00000008-layers-ema.json", [Metric("raw/svm", 0.5)])
    assert card._metrics(run, 8) == {}


def test_the_command_of_a_card_is_the_nearest_preset():
    config = load_preset("digits", {"train.steps": "77", "log.every": "3", "train.threads": "1", "seed": "5"})
    assert card.command_of(config) == "sao train digits --seed 5 --train.steps 77"
    assert card.command_of(load_preset("digits")) == "sao train digits"


def test_a_copy_tells_nothing_of_the_machine():
    own = {"data__source": "/home/me/photos", "train__start_from": "/home/me/run"}
    config = tiny.config(**own, train__threads=3, train__device="cpu")
    shared = shared_config(config, "photos")
    assert (shared.data.source, shared.train.threads, shared.train.device, shared.train.start_from) == (
        "photos", None, "auto", "run",
    )  # fmt: skip
    assert shared_config(tiny.config(data__source="mnist", train__start_from="photos32"), "x").train.start_from == "photos32"
    assert shared_config(tiny.config(data__source="mnist"), "x").data.source == "mnist"
    check_no_paths(shared)
    with pytest.raises(InputError, match=r"data\.source is a path of this machine, /home/me/photos"):
        check_no_paths(config)


def test_a_card_begins_with_front_matter_that_yaml_reads(tmp_path):
    run = tiny.Run.create(tmp_path / "run", tiny.config(), DataFacts("d", (1, 8, 8), 20))
    text = card.card_of(run, model(DataFacts("d", (1, 8, 8), 20), 8), tiny.config(), "mit")
    assert text.startswith("---\n")
    assert yaml.safe_load(text.split("---\n")[1])["license"] == "mit"
    assert "\n# structural on d, 1x8x8\n" in text
    assert ": the EMA weights after step 8, for embedding, clustering and sampling." in text
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["Intended use", "Training data", "Training", "Metrics", "Limits", "How to load it", "Licence"]


@pytest.mark.parametrize(("fit", "shape", "span", "said"), [
    ("crop", (3, 32, 32), None,
     "upright, transparency on white, the centre square, resized to 32x32 by Pillow's LANCZOS filter; RGB as bytes, "
     "then x / 127.5 - 1"),
    ("pad", (1, 32, 32), None,
     "upright, transparency on white, the whole image, resized by Pillow's LANCZOS filter to 32 on its longer side, "
     "in the middle of a square of 127; grey (Pillow's L) as bytes, then x / 127.5 - 1"),
    ("centre", (3, 32, 32), None,
     "upright, transparency on white, resized by Pillow's BICUBIC filter to 36 on its shorter side, of which the centre "
     "32x32; RGB as bytes, then x / 127.5 - 1"),
    ("crop", (5, 16, 16), None, "5 channels of 16x16 pixels as bytes, then x / 127.5 - 1"),
    ("crop", (1, 16, 16), PixelRange((0.0,), (4095.0,)),
     "1 channel of 16x16 pixels in their own values, clipped to the range of the run, of which the network sees "
     "-1 to 1 (from 0 to 4095)"),
])  # fmt: skip
def test_how_an_image_becomes_an_input(fit, shape, span, said):
    assert preparation(tiny.config(data__fit=fit), shape, span) == said.replace("square of 127", f"square of {PAD_VALUE}")


def test_images_in_several_sizes_are_wide_tall_and_small():
    draws = np.random.default_rng(0).integers(0, 256, (10, 20, 10, 3), dtype=np.uint8)
    assert [one.shape for one in measured.in_several_sizes(draws)] == [
        (8, 20, 10, 3), (8, 30, 20, 3), (8, 60, 23, 3), (8, 16, 17, 3),
    ]  # fmt: skip
    assert [one.shape[3] for one in measured.in_several_sizes(draws[..., :1])] == [1] * 4


@pytest.mark.parametrize(("axes", "off", "kept"), [
    ((0,), 0.9 * TOLERANCE, True), ((0,), 1.1 * TOLERANCE, False), ((0, 1, 2), 0.9 * PREPARED, True),
    ((0, 1, 2), 1.1 * PREPARED, False),
])  # fmt: skip
def test_a_file_agrees_within_its_tolerance(axes, off, kept):
    whole = fake(expected=lambda x: x * 2.0, free_axes=axes, kind="encoder")
    inputs = np.arange(1.0, 11.0)[:, None]
    lengths: list[int] = []

    def run(x):
        lengths.append(len(x))
        return x * 2.0 + off * 2 * x.max()

    if kept:
        assert check.check(whole, run, inputs) == pytest.approx(off)
        assert lengths == [*BATCHES, 10] == [1, 2, 5, 7, 10]
    else:
        tolerance = "1e-04" if len(axes) == 1 else "5e-02"
        said = rf"^the exported encoder differs from the run by {off:.1e} of the largest value, more than {tolerance}"
        with pytest.raises(InputError, match=said):
            check.check(whole, run, inputs)


def test_few_inputs_come_again_so_that_every_length_is_tried():
    whole = fake(expected=lambda x: x, free_axes=(0,), kind="encoder")
    lengths: list[int] = []
    assert check.check(whole, lambda x: lengths.append(len(x)) or x, [np.ones((3, 1)), np.ones((2, 1))]) == 0
    assert lengths == [1, 2, 5, 7, 3, 1, 2, 5, 7, 2]


def test_a_model_says_what_was_trained_on_what():
    facts = DataFacts("digits", (1, 8, 8), 1437, 10)
    network = torch.nn.Linear(1, 1)
    found = Model(tiny.config(train__epochs=2, train__batch=16), facts, network, 70)  # pyright: ignore[reportArgumentType]
    assert repr(found).splitlines() == [
        "method                        structural",
        "data                          digits: 1437 samples of 1x8x8",
        "classes, for evaluation only  10",
        "step                          70 of 178",
        "device                        cpu",
    ]
    assert "<td>70 of 178</td>" in found._repr_html_()
    bare = Model(tiny.config(), DataFacts("d", (1, 8, 8), 9), network, 8)  # pyright: ignore[reportArgumentType]
    assert "classes, for evaluation only  none" in repr(bare)
    with pytest.raises(InputError, match=r"^n must be at least 1, got 0$"):
        bare.sample(0)
    with pytest.raises(InputError, match="the number of clusters is unknown: give k"):
        bare.clusters(None)
