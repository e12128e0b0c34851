"""Torch's own operators define every network; those written for the CPU must agree with them in everything that is taken."""

import copy
from typing import Any

import pytest
import tiny
import torch
from examples import ATTENTION, DISCRIMINATORS, NETWORKS, Example
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from sao.methods import METHODS
from sao.networks import EMA, Generator
from sao.networks.cpu import portable, use_cpu_operators

STOCK = {"convolutions"}  # made of layers for which no operators were written


def with_both_operators(example: Example, training: bool, function) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a function of a network and a batch gives on the CPU, and by torch's own operators in their own layout."""
    network, results = example.network().train(training), []
    for switch in (False, True):
        with portable(switch):
            results.append(function(copy.deepcopy(network).to("cpu"), example.batch()))
    return results[0], results[1]


def assert_alike(pair: tuple[dict[str, Tensor], dict[str, Tensor]]) -> None:
    """Up to rounding, of which what cancels out (the gradient of a bias before a norm) has as much as the largest has."""
    found, expected = pair
    scale = max(float(value.detach().abs().max()) for value in expected.values())
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-11 * scale)


def outputs_of(network: nn.Module, batch: Tensor) -> Tensor:
    """Features and embeddings side by side, or what is generated."""
    outputs = network(batch)
    return torch.cat(outputs, dim=1) if isinstance(outputs, tuple) else outputs


