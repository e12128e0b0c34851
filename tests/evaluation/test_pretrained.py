"""A pretrained network as a reference: with the real packages, and never from the network."""

import socket
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from given import refused

from sao.data.dataset import Images
from sao.errors import InputError
from sao.evaluation import pretrained as module
from sao.evaluation.budget import Budget, OutOfTime
from sao.evaluation.evaluator import LEARNT, PATCHES, Plan, measure, representations
from sao.evaluation.extractors import efficientnet_lite0
from sao.evaluation.pretrained import LITE0, Pretrained, pretrained
from sao.evaluation.result import Metric, accuracy
from sao.evaluation.verdict import verdict_of
from sao.runtime.torchvision_import import import_torchvision

CPU = torch.device("cpu")


def pixels(n: int = 5, size: int = 32, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, size, size, channels), dtype=np.uint8)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("something asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("asked", "shape", "expected"),
    [
        ("none", (3, 64, 64), None),
        ("auto", (3, 32, 32), LITE0),
        ("auto", (3, 16, 16), None),
        ("auto", (1, 64, 64), None),
        ("auto", (7,), None),
        (LITE0, (1, 16, 16), LITE0),
    ],
)
def test_which_network_is_compared_with(asked, shape, expected):
    found = pretrained(asked, shape)
    assert (None if found is None else found.name) == expected


def test_without_the_package_the_default_is_none_and_the_name_an_error(monkeypatch):
    found = module.importlib.util.find_spec
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if "lite" in name else found(name))
    assert pretrained("auto", (3, 64, 64)) is None
    network = pretrained(LITE0, (3, 64, 64))
    assert network is not None
    with pytest.raises(InputError, match=r"efficientnet-lite-pytorch is not installed: pip install 'sao\[metrics\]'"):
        network.features([(pixels(), np.arange(5))], CPU, 60)


@pytest.mark.parametrize(
    ("asked", "shape", "message"),
    [
        ("resnet18", (3, 32, 32), "give efficientnet_lite0, timm:NAME or none"),
        (LITE0, (7,), "these are vectors"),
        ("timm:resnet1", (3, 32, 32), "has no weights for a network 'resnet1'"),
        ("timm:resnet18", (3, 32, 32), "the weights of timm:resnet18 are not on this machine, and nothing is downloaded"),
    ],
)
def test_what_cannot_be_compared_with_is_one_line(asked, shape, message, tmp_path, monkeypatch):
    _empty_caches(tmp_path, monkeypatch)
    refused(message, pretrained, asked, shape)


def _empty_caches(folder, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(folder / "torch"))


def test_features_are_those_of_the_package_for_the_chosen_rows():
    given, rows = pixels(), np.array([3, 1])
    network = pretrained(LITE0, (3, 32, 32))
    assert network is not None
    (found,), facts = network.features([(given, rows)], CPU, float("inf"))
    torch.testing.assert_close(found, efficientnet_lite0(128)(given[rows])[0])
    assert facts["feature"] == "pretrained efficientnet_lite0"
    assert facts["weights"] == "pretrained"
    assert facts["input_size"] == 128
    assert "ImageNet" in facts["extractor"]


def test_smaller_inputs_are_taken_where_time_is_short_and_too_little_time_is_an_end():
    network = pretrained(LITE0, (3, 32, 32))
    assert network is not None
    assert network.features([(pixels(), np.arange(5))], CPU, 0.0)[1]["input_size"] == 64
    with pytest.raises(OutOfTime), Budget(1e-9).computation():
        network.features([(pixels(), np.arange(5))], CPU, 0.0)


