"""Each number is of the rows and of the network that its name says."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from sao.data.dataset import Dataset, Images
from sao.evaluation.evaluator import LEARNT, Plan, chosen_rows, representations
from sao.training.validation import SMOOTHNESS_SAMPLES, validate

CPU = torch.device("cpu")
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


@pytest.mark.parametrize("feature", ["backbone", "embedding", "layers"])
def test_each_representation_is_of_its_own_network(splits, feature):
    """Of two networks that differ, on the rows that were chosen."""
    trained, untrained = tiny.method(seed=1), tiny.method(seed=2)
    found = representations(trained, Dataset("digits", *splits), Plan(("knn1",), rows=50), 3, untrained, feature)
    for name, method in ((LEARNT, trained), ("untrained", untrained)):
        for samples, values in zip(splits, found[name], strict=True):
            assert values is not None
            rows = chosen_rows(len(samples), samples.labels, 50, 3)
            expected = method.representation(feature)(samples.inputs(rows))
            np.testing.assert_allclose(values.values, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(values.labels, np.asarray(samples.labels)[rows])
    assert not np.allclose(found[LEARNT][0].values, found["untrained"][0].values, atol=1e-3)
