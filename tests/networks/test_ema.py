import copy

import pytest
import torch
from torch import nn

from sao.networks import EMA, Generator


def changed(network: nn.Module, step: int) -> None:
    """Stands for a training step: every parameter moves, and a forward pass moves the running statistics."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    network(torch.randn(8, 3, generator=generator))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_ema_is_the_weighted_sum_of_all_past_networks_with_their_statistics(decay):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    ema = EMA(network, decay)
    history = [{name: value.clone() for name, value in network.state_dict().items()}]
    for step in range(5):
        changed(network.float(), step)
        network.double()
        ema.update(network)
        history.append({name: value.clone() for name, value in network.state_dict().items()})
    weights = [decay**5, *[(1 - decay) * decay ** (4 - step) for step in range(5)]]
    for name, value in ema.network.state_dict().items():
        if value.is_floating_point():
            expected = sum(w * state[name] for w, state in zip(weights, history, strict=True))
        else:
            expected = history[-1][name]  # a counter is copied
        torch.testing.assert_close(value, expected, msg=lambda m, name=name: f"{name}: {m}")
    assert history[-1]["1.running_mean"].abs().sum() > 0


def test_vectors_of_the_power_iteration_are_copied_not_averaged():
    network = Generator(8, 1, 2, 1, 3)
    ema = EMA(network, 0.9)
    for step in range(3):
        changed(network, step)
        ema.update(network)
    ours, theirs = dict(ema.network.named_buffers()), dict(network.named_buffers())
    vectors = [name for name in ours if name.endswith(("_u", "_v"))]
    assert vectors
    assert all(torch.equal(ours[name], theirs[name]) for name in vectors)
    statistics = [name for name in ours if "running_" in name]
    assert statistics
    assert not any(torch.equal(ours[name], theirs[name]) for name in statistics)


def test_the_copy_is_frozen_separate_and_always_evaluates():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    ema = EMA(network)
    holder = nn.ModuleList([network, ema]).train()
    assert network.training
    assert not any(module.training for module in ema.modules())
    assert not any(p.requires_grad for p in ema.parameters())
    assert all(p.requires_grad for p in network.parameters())
    before = copy.deepcopy(ema.state_dict())
    changed(network, 0)
    ema.network(torch.randn(8, 3))
    assert all(torch.equal(before[name], value) for name, value in ema.state_dict().items())
    holder.eval()
    assert not network.training


def test_state_is_restored():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    first, second = EMA(network, 0.9), EMA(network, 0.9)
    changed(network, 0)
    first.update(network)
    second.load_state_dict(first.state_dict())
    changed(network, 1)
    for ema in (first, second):
        ema.update(network)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_wrong_decay_is_named(decay):
    with pytest.raises(ValueError, match=r"^decay "):
        EMA(nn.Linear(1, 1), decay)


def test_another_network_than_before_is_followed_where_it_is_given():
    one, other = nn.Linear(3, 4), nn.Linear(3, 4)
    ema = EMA(one, 0.0)
    ema.update(one)
    ema.update(other)
    assert torch.equal(ema.network.get_parameter("weight"), other.weight)


def test_a_copy_of_an_ema_leaves_the_first_one_alone():
    network = nn.Linear(3, 4)
    ema = EMA(network, 0.0)
    ema.update(network)
    followed, copied = copy.deepcopy((network, ema))
    with torch.no_grad():
        followed.weight.add_(1)
    copied.update(followed)
    assert torch.equal(copied.network.get_parameter("weight"), followed.weight)
    assert torch.equal(ema.network.get_parameter("weight"), network.weight)
