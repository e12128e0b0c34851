"""What the map says of a sample is of that sample."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.core.jacobian import jacobian_audit
from sao.report import points
from sao.report.gallery import Gallery
from sao.report.points import NEIGHBOURS, _nearest, described_groups, generated_points, jacobian_norms, points_of
from sao.training import checkpoint
from sao.training.model import Model
from sao.training.run_folder import DataFacts, Run


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    run = Run.create(tmp_path_factory.mktemp("points") / "run", tiny.config(), DataFacts.of(tiny.dataset()))
    checkpoint.save(run.checkpoints, tiny.method(), 8, keep=1)
    return sao.load(Path(run.folder), device="cpu")


@pytest.fixture(scope="module")
def samples():
    return tiny.dataset().test.select(np.arange(40))


def test_norms_are_those_of_each_sample(model, samples):
    found = jacobian_norms(model, Gallery.of(samples, 100), 60.0, seed=0)
    exact = jacobian_audit(model.method.smooth_function, samples.inputs(slice(None)), [1]).exact
    assert found is not None
    assert exact is not None
    assert (found <= exact.numpy() * (1 + 1e-4)).all()  # an estimate never exceeds the norm
    assert np.corrcoef(found, exact)[0, 1] > 0.5  # after two steps


def test_every_norm_stands_at_its_sample(model, samples, monkeypatch):
    monkeypatch.setattr(points, "jacobian_norm", lambda function, inputs, steps, generator: inputs.flatten(1).sum(1))
    found = jacobian_norms(model, Gallery.of(samples, 100), 60.0, seed=0)
    assert found is not None
    np.testing.assert_allclose(found, samples.inputs(slice(None)).flatten(1).sum(1), rtol=1e-5)


def test_without_time_some_samples_have_a_norm_and_no_other_ones(model, samples):
    found = jacobian_norms(model, Gallery.of(samples, 100), 0.0, seed=0)
    assert found is not None
    measured = np.flatnonzero(np.isfinite(found))
    assert 0 < len(measured) <= model.config.train.batch
    whole = jacobian_norms(model, Gallery.of(samples, 100), 60.0, seed=0)
    assert whole is not None
    np.testing.assert_allclose(found[measured], whole[measured], rtol=1e-5)


def test_a_generated_sample_may_have_any_neighbour():
    directions = unit(np.random.default_rng(1).standard_normal((17, 4)).astype(np.float32))
    found, _ = _nearest(directions[:10], directions[7:], own=False)
    assert found.tolist() == np.argsort(-(directions[:10] @ directions[7:].T), axis=1)[:, :NEIGHBOURS].tolist()
    assert found[8:, 0].tolist() == [1, 2]  # those that are themselves among the others


def test_few_samples_have_as_many_neighbours_as_there_are():
    directions = np.eye(3, dtype=np.float32)
    assert _nearest(directions, directions, own=True)[0].shape == (3, 2)
    assert _nearest(directions, directions, own=False)[0].shape == (3, 3)


def test_points_are_the_features_of_their_samples(model, samples):
    features = model.embed(samples)
    found, centres = points_of(Gallery.of(samples, 100), features, 3, seed=0)
    np.testing.assert_allclose(found.directions, unit(features), atol=1e-5)
    np.testing.assert_allclose(found.closeness, unit(features) @ centres.T, atol=1e-5)
    assert found.closeness.shape == (40, 3)
    drawn = generated_points(model, found, centres, 12, 60.0, seed=0)
    assert drawn is not None
    features = model.embed(drawn.samples)
    np.testing.assert_allclose(drawn.directions, unit(features), atol=1e-5)
    np.testing.assert_allclose(drawn.closeness, unit(features) @ centres.T, atol=1e-5)
    assert torch.unique(torch.from_numpy(np.asarray(drawn.samples.pixels)), dim=0).shape[0] == 12  # pyright: ignore[reportAttributeAccessIssue]


def test_borderline_samples_lean_to_the_second_nearest_group_the_least_sure_first(model, samples):
    features = model.embed(samples)
    found, centres = points_of(Gallery.of(samples, 100), features, 4, seed=0)
    cosines = unit(features) @ centres.T
    groups = described_groups(found, None)
    assert sum(len(group["borderline"]) for group in groups) > 8
    for number, group in enumerate(groups):
        nearest_two = np.argsort(-cosines[group["borderline"]], axis=1)[:, :2]
        assert nearest_two.tolist() == [[number, other] for other in group["towards"]]
        ranked = np.sort(cosines[group["borderline"]], axis=1)
        assert (np.diff(ranked[:, -1] - ranked[:, -2]) >= 0).all()


def test_a_group_is_described_by_its_own_members(model, samples):
    """Size, labels, the most typical samples and those that the generator made for it, each literally."""
    features = model.embed(samples)
    found, centres = points_of(Gallery.of(samples, 100), features, 4, seed=0)
    drawn = generated_points(model, found, centres, 16, 60.0, seed=0)
    assert drawn is not None
    real, made = (unit(values) @ centres.T for values in (features, model.embed(drawn.samples)))
    for number, group in enumerate(described_groups(found, drawn)):
        members, generated = (np.flatnonzero(cosines.argmax(axis=1) == number) for cosines in (real, made))
        assert group["size"] == len(members)
        assert group["typical"] == members[np.argsort(-real[members, number], kind="stable")][:12].tolist()
        assert dict(group["labels"]) == Counter(samples.labels[members].tolist())
        assert group["labels"] == sorted(group["labels"], key=lambda label: -label[1])
        assert group["generated_count"] == len(generated)
        assert group["generated"] == generated[np.argsort(-made[generated, number], kind="stable")][:12].tolist()


def unit(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)
