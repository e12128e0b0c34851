"""What a model gives depends on its weights and on the seed that it is asked with."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.core.random import generator
from sao.evaluation.kmeans import best_kmeans
from sao.evaluation.rank import effective_rank
from sao.training import checkpoint
from sao.training.model import Model
from sao.training.run_folder import DataFacts, Run


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    """Of a run whose weights have moved, and those of the EMAs otherwise than the others."""
    run = Run.create(tmp_path_factory.mktemp("model") / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    checkpoint.save(run.checkpoints, moved(), 8, keep=1)
    return sao.load(Path(run.folder), device="cpu")


def moved():
    method = tiny.method(seed=7)
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            parameter *= 1.1 if name.startswith("ema_") else 1.3
    return method


@pytest.fixture(scope="module")
def images():
    return tiny.dataset().test.select(np.arange(60))


def test_the_untrained_network_is_the_one_before_the_first_step(model, images):
    inputs = images.inputs(slice(None))
    untrained = model.untrained()
    assert not any(module.training for module in untrained.modules())
    np.testing.assert_allclose(untrained.features(inputs), tiny.method().features(inputs), atol=1e-6)
    assert not np.allclose(untrained.features(inputs), model.method.features(inputs), atol=1e-3)


def test_an_evaluation_has_the_learnt_and_the_untrained_features_apart(model, images):
    found = {metric.name: metric for metric in model.evaluate(images).metrics}
    inputs = images.inputs(slice(None))
    for name, method in (("", moved()), ("untrained/", tiny.method())):
        rank = effective_rank(method.features(inputs)).value
        assert found[f"{name}effective_rank"].value == pytest.approx(rank, rel=1e-4)
    assert found["effective_rank"].protocol["weights"] == "ema"
    assert found["untrained/effective_rank"].protocol["weights"] == "untrained"


def test_samples_are_those_of_the_seed(model):
    for seed in (0, 3):
        latents = torch.randn(5, *model.latent_shape, generator=generator(seed, "samples"))
        np.testing.assert_array_equal(model.sample(5, seed), model.decode(latents))
    assert not np.array_equal(model.sample(5, 0), model.sample(5, 3))


def test_clusters_are_those_of_the_seed(model, images):
    for seed in (0, 3):
        features = model.embed(images)
        expected = best_kmeans(features, 4, seed=seed).assign(features)
        np.testing.assert_array_equal(model.predict(images, k=4, seed=seed), expected)
    np.testing.assert_array_equal(model.predict(images), expected)  # of the last that were fitted
    assert len(np.unique(model.predict(images, k=7))) == 7
