"""Passes of a discriminator: in micro-batches, with or without a graph, with or without Jacobian norms.

D's samples do not interact. So the gradient of the loss is taken at D's outputs for the whole batch, and each micro-batch sends
its rows of it back: the last one has kept its graph, the others are embedded again. A small batch is one micro-batch. Where
only some samples have Jacobian norms, these are one micro-batch more, of norms alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.profiler import record_function
from torch.nn.utils import parametrize

from sao.core import distributed
from sao.core.jacobian import outputs_norms_directions
from sao.core.precision import identity
from sao.methods.base import Generative
from sao.networks import Discriminator


class Embedded(NamedTuple):
    """What D makes of some inputs."""

    embeddings: Tensor  # (m, p)
    features: Tensor  # (m, b), of the backbone, without a graph
    norms: Tensor  # (m, 1), of the Jacobians; (m, 0) where they are not penalised
    local: Tensor  # (m, positions, q), of a middle stage; (m, 0, 0) where D has no head for them
    directions: Tensor  # (m, p), along which the norms were taken; (m, 0) without norms


class Gradient(NamedTuple):
    """Of a loss, with respect to what D made of a batch."""

    embeddings: Tensor
    norms: Tensor
    local: Tensor


class MicroBatch(NamedTuple):
    """Some rows of a batch, embedded with a graph."""

    rows: slice
    inputs: Tensor
    outputs: Embedded

    def along(self, gradient: Gradient, norms: bool = True) -> Tensor:
        """A scalar whose backward pass sends back these rows of the gradient; without `norms`, of a loss that has none."""
        outputs, rows = self.outputs, self.rows
        sent = (outputs.embeddings * gradient.embeddings[rows]).sum()
        if norms and outputs.norms.numel() > 0:
            sent = sent + (outputs.norms * gradient.norms[rows]).sum()
        return sent if outputs.local.numel() == 0 else sent + (outputs.local * gradient.local[rows]).sum()

    def of_inputs(self, gradient: Gradient, retain_graph: bool = False) -> Tensor:
        """These rows of a gradient without norms, sent back to the inputs alone."""
        return torch.autograd.grad(self.along(gradient, norms=False), self.inputs, retain_graph=retain_graph)[0]


class EmbeddedBatch(NamedTuple):
    """D's outputs for a whole batch, of which gradients can be taken, and the micro-batches that send them back, once."""

    embeddings: Tensor
    features: Tensor
    norms: Tensor  # (m, 1) or, of some rows only, (s, 1)
    local: Tensor
    micro_batches: Iterator[MicroBatch]
    graph_of_norms: Tensor | None = None  # where they are of some rows only

    def gradient(self, loss: Tensor, retain_graph: bool = False) -> Gradient:
        outputs = Gradient(self.embeddings, self.norms, self.local)
        return Gradient(*torch.autograd.grad(loss, outputs, retain_graph=retain_graph, materialize_grads=True))

    def send_back_norms(self, gradient: Gradient, weights: Sequence[Tensor]) -> None:
        """To D's weights, from the norms that no micro-batch has."""
        if self.graph_of_norms is not None:
            self.graph_of_norms.backward(gradient.norms, inputs=weights)


