"""Passes of a discriminator: whole or in parts, with a graph or without, with the norms of its Jacobians or without."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.profiler import record_function
from torch.nn.utils import parametrize

from sao import distributed
from sao.methods.method import Generative
from sao.networks import Discriminator
from sao.smoothness import outputs_and_norms


class Embedded(NamedTuple):
    """What D makes of some inputs."""

    embeddings: Tensor  # (m, p)
    features: Tensor  # (m, b), of the backbone, without a graph
    norms: Tensor  # of the Jacobians, where they are wanted; else (0,)


class Part(NamedTuple):
    """Some rows of [real; fake], embedded with a graph."""

    rows: slice
    inputs: Tensor
    embedded: Embedded


class DiscriminatorPasses(Generative):
    """D must treat its samples independently: that is what lets it work in parts and gives each sample its own Jacobian."""

    discriminator: Discriminator
    micro_batch: int | None  # of how many samples a part is
    batch: int  # of all processes
    power_steps = 1  # of the power iteration that finds Jacobian norms

    def _embed(self, inputs: Tensor, start: Tensor, compiled: bool = True) -> Embedded:
        """All inputs and, for as many of the first as `start` has directions, their Jacobian norms; with a graph."""
        found: list[Embedded] = []
        with_norms, without = inputs[: len(start)], inputs[len(start) :]
        if len(with_norms) > 0:
            found.append(self._embed_with_norms(with_norms, start))
        if len(without) > 0:
            with record_function("phase/discriminator forward"), self.passes(inputs, compiled=compiled) as called:
                features, embeddings = called(self.discriminator)(without)
            found.append(Embedded(embeddings.to(inputs.dtype), features.detach(), inputs.new_empty(0)))
        return _joined(found)

    def _embed_with_norms(self, inputs: Tensor, start: Tensor) -> Embedded:
        features = inputs.new_empty(0)

        def embedding(inputs: Tensor) -> Tensor:
            nonlocal features
            with record_function("phase/discriminator forward"):
                found, embeddings = self.discriminator(inputs)
            features = unpack_dual(found).primal.detach()  # a tangent travels with it
            return embeddings

        with record_function("phase/jacobian"):
            embeddings, norms = outputs_and_norms(embedding, inputs, self.power_steps, start=start, checked=False)
        return Embedded(embeddings, features, norms)

    @torch.no_grad()
    def _embed_without_graph(self, inputs: Tensor, cheaper: bool = True) -> Embedded:
        with self.passes(inputs, allowed=cheaper) as called:
            parts = [called(self.discriminator)(inputs[part]) for part in self._parts(inputs)]
        features, embeddings = (torch.cat(found) for found in zip(*parts, strict=True))
        return Embedded(embeddings.to(inputs.dtype), features, inputs.new_empty(0))

    # --- in parts ----------------------------------------------------------------------------------------------------
    # D's samples do not interact. So the gradient of a loss of the whole batch is first taken with respect to the embeddings,
    # made without a graph; then each part is embedded again with a graph, and its share of that gradient is sent back.

    @property
    def _in_parts(self) -> bool:
        """The same for every process, also where the batch does not divide evenly: the ways exchange different messages."""
        return self.micro_batch is not None and self.micro_batch < 2 * distributed.largest_share(self.batch)

    def _parts(self, inputs: Tensor) -> list[slice]:
        size = self.micro_batch or len(inputs)
        return [slice(start, start + size) for start in range(0, len(inputs), size)]

    def each_part(self, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """The function of all inputs, of a micro-batch at a time."""
        return torch.cat([function(inputs[part]) for part in self._parts(inputs)])

    @contextmanager
    def _same_weights(self) -> Iterator[None]:
        """Around the parts of one pass of D: spectral normalisation refines its estimate once, not with each of them."""
        training = self.discriminator.training
        with torch.no_grad():
            for module in self.discriminator.modules():
                if parametrize.is_parametrized(module):
                    _ = module.weight
        self.discriminator.eval()
        try:
            yield
        finally:
            self.discriminator.train(training)

    def _embedded_in_parts(
        self, inputs: Tensor, start: Tensor, for_inputs: bool = False
    ) -> tuple[Tensor, Tensor, list[Callable[[], Part]]]:
        """Embeddings to take a gradient of, features, and one call for each part that embeds it with a graph.

        The last part has its graph already, and comes first: one part the less is embedded twice. A call gives its part away,
        so that no graph is held longer than who called needs it.
        """

        def embedded(rows: slice) -> Part:
            part = inputs[rows].detach().requires_grad_(for_inputs)
            return Part(rows, part, self._embed(part, start[rows], compiled=not for_inputs))

        *others, last = self._parts(inputs)
        kept = [embedded(last)]
        values = [kept[0].embedded]
        if others:
            values.insert(0, self._embed_without_graph(inputs[: last.start], cheaper=len(start) == 0))
        embeddings, features, _ = _joined(values)
        return embeddings.detach().requires_grad_(), features, [kept.pop, *(partial(embedded, rows) for rows in others)]


def _joined(parts: Sequence[Embedded]) -> Embedded:
    return parts[0] if len(parts) == 1 else Embedded(*(torch.cat(found) for found in zip(*parts, strict=True)))
