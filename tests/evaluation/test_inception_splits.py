"""The Inception Score does not depend on the order in which a generator made its images."""

import numpy as np
import pytest

from sao.evaluation.generation import inception_score


def test_images_sorted_by_class_score_as_shuffled_ones():
    """In order, each split would hold one class, and the score would be 1."""
    classes = np.repeat(np.arange(10), 50)
    logits = 12.0 * np.eye(10)[classes]
    found = inception_score(logits)
    assert found.value == pytest.approx(9.5, abs=0.6)
    assert found.value == pytest.approx(inception_score(np.random.default_rng(0).permutation(logits)).value, abs=0.2)
    assert inception_score(logits, seed=1).value != found.value