def direction_like(tensor: Tensor, seed: float) -> Tensor:
    positions = torch.arange(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    return torch.sin(seed + 1.7 * positions).reshape(tensor.shape)


def values_and_gradients(network: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """And what the pass made of running moments and of spectral vectors."""
    inputs = batch.requires_grad_()
    outputs = outputs_of(network, inputs)
    names = [name for name, _ in network.named_parameters()]
    gradients = torch.autograd.grad(outputs, [inputs, *network.parameters()], direction_like(outputs, 1))
    return {"outputs": outputs, **dict(zip(["inputs", *names], gradients, strict=True)), **dict(network.named_buffers())}


def double_gradients(network: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """Of the gradients of inputs and parameters, along fixed directions."""
    inputs = batch.requires_grad_()
    named = {"inputs": inputs, **dict(network.named_parameters())}
    outputs = outputs_of(network, inputs)
    first = torch.autograd.grad(outputs, list(named.values()), direction_like(outputs, 1), create_graph=True)
    along = sum((gradient * direction_like(gradient, 2)).sum() for gradient in first)
    assert isinstance(along, Tensor)
    second = torch.autograd.grad(along, list(named.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(named, second, strict=True))


def tangents(network: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """Along a direction of inputs and one of parameters, and both."""
    found = {}
    for name, of_inputs, of_weights in (("inputs", 1, 0), ("weights", 0, 1), ("both", 1, 1)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(batch, of_inputs * direction_like(batch, 3))
            weights = {
                name: forward_ad.make_dual(p.detach(), of_weights * direction_like(p, 4))
                for name, p in network.named_parameters()
            }
            outputs = outputs_of(Called(network, weights), dual)
            tangent = forward_ad.unpack_dual(outputs).tangent
            assert tangent is not None
            found[name] = tangent.clone()
    return found


class Called(nn.Module):
    def __init__(self, network: nn.Module, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.network, self.weights = network, weights

    def forward(self, batch: Tensor):
        return functional_call(self.network, self.weights, (batch,))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("example", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("function", [values_and_gradients, double_gradients, tangents])
def test_both_kinds_of_operators_agree(function, example, training):
    assert_alike(with_both_operators(example, training, function))


def operators_of_ours(outputs: Tensor) -> set[str]:
    """Nodes of the graph that are written in Python."""
    found, todo, seen = set(), [outputs.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            found.add(type(node).__name__)
        todo += [following for following, _ in node.next_functions]
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_the_switch_leaves_torchs_own_operators_alone(name):
    network, batch = NETWORKS[name].network(), NETWORKS[name].batch()
    assert bool(operators_of_ours(outputs_of(network, batch))) == (name not in STOCK)
    with portable():
        outputs = outputs_of(network.to("cpu"), batch)
    assert not operators_of_ours(outputs)


def test_the_switch_is_put_back():
    tensor, raising = torch.zeros(1), portable()(dict[str, int]().__getitem__)
    with portable():
        assert not use_cpu_operators(tensor)
        with portable(False):
            assert use_cpu_operators(tensor)
        assert not use_cpu_operators(tensor)
    with pytest.raises(KeyError):
        raising("no such key")
    assert use_cpu_operators(tensor)
    assert not use_cpu_operators(tensor.to("meta"))


def test_a_state_moves_from_one_kind_to_the_other():
    for name, example in NETWORKS.items():
        ours = example.network().eval()
        with portable():
            theirs = example.build().double().eval()
            theirs.load_state_dict(ours.state_dict())
            outputs = outputs_of(theirs, example.batch())
        torch.testing.assert_close(outputs_of(ours, example.batch()), outputs, msg=lambda text, name=name: f"{name}: {text}")


# --- any other device: the meta device has no values, so that whatever looks at one raises ------------------------------------


class Layouts(TorchDispatchMode):
    """Holds that images and weights come to torch's operators in the layout that all of them support."""

    checked = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._overloadpacket in (torch.ops.aten.convolution, torch.ops.aten.native_group_norm):
            # Forward mode also multiplies with the tangent of the weights, a zero that is repeated.
            assert all(tensor.is_contiguous() or not any(tensor.stride()) for tensor in args[:2]), func
            self.checked += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("example", (NETWORKS | ATTENTION).values(), ids=NETWORKS | ATTENTION)
def test_every_network_learns_on_another_device(example, training):
    network, batch = example.network().train(training).to("meta"), example.batch().to("meta")
    ema = EMA(network)
    with Layouts() as layouts:
        found = values_and_gradients(network, batch)
    assert layouts.checked or len(example.shape) == 1
    ema.update(network)
    assert all(value.device.type == "meta" for value in found.values())
    assert {p.shape for p in network.parameters()} <= {value.shape for value in found.values()}


@pytest.mark.parametrize("example", DISCRIMINATORS.values(), ids=DISCRIMINATORS)
def test_the_jacobian_penalty_runs_on_another_device(example):
    """Tangents beside the values of one pass, the gradient of the inputs with a graph, and the backward pass of both."""
    network, batch = example.network().to("meta"), example.batch().to("meta")
    inputs = batch.requires_grad_()
    with forward_ad.dual_level(), Layouts():
        embeddings, tangent = forward_ad.unpack_dual(network(forward_ad.make_dual(inputs.clone(), torch.ones_like(inputs)))[1])
        assert tangent is not None
        direction = tangent.detach()
    (products,) = torch.autograd.grad(embeddings, inputs, direction, create_graph=True)
    (embeddings.sum() + products.square().sum()).backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in network.parameters())


def test_a_recomputing_generator_trains_on_another_device():
    network = NETWORKS["generator"].network().to("meta")
    assert isinstance(network, Generator)
    network.recompute = True
    network(NETWORKS["generator"].batch().to("meta")).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_weights_take_the_layout_of_the_device_they_come_to():
    network = NETWORKS["resnet"].network()
    kernels = lambda: [p for p in network.parameters() if p.ndim == 4 and p.shape[-1] > 1]  # noqa: E731
    assert kernels()
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels())
    with portable():
        network.to("cpu")
        assert all(p.is_contiguous() for p in kernels())
    network.float()
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels())
    network.to("meta")
    assert all(p.is_contiguous() for p in kernels())


CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in METHODS if name != "random"},  # which does not learn
    "micro-batches": {"method__micro_batch": 5},
    "spectral normalisation": {"method__spectral_normalisation": "true"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_both_kinds_of_operators_learn_the_same(options):
    found = tiny.two_steps(tiny.method(**options))
    with portable():
        expected = tiny.two_steps(tiny.method(**options))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
