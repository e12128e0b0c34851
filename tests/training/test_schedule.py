"""Learning rates: a function of the step, honoured by every method."""

import pytest
import tiny

from sao.training.schedule import LearningRates, learning_rate_factor


def test_a_straight_rise_then_level():
    assert [learning_rate_factor("constant", step, 8, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [learning_rate_factor("constant", step, 8, 0) for step in range(2)] == [1, 1]


def test_a_cosine_falls_from_one_and_never_reaches_zero():
    factors = [learning_rate_factor("cosine", step, 12, 2) for step in range(12)]
    assert factors[:3] == [0.5, 1, 1]
    assert factors[7] == pytest.approx(0.5)
    assert factors[2:] == sorted(factors[2:], reverse=True)
    assert 0 < factors[-1] < 0.05


def test_every_optimiser_follows_and_comes_back():
    method = tiny.method(method__generator_optimiser__learning_rate=4e-3, method__discriminator_optimiser__learning_rate=2e-3)
    rates = LearningRates(method.optimisers, "cosine", total=10, warmup=2)

    def now() -> list[float]:
        return [group["lr"] for one in method.optimisers.values() for group in one.param_groups]

    rates.set(0)
    assert now() == pytest.approx([1e-3, 2e-3])
    rates.set(9)
    assert max(now()) < 2e-4
    rates.set(2)
    assert now() == pytest.approx([2e-3, 4e-3])


@pytest.mark.parametrize("method", ["structural", "simclr", "supervised"])
def test_the_loop_sets_them_for_every_method(method, tmp_path):
    _, trained = tiny.trained(tmp_path / "run", method=method, train__schedule="cosine", train__steps=4)
    expected = learning_rate_factor("cosine", 3, 4, 0) * 1e-3
    assert next(iter(trained.optimisers.values())).param_groups[0]["lr"] == pytest.approx(expected)