class DiscriminatorPasses(Generative):
    """D must treat its samples independently: that is what allows micro-batches and gives each sample its own Jacobian."""

    discriminator: Discriminator
    micro_batch: int | None  # samples that pass at a time
    batch: int  # of all processes
    power_steps = 1  # of the power iteration that finds Jacobian norms
    smooth_one_in = 1  # of so many real and of so many generated samples one has a Jacobian norm

    def _embed_batch(
        self, inputs: Tensor, directions: Tensor | None, for_inputs: bool = False, compiled: bool = True
    ) -> EmbeddedBatch:
        """All inputs and, where there are directions, their Jacobian norms; `for_inputs`: their gradients will be asked for."""
        if directions is not None and self.smooth_one_in > 1:
            chosen = self.smooth_rows()
            some, along = (torch.cat([half[chosen] for half in both.chunk(2)]) for both in (inputs, directions))
            norms = self._embed_with_norms(some.detach(), along).norms
            batch = self._embed_batch(inputs, None, for_inputs, compiled)
            return batch._replace(norms=norms.detach().requires_grad_(), graph_of_norms=norms)

        def embedded(rows: slice, along: Tensor | None = None) -> MicroBatch:
            chunk = inputs[rows].detach().requires_grad_(for_inputs)
            if directions is None:
                return MicroBatch(rows, chunk, self._embed(chunk, compiled))
            return MicroBatch(rows, chunk, self._embed_with_norms(chunk, directions[rows], along))

        def again() -> Iterator[MicroBatch]:
            yield kept.pop()  # given away, so that no graph is held longer than needed
            for rows in others:
                yield embedded(rows, found.directions[rows])

        *others, last = self._micro_batches(inputs)
        if directions is None:
            values = [self._embed_without_graph(inputs[: last.start])] if others else []
        else:
            passes = (self._embed_with_norms(inputs[rows], directions[rows], create_graph=False) for rows in others)
            values = [Embedded(*(value.detach() for value in outputs)) for outputs in passes]
        kept = [embedded(last)]
        found = _joined([*values, kept[0].outputs])
        embeddings, norms, local = (output.detach().requires_grad_() for output in (found.embeddings, found.norms, found.local))
        return EmbeddedBatch(embeddings, found.features, norms, local, again())

    def _embed(self, inputs: Tensor, compiled: bool = True) -> Embedded:
        with record_function("phase/discriminator forward"), self.autocast(inputs, compiled=compiled) as called:
            features, embeddings, local = self._outputs(called, inputs)
        none = inputs.new_empty(len(inputs), 0)
        return Embedded(embeddings.to(inputs.dtype), features.detach(), none, local.to(inputs.dtype), none)

    def _embed_with_norms(
        self, inputs: Tensor, start: Tensor, along: Tensor | None = None, create_graph: bool = True
    ) -> Embedded:
        features = local = inputs.new_empty(0)

        def embedding(inputs: Tensor) -> Tensor:
            """What else D makes is noted beside: the last call is that whose outputs have the graph."""
            nonlocal features, local
            with record_function("phase/discriminator forward"):
                found, embeddings, local = self._outputs(identity, inputs)
            features, local = unpack_dual(found).primal.detach(), unpack_dual(local).primal  # tangents travel with them
            return embeddings

        with record_function("phase/jacobian"):
            embeddings, norms, along = outputs_norms_directions(embedding, inputs, start, self.power_steps, along, create_graph)
        return Embedded(embeddings, features, norms[:, None], local, along)

    @torch.no_grad()
    def _embed_without_graph(self, inputs: Tensor) -> Embedded:
        with self.autocast(inputs) as called:
            found = [self._outputs(called, inputs[rows]) for rows in self._micro_batches(inputs)]
        features, embeddings, local = (torch.cat(values) for values in zip(*found, strict=True))
        none = inputs.new_empty(len(inputs), 0)
        return Embedded(embeddings.to(inputs.dtype), features, none, local.to(inputs.dtype), none)

    def _outputs(self, called: Callable[[Any], Any], inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, embeddings and local embeddings of one pass."""
        if self.discriminator.local_head is None:
            return *called(self.discriminator)(inputs), inputs.new_empty(len(inputs), 0, 0)
        return called(self.discriminator.with_local)(inputs)

    def smooth_rows(self, whole: bool = False) -> slice:
        """Which rows of each half have norms, of this process or of the whole batch; any number of processes has the same."""
        start = 0 if whole else distributed.local_slice(self.batch).start
        return slice(-start % self.smooth_one_in, None, self.smooth_one_in)

    # --- micro-batches -----------------------------------------------------------------------------------------------

    def _micro_batches(self, inputs: Tensor) -> list[slice]:
        size = self.micro_batch or len(inputs)
        return [slice(start, start + size) for start in range(0, len(inputs), size)]

    def in_micro_batches(self, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """The function of all inputs, one micro-batch at a time."""
        return torch.cat([function(inputs[rows]) for rows in self._micro_batches(inputs)])

    @contextmanager
    def _same_weights(self) -> Iterator[None]:
        """Around one pass of D: spectral normalisation refines its estimate once, not with each micro-batch, everywhere."""
        if self.micro_batch is None or self.micro_batch >= 2 * distributed.largest_local_batch(self.batch):
            yield
            return
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


def _joined(found: Sequence[Embedded]) -> Embedded:
    return found[0] if len(found) == 1 else Embedded(*(torch.cat(values) for values in zip(*found, strict=True)))
