import itertools
import math

import pytest
import torch
from scipy import stats

from sao.core import random as randomness
from sao.core.random import batch_rows, derived_seed, generator, names_of, normal, permuted, uniform

ALL = slice(0, 64)


def test_the_same_arguments_give_the_same_draws_and_no_global_state_is_touched():
    state = torch.get_rng_state()
    first = torch.randn(5, generator=generator(1, "latents", 2))
    second = torch.randn(5, generator=generator(1, "latents", 2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_are_the_same_in_another_process_and_version():
    """Resumed runs depend on them: Python's own hash would change from process to process."""
    assert derived_seed(3, "epoch", 7) == 1784785678570908734


def test_a_generator_begins_at_the_seed_of_its_arguments_and_the_first_step_is_zero():
    assert generator(3, "epoch", 7).initial_seed() == derived_seed(3, "epoch", 7)
    assert generator(3, "epoch").initial_seed() == derived_seed(3, "epoch") == derived_seed(3, "epoch", 0)


def test_orders_are_the_same_in_another_version():
    """A run that is resumed goes on with the rows that it has not seen."""
    assert permuted(torch.arange(6), 1000, seed=5).tolist() == [741, 321, 690, 970, 722, 758]
    assert batch_rows(3, 17, 6, 30).tolist() == [12, 10, 3, 24, 14, 21]


def test_seeds_differ_for_different_arguments():
    triples = [*itertools.product(range(12), ["a", "b", "a/1", "1/a"], range(40)), (1, "1/1", 1), (11, "1", 1)]
    seeds = [derived_seed(*triple) for triple in triples]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_streams_are_uncorrelated():
    n = 20_000
    arguments = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    streams = torch.stack([torch.randn(n, generator=generator(*a)) for a in arguments])
    correlations = torch.corrcoef(streams) - torch.eye(len(streams))
    assert correlations.abs().max() < 4.5 / n**0.5


@pytest.mark.parametrize("largest", [2**20, 0])  # with the order of an epoch kept, and without
@pytest.mark.parametrize(("samples", "batch"), [(12, 4), (13, 4), (5, 5), (7, 1), (9, 5), (1000, 24)])
def test_each_epoch_is_a_permutation_cut_into_batches(samples, batch, largest, monkeypatch):
    monkeypatch.setattr(randomness, "LARGEST_ORDER", largest)
    per_epoch = samples // batch
    orders = []
    for epoch in range(3):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        rows = torch.cat([batch_rows(0, step, batch, samples) for step in steps])
        assert len(rows) == per_epoch * batch
        assert len(rows.unique()) == len(rows)
        assert int(rows.min()) >= 0
        assert int(rows.max()) < samples
        orders.append(rows.tolist())
    assert orders[0] != orders[1]
    assert orders[1] != orders[2]


def test_batches_depend_on_nothing_but_the_arguments():
    forwards = [batch_rows(3, step, 4, 30).tolist() for step in range(20)]
    backwards = [batch_rows(3, step, 4, 30).tolist() for step in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert forwards != [batch_rows(4, step, 4, 30).tolist() for step in range(20)]


def test_every_row_is_seen_over_the_epochs():
    seen = torch.cat([batch_rows(0, step, 4, 7) for step in range(20)])
    assert sorted(set(seen.tolist())) == list(range(7))


@pytest.mark.parametrize(("arguments", "name"), [((0, 0, 0, 5), "batch"), ((0, 0, 6, 5), "batch"), ((0, -1, 2, 5), "step")])
def test_batch_rows_names_the_wrong_argument(arguments, name):
    with pytest.raises(ValueError, match=rf"^{name} "):
        batch_rows(*arguments)


def test_the_order_of_an_epoch_is_made_once(monkeypatch):
    made, randperm = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *args, **kwargs: made.append(args) or randperm(*args, **kwargs))
    for step in range(30):
        batch_rows(12345, step, 10, 100)
    assert len(made) == 3


def test_a_batch_of_a_billion_samples_is_made_without_the_others():
    rows = batch_rows(0, 10**6, 500, 10**9)  # an order of all of them would take 8 GB
    assert len(rows.unique()) == 500
    assert int(rows.max()) < 10**9
    assert not torch.equal(rows, batch_rows(0, 10**6 + 1, 500, 10**9))


@pytest.mark.parametrize("samples", [1, 2, 3, 17, 1000, 4096, 4097, 50_000])
def test_permuted_is_a_permutation(samples):
    assert torch.equal(permuted(torch.arange(samples), samples, seed=7).sort().values, torch.arange(samples))


def test_permuted_is_as_random_as_a_permutation():
    """Over seeds, every position is equally likely to come from every row, and neighbours do not stay neighbours."""
    samples, seeds = 20, 500
    orders = torch.stack([permuted(torch.arange(samples), samples, seed) for seed in range(seeds)])
    counts = torch.stack([(orders == row).sum(0) for row in range(samples)]).double()
    expected = seeds / samples
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    freedom = (samples - 1) ** 2
    assert abs(chi_squared - freedom) < 5 * (2 * freedom) ** 0.5
    followers = (orders[:, 1:] == orders[:, :-1] + 1).double().mean()
    assert abs(float(followers) - 1 / samples) < 5 * (1 / samples / orders[:, 1:].numel()) ** 0.5


def test_permuted_rows_are_not_correlated_with_their_positions_or_another_seed():
    n = 20_000
    position, first, second = torch.arange(n), permuted(torch.arange(n), n, 1), permuted(torch.arange(n), n, 2)
    correlations = torch.corrcoef(torch.stack([position, first, second, first.roll(1)]).double()) - torch.eye(4)
    assert correlations.abs().max() < 5 / n**0.5


# --- draws for a batch ---------------------------------------------------------------------------------------------------


def splitmix64(state: int) -> int:
    """The published function of a state, in Python's numbers without a sign."""
    state &= 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def words(key: int, row: int, count: int) -> list[int]:
    """Two from each state of the stream of a row, the lower half first."""
    apart = 0x9E3779B97F4A7C15
    start = splitmix64(key + row * apart)
    states = [splitmix64(start + (place + 1) * apart) for place in range(-(-count // 2))]
    return [half & (2**31 - 1) for state in states for half in (state % 2**32, state >> 32)][:count]


def test_the_generator_is_splitmix64():
    """Its first numbers from state 0 were published with it."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [splitmix64((place + 1) * 0x9E3779B97F4A7C15) for place in range(3)] == published


@pytest.mark.parametrize("count", [1, 2, 5])
def test_draws_are_those_of_a_literal_generator(count):
    key, rows = derived_seed(3, "a", 7), range(2, 6)
    expected = [[(word >> 7) / 2**24 for word in words(key, row, count)] for row in rows]
    assert uniform(3, "a", 7, slice(2, 6), (count,), "cpu").tolist() == expected
    half = -(-count // 2)
    for row, found in zip(rows, normal(3, "a", 7, slice(2, 6), (count,), "cpu"), strict=True):
        of_row = words(key, row, 2 * half)
        pairs = [
            (math.sqrt(-2 * math.log((one + 1) / 2**31)), 2 * math.pi * other / 2**31)
            for one, other in zip(of_row[:half], of_row[half:], strict=True)
        ]
        both = [r * math.sin(angle) for r, angle in pairs] + [r * math.cos(angle) for r, angle in pairs]
        torch.testing.assert_close(found, torch.tensor(both[:count]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("draw", [uniform, normal])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5, 4)])
def test_rows_are_the_same_whoever_draws_them(draw, shape):
    whole = draw(3, "a", 7, ALL, shape, "cpu")
    assert whole.shape == (64, *shape)
    assert whole.dtype == torch.float32
    for start, stop in [(0, 21), (21, 42), (42, 64), (63, 64)]:
        assert torch.equal(draw(3, "a", 7, slice(start, stop), shape, "cpu"), whole[start:stop])


@pytest.mark.parametrize("draw", [uniform, normal])
def test_a_device_without_memory_can_draw(draw):
    """So nothing is read back, and nothing comes from the host."""
    assert draw(3, "a", 7, slice(4, 9), (3, 5), torch.device("meta")).shape == (5, 3, 5)


def test_draws_have_their_distribution():
    n = 64 * 6000
    flat, bell = (draw(3, "a", 7, ALL, (6000,), "cpu").double().flatten() for draw in (uniform, normal))
    assert float(flat.min()) >= 0
    assert float(flat.max()) < 1
    assert stats.kstest(flat.numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(bell.numpy(), "norm").pvalue > 1e-3
    for power, moment, deviation in [(1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)]:
        assert abs(float((bell**power).mean()) - moment) < 4.5 * deviation / n**0.5
    assert 4 < float(bell.abs().max()) < 6.6


def test_numbers_around_0_and_1_are_as_frequent_as_others():
    """The rarest are those that a mistake in the conversion would double, or lose."""
    flat = uniform(3, "a", 7, slice(0, 256), (16384,), "cpu")
    expected = flat.numel() / 2**12
    for count in (int((flat < 2**-12).sum()), int((flat >= 1 - 2**-12).sum())):
        assert abs(count - expected) < 4.5 * expected**0.5


@pytest.mark.parametrize("draw", [uniform, normal])
def test_rows_columns_steps_purposes_and_seeds_are_unrelated(draw):
    """Also where they differ as little as they can, and shifted against each other."""
    columns = 4096
    one = draw(3, "a", 7, ALL, (columns,), "cpu").double()
    limit = 5 / (one.shape[0] * one.shape[1]) ** 0.5
    others = [draw(4, "a", 7, ALL, (columns,), "cpu"), draw(3, "b", 7, ALL, (columns,), "cpu")]
    others += [draw(3, "a", 8, ALL, (columns,), "cpu"), draw(3, "a", 7, slice(64, 128), (columns,), "cpu")]
    others += [one.roll(1, 0), one.roll(1, 1), one.roll((1, 1), (0, 1)), one.roll((1, -1), (0, 1)), one.roll(columns // 2, 1)]
    for function in (lambda x: x, lambda x: x.square(), lambda x: x.abs()):  # pairs of normal numbers share their radius
        base = function(one - one.mean()).flatten()
        for other in others:
            other = other.double()
            correlation = torch.corrcoef(torch.stack([base, function(other - other.mean()).flatten()]))[0, 1]
            assert abs(float(correlation)) < limit
    within_rows, within_columns = torch.corrcoef(one) - torch.eye(64), torch.corrcoef(one[:, :64].T) - torch.eye(64)
    assert within_rows.abs().max() < 5.5 / columns**0.5
    assert within_columns.abs().max() < 5.5 / 64**0.5


def test_every_row_has_its_own_moments():
    """Stretches of one stream would do for the whole; each row must do alone."""
    n = 4096
    means = normal(3, "a", 7, slice(0, 500), (n,), "cpu").double().mean(1) * n**0.5
    assert stats.kstest(means.numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
def test_a_name_is_made_of_every_bit_of_a_row_and_of_its_place(shape):
    """Literally: the name decides the noise of a sample, which must be the same tomorrow."""
    rows = torch.linspace(-2, 3, 24).reshape(4, *shape)
    apart, names = 0x9E3779B97F4A7C15, names_of(rows)
    for name, row in zip(names.tolist(), rows.flatten(1).numpy(), strict=True):
        bits = [int(number) for number in row.view("int32")]
        expected = sum(splitmix64(splitmix64(one) + (place + 1) * apart) for place, one in enumerate(bits))
        assert name % 2**64 == expected % 2**64
    assert names_of(rows[[2, 0]]).tolist() == names[[2, 0]].tolist()
    assert len(set(names_of(torch.eye(6)).tolist())) == 6  # the same numbers in other places