@pytest.mark.parametrize("cache", ["hub", "torch"])
def test_a_network_of_timm_takes_weights_that_are_on_the_machine(cache, tmp_path, monkeypatch):
    import_torchvision()
    import timm
    from safetensors.torch import save_file

    _empty_caches(tmp_path, monkeypatch)
    torch.manual_seed(1)
    original: Any = timm.create_model("resnet10t")
    config: Any = timm.models.get_pretrained_cfg("resnet10t")
    if cache == "hub":
        folder = tmp_path / "hub" / f"models--{config.hf_hub_id.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("abc")
        (folder / "snapshots" / "abc").mkdir(parents=True)
        save_file(original.state_dict(), folder / "snapshots" / "abc" / "model.safetensors")
    else:
        (tmp_path / "torch" / "checkpoints").mkdir(parents=True)
        torch.save(original.state_dict(), tmp_path / "torch" / "checkpoints" / config.url.rsplit("/")[-1])
    network = pretrained("timm:resnet10t", (3, 32, 32))
    assert network is not None
    size = config.input_size[-1]
    given = pixels(3, size)  # so that nothing is resized
    (found,), facts = network.features([(given, np.arange(3))], CPU, 0.0)
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (config.mean, config.std))
    inputs = (torch.from_numpy(given).permute(0, 3, 1, 2) / 255 - mean) / deviation
    original.reset_classifier(0)
    with torch.no_grad():
        torch.testing.assert_close(found, original.eval()(inputs), rtol=1e-3, atol=1e-4)
    assert facts["feature"] == "pretrained timm:resnet10t"
    assert config.hf_hub_id in facts["extractor"]


def test_it_is_a_row_of_its_own_and_no_baseline():
    data, plan = tiny.dataset(), Plan(("knn5",), rows=40)
    network = Pretrained(LITE0, (64,), efficientnet_lite0)
    found = representations(tiny.method(), data, plan, untrained=tiny.method(seed=1), pretrained=network)
    assert list(found) == [LEARNT, "raw", "pca", "untrained", PATCHES, "pretrained"]
    evaluation = measure(found, plan)
    assert evaluation.metrics[-1].name == "pretrained/knn5"
    assert evaluation.metrics[-1].protocol["weights"] == "pretrained"
    assert evaluation.verdict is not None
    assert "(the best of raw, pca, untrained, patches)" in evaluation.verdict.sentence
    assert "pretrained efficientnet_lite0" in evaluation.verdict.sentence


def test_it_is_left_out_where_it_does_not_fit_into_the_budget():
    slow = Pretrained("slow", (64,), lambda *_: pytest.fail("it was built"))
    found = representations(
        tiny.method(), tiny.dataset(), Plan(("knn5",), rows=50), untrained=tiny.method(), budget=Budget(1e-9), pretrained=slow
    )
    assert "pretrained" not in found
    assert list(found[LEARNT][0].protocol["left_out"]) == [PATCHES, "pretrained"]


# --- the verdict -----------------------------------------------------------------------------------------------------------


def right(share: float, name: str) -> Metric:
    return accuracy(name, np.arange(1000) < 1000 * share, {"feature": "pretrained efficientnet_lite0"})


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ((0.9, 0.9), "A pretrained network is the better choice here (the pretrained efficientnet_lite0, trained elsewhere"),
        ((0.9, 0.5), "better in part: linear SVM 0.900 against 0.700; but worse at 5-nearest-neighbour 0.500 against 0.700."),
        ((0.5, 0.5), "It is better than a pretrained network too"),
        ((0.7, 0.7), "is neither better nor worse, measurably."),
    ],
)
def test_the_verdict_says_when_a_pretrained_network_is_the_better_choice(theirs, said):
    names = ("svm", "knn5")
    metrics = [right(0.7, name) for name in names] + [right(0.6, f"raw/{name}") for name in names]
    metrics += [right(share, f"pretrained/{name}") for share, name in zip(theirs, names, strict=True)]
    verdict = verdict_of(metrics)
    assert verdict.better is True  # than what is cheap and unlabelled
    assert verdict.sentence.startswith("Yes, this embedding is better than the baselines (the best of raw):")
    assert said in verdict.sentence


def test_images_of_one_channel_are_shown_in_grey():
    network = pretrained(LITE0, (1, 32, 32))
    assert network is not None
    grey = Images(pixels(2, channels=1))
    found = network.features([(grey.pixels, np.arange(2))], CPU, 0.0)[0][0]
    colour = network.features([(np.repeat(grey.pixels, 3, axis=3), np.arange(2))], CPU, 0.0)[0][0]
    torch.testing.assert_close(found, colour)
