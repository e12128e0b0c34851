import itertools

import pytest
import torch

from sao import randomness
from sao.randomness import batch_rows, derived_seed, generator, permuted


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
    assert permuted(torch.arange(6), 1000, seed=5).tolist() == [511, 200, 947, 784, 573, 836]
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
