"""Gradients through the collectives are those of one process with the whole batch; threads stand for the processes."""

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.cpu import portable
from sao.networks.layers import BatchNorm

BATCH = 7  # so that the shares differ in size


class Threads:
    """Ranks of a group in one process: an exchange waits until all of them have brought their tensors."""

    def __init__(self, world: int) -> None:
        self.world, self.local = world, threading.local()
        self.barrier = threading.Barrier(world, timeout=60)
        self.brought: list[Any] = [None] * world

    def exchange(self, collective: Any, *arguments: Any) -> None:
        target = arguments[0]
        gathering = isinstance(target, list)
        self.brought[self.local.rank] = (arguments[1] if gathering else target).detach().clone()
        self.barrier.wait()
        parts = list(self.brought)
        self.barrier.wait()
        with torch.no_grad():
            if gathering:
                for own, part in zip(target, parts, strict=True):
                    own.copy_(part)
            elif arguments[1:] == (distributed.dist.ReduceOp.MAX,):
                target.copy_(torch.stack(parts).amax(0))
            else:
                target.copy_(torch.stack(parts).sum(0))

    def run(self, work: Callable[[], Any]) -> list[Any]:
        """What the function gives on each rank."""
        found: list[Any] = [None] * self.world

        def begin(rank: int) -> None:
            self.local.rank = rank
            try:
                found[rank] = work()
            except BaseException as error:
                found[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, threading.BrokenBarrierError):
                raise one
        return found


@pytest.fixture(params=[2, 3])
def group(request, monkeypatch) -> Threads:
    threads = Threads(request.param)
    monkeypatch.setattr(distributed, "_exchange", threads.exchange)
    monkeypatch.setattr(distributed, "world_size", lambda: threads.world)
    monkeypatch.setattr(distributed, "rank", lambda: threads.local.rank)
    return threads


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, W = rows(0, BATCH, 3), rows(1, BATCH, 3)


def test_a_total_has_the_gradients_of_all_processes_and_its_gradient_too(group):
    """Each process's loss is a part of the whole one, as that of a sample behind a batch moment is."""

    def loss(total: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        return (weights * (x - total.square()).sin()).sum()

    whole = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(whole.sum(0), whole, W), whole, create_graph=True)
    (second,) = torch.autograd.grad((expected * W.cos()).sum(), whole)

    def work():
        own = distributed.local_slice(BATCH)
        x = X[own].clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(distributed.total(x.sum(0)), x, W[own]), x, create_graph=True)
        return first.detach(), torch.autograd.grad((first * W[own].cos()).sum(), x)[0]

    found = group.run(work)
    torch.testing.assert_close(torch.cat([first for first, _ in found]), expected.detach())
    torch.testing.assert_close(torch.cat([other for _, other in found]), second)


def test_a_gathered_batch_gives_each_process_the_gradient_of_its_own_rows(group):
    """Every process computes the same loss of the whole batch."""
    whole = X.clone().requires_grad_()
    loss = torch.logsumexp(whole @ whole.T, 1).sum()
    (expected,) = torch.autograd.grad(loss, whole)

    def work():
        x = X[distributed.local_slice(BATCH)].clone().requires_grad_()
        everything = distributed.gather(x, BATCH)
        (gradient,) = torch.autograd.grad(torch.logsumexp(everything @ everything.T, 1).sum(), x)
        return everything.detach(), gradient

    found = group.run(work)
    for everything, _ in found:
        torch.testing.assert_close(everything, X, rtol=0, atol=0)
    torch.testing.assert_close(torch.cat([gradient for _, gradient in found]), expected)


def test_sums_agreements_and_the_main_process_are_of_all(group):
    def work():
        rank = distributed.rank()
        parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
        parameters[0].grad, parameters[2].grad = torch.tensor([1.0, rank]), torch.tensor([10.0 * rank])
        distributed.sum_gradients(parameters)
        return (
            [None if one.grad is None else one.grad.tolist() for one in parameters],
            distributed.from_main(torch.tensor([7.0 + rank])).tolist(),
            [distributed.any_of(rank == 1), distributed.any_of(False)],
            [distributed.same(3, 4), distributed.same(3, rank), distributed.same(rank, 3)],
        )

    ranks = sum(range(group.world))
    summed = [[group.world, ranks], None, [10 * ranks]]
    expected = (summed, [7], [True, False], [True, False, False])
    assert group.run(work) == [expected] * group.world


@pytest.mark.parametrize("path", ["general", "cpu"])
@pytest.mark.parametrize("conditioned", [False, True])
def test_batchnorm_of_a_group_is_torchs_of_the_whole_batch(group, path, conditioned):
    """Values, gradients of inputs and parameters, and running statistics."""
    shape = (BATCH, 3, 2, 2)
    images, weights, condition = rows(2, *shape), rows(3, *shape), rows(4, BATCH, 5)

    begun = BatchNorm(3, 5 if conditioned else None).double()

    def one_part(own: slice, layer: Callable[[Tensor, Tensor], Tensor]):
        x = images[own].clone().requires_grad_()
        y = layer(x, condition[own])
        (y.sin() * weights[own]).sum().backward()
        return y.detach(), x.grad

    alone = deepcopy(begun)
    running = alone.running_mean.clone(), alone.running_var.clone()

    def reference(x: Tensor, given: Tensor) -> Tensor:
        gain, bias = alone._gain_and_bias(given if conditioned else None)
        y = F.batch_norm(x, *running, training=True, momentum=0.1)
        return y * gain[:, :, None, None] + bias[:, :, None, None]

    expected = one_part(slice(None), reference)
    gradients = [parameter.grad for parameter in alone.parameters()]

    def work():
        layer = deepcopy(begun)  # random weights drawn by threads at once would differ
        found = one_part(distributed.local_slice(BATCH), lambda x, given: layer(x, given if conditioned else None))
        return *found, [parameter.grad for parameter in layer.parameters()], layer.running_mean, layer.running_var

    with portable(path == "general"):
        found = group.run(work)
    outputs, inputs, parameters, *statistics = zip(*found, strict=True)
    torch.testing.assert_close(torch.cat(outputs), expected[0])
    torch.testing.assert_close(torch.cat(inputs), expected[1])
    for place, gradient in enumerate(gradients):
        torch.testing.assert_close(torch.stack([one[place] for one in parameters]).sum(0), gradient)
    torch.testing.assert_close(statistics, [(one,) * group.world for one in running])
