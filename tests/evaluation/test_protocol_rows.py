"""Each number is of the rows and of the network that its name says."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from sao.core.jacobian import jacobian_norm
from sao.core.random import generator
from sao.data.dataset import Dataset, Images
from sao.evaluation.clusters import cluster_agreement
from sao.evaluation.evaluator import LEARNT, Plan, chosen_rows, representations
from sao.evaluation.extract import raw_inputs
from sao.evaluation.memorisation import memorised
from sao.evaluation.patches import patch_features
from sao.evaluation.rank import effective_rank
from sao.methods import generative
from sao.training.pictures import to_pixels
from sao.training.validation import COPIES_SAMPLES, SMOOTHNESS_SAMPLES, validate

# Of the training set alone, or of both; everything else is of the test set alone.
OF_TRAINING = {"eval/memorised"}
OF_BOTH = {"eval/probe_n80", "eval/knn1_n80", "eval/knn5_n80"}


def part(samples, first: int, count: int) -> Images:
    return samples.select(np.arange(first, first + count))


@pytest.fixture(scope="module")
def splits() -> tuple[Images, Images]:
    data = tiny.dataset()
    return part(data.train, 0, 200), part(data.test, 0, 80)


def inverted(samples: Images) -> Images:
    """Other pictures with the same labels."""
    return replace(samples, pixels=255 - np.asarray(samples.pixels))


def changed_names(one: dict[str, float], other: dict[str, float]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


def test_validation_takes_from_each_split_what_belongs_to_it(splits):
    train, test = splits
    method = tiny.method()
    found = validate(method, Dataset("digits", train, test))
    other_training_rows = validate(method, Dataset("digits", part(tiny.dataset().train, 200, 200), test))
    other_test_rows = validate(method, Dataset("digits", train, inverted(test)))
    assert changed_names(found, other_training_rows) <= OF_TRAINING | OF_BOTH
    assert changed_names(found, other_training_rows) & OF_BOTH
    assert not changed_names(found, other_test_rows) & OF_TRAINING
    of_test = {"eval/effective_rank", "eval/jacobian_norm_q05", "eval/jacobian_norm_q50", "eval/jacobian_norm_q95"}
    assert of_test <= changed_names(found, other_test_rows)


def test_the_samples_of_the_jacobian_are_the_first_of_the_test_set(splits):
    train, test = splits
    assert len(test) > SMOOTHNESS_SAMPLES
    pixels = np.asarray(test.pixels).copy()
    pixels[SMOOTHNESS_SAMPLES:] = 255 - pixels[SMOOTHNESS_SAMPLES:]
    method = tiny.method()
    found = [validate(method, Dataset("digits", train, one)) for one in (test, replace(test, pixels=pixels))]
    assert not [name for name in changed_names(*found) if "jacobian" in name]


def test_validation_is_what_its_parts_give_with_the_seed_of_the_run(splits):
    """Each of them alone, from the rows and draws that it should have."""
    train, test = splits
    method = tiny.method(seed=1)
    found = validate(method, Dataset("digits", train, test), seed=3)
    draws = generator(3, "watch")
    norms = jacobian_norm(method.smooth_function, test.inputs(slice(0, SMOOTHNESS_SAMPLES)), 4, generator=draws).detach()
    for level, name in ((0.05, "q05"), (0.5, "q50"), (0.95, "q95")):
        assert found[f"eval/jacobian_norm_{name}"] == pytest.approx(float(norms.quantile(level)), rel=1e-4)
    features = method.features(test.inputs(slice(None)))
    assert found["eval/clusters_agree"] == pytest.approx(cluster_agreement(features, 10, 5, seed=3).value)
    assert found["eval/effective_rank"] == pytest.approx(effective_rank(features).value, rel=1e-4)
    maker = generative(method)
    assert maker is not None
    drawn = to_pixels(maker.decode(torch.randn(COPIES_SAMPLES, *maker.latent_shape, generator=generator(3, "samples"))))
    assert found["eval/memorised"] == memorised(drawn, train.pixels, limit=500, seed=3).share.value


def test_baselines_have_the_size_and_the_seed_of_what_they_are_compared_with(splits):
    found = representations(tiny.method(), Dataset("digits", *splits), Plan(("knn1",), rows=50), 3, tiny.method())
    assert found["pca"][0].values.shape[1] == found[LEARNT][0].values.shape[1] < found["raw"][0].values.shape[1]
    rows = [chosen_rows(len(part), part.labels, 50, 3) for part in splits]
    expected, other = (
        patch_features([(part.pixels, chosen) for part, chosen in zip(splits, rows, strict=True)], 256, seed)[0]
        for seed in (3, 0)
    )
    np.testing.assert_array_equal(found["patches"][0].values, expected[0])
    assert not np.array_equal(expected[0], other[0])


@pytest.mark.parametrize("feature", ["backbone", "embedding", "layers"])
def test_each_representation_is_of_its_own_network(splits, feature):
    """Of two networks that differ, on the rows that were chosen; the untrained one is asked for the same kind of features."""
    trained, untrained = tiny.method(seed=1), tiny.method(seed=2)
    found = representations(trained, Dataset("digits", *splits), Plan(("knn1",), rows=50), 3, untrained, feature)
    for name, method in ((LEARNT, trained), ("untrained", untrained)):
        for samples, values in zip(splits, found[name], strict=True):
            assert values is not None
            rows = chosen_rows(len(samples), samples.labels, 50, 3)
            expected = method.representation(feature)(samples.inputs(rows))
            np.testing.assert_allclose(values.values, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(values.labels, np.asarray(samples.labels)[rows])
            assert values.protocol["feature"] == feature
    for samples, values in zip(splits, found["raw"], strict=True):
        assert values is not None
        np.testing.assert_array_equal(values.values, raw_inputs(samples)[chosen_rows(len(samples), samples.labels, 50, 3)])
    assert not np.allclose(found[LEARNT][0].values, found["untrained"][0].values, atol=1e-3)


def test_copies_are_those_of_training_images(splits):
    """Sixty of the images that validation draws are put into one split or the other."""
    train, test = splits
    method = tiny.method(seed=1)
    maker = generative(method)
    assert maker is not None
    drawn = to_pixels(maker.decode(torch.randn(COPIES_SAMPLES, *maker.latent_shape, generator=generator(3, "samples"))))
    data = Dataset("digits", train, test)
    for split, share in (("train", 60 / COPIES_SAMPLES), ("test", 0.0)):
        samples = getattr(data, split)
        pixels = np.concatenate([drawn[:60], np.asarray(samples.pixels)[60:]])
        copied = {"train": train, "test": test, split: replace(samples, pixels=pixels)}
        assert validate(method, Dataset("digits", **copied), seed=3)["eval/memorised"] == pytest.approx(share, abs=0.02)
