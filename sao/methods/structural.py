"""The paper's method: a discriminator that aligns distributions, groups neighbours and stays smooth, against a generator.

One step is one update of D and one of G. Every term is computed from the gathered global batch (see sao.distributed), and every
random draw is a function of (seed, purpose, step).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.nn import functional as F
from torch.nn.utils import parametrize

from sao import distributed, objectives, randomness
from sao.config import Objective
from sao.data.augmentation import Augmentation
from sao.memory import MemoryBank
from sao.methods.method import Method, Scalars, check_finite, gradient_norm
from sao.networks import Generator, MovingAverage
from sao.smoothness import outputs_and_norms, smoothness_penalty

Gathered = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]  # real, fake, real keys, fake keys, norms


@dataclass
class Networks:
    """D maps inputs to (backbone features, unnormalised embeddings); G maps latents to inputs."""

    discriminator: nn.Module
    generator: nn.Module
    latent_size: int
    backbone_size: int
    embedding_size: int


class Structural(Method):
    def __init__(
        self,
        networks: Networks,
        objective: Objective,
        augmentation: Augmentation,
        *,
        batch: int,
        dataset_size: int,
        optimisers: dict[str, dict],
        ema: float = 0.99,
        micro_batch: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.discriminator, self.generator = networks.discriminator, networks.generator
        if isinstance(self.generator, Generator):  # the one for vectors has little to remember
            self.generator.frugal = micro_batch is not None
        self.latent_size = networks.latent_size
        self.average_discriminator = MovingAverage(self.discriminator, ema)
        self.average_generator = MovingAverage(self.generator, ema)
        self.bank = None
        if objective.cluster_weight > 0:
            self.bank = MemoryBank(objective.bank, networks.embedding_size, networks.backbone_size, dataset_size)
        self.objective, self.augmentation = objective, augmentation
        self.batch, self.micro_batch, self.seed = batch, micro_batch, seed
        self.optimisers = {
            "discriminator": torch.optim.AdamW(self.discriminator.parameters(), **optimisers["discriminator"], fused=True),
            "generator": torch.optim.AdamW(self.generator.parameters(), **optimisers["generator"], fused=True),
        }

    def step(self, inputs: Tensor, step: int) -> Scalars:
        with record_function("phase/data"):
            real = self.augmentation(inputs, "discriminator", step, self.batch)
        scalars, real_keys = self._update_discriminator(real, step)
        scalars |= self._update_generator(real, real_keys, step)
        with record_function("phase/optimiser"):
            self.average_discriminator.update(self.discriminator)
            self.average_generator.update(self.generator)
        return {name: value.detach() for name, value in scalars.items()}

    # --- the two players ---------------------------------------------------------------------------------------------

    def _update_discriminator(self, real: Tensor, step: int) -> tuple[Scalars, Tensor]:
        """Also the keys of the real batch, which the generator's update asks for again."""
        with torch.no_grad(), record_function("phase/generator"), self.passes(real):
            fake = self.generator(self._latents("discriminator latents", step, real)).to(real.dtype)
        inputs = torch.cat([real, fake])
        keys = self._keys(inputs)
        smooth = self.objective.smoothness_weight > 0 and step % self.objective.smooth_every == 0
        start = self._jacobian_start(step, inputs) if smooth else None
        parameters = list(self.discriminator.parameters())
        self.optimisers["discriminator"].zero_grad()
        if self._in_parts:
            losses, watched = self._discriminator_backward_in_parts(inputs, keys, start)
        else:
            embeddings, norms = self._embed(inputs, start)
            losses, watched = self._discriminator_losses(embeddings, keys, norms)
            with record_function("phase/discriminator backward"):
                _total(losses).backward()
            distributed.sum_gradients(parameters)
        return self._update("discriminator", parameters, losses, watched), keys[: len(real)]

    def _update_generator(self, real: Tensor, real_keys: Tensor, step: int) -> Scalars:
        """Fresh noise, the updated D (frozen), and the real batch without a graph; its embeddings then enter the bank."""
        parameters = list(self.generator.parameters())
        self.discriminator.requires_grad_(False)
        with record_function("phase/generator pass"), self.passes(real):
            fake = self.generator(self._latents("generator latents", step, real)).to(real.dtype)
        keys = torch.cat([real_keys, self._keys(fake.detach())])
        self.optimisers["generator"].zero_grad()
        with record_function("phase/generator pass"):
            with self._same_weights():
                real_embeddings = self._embed_without_graph(real)
            if self._in_parts:
                losses, gathered = self._generator_backward_in_parts(real_embeddings, fake, keys)
            else:
                gathered = self._gathered(torch.cat([real_embeddings, self._embed(fake, None)[0]]), keys, None)
                losses = self._generator_losses(*gathered[:4])
                _total(losses).backward()
        self.discriminator.requires_grad_(True)
        distributed.sum_gradients(parameters)
        scalars = self._update("generator", parameters, losses, {})
        if self.bank is not None:
            real_z, _, real_k, _, _ = gathered
            self.bank.push(F.normalize(real_z.detach()), real_k)
        return scalars

    def _update(self, player: str, parameters: list[nn.Parameter], losses: Scalars, watched: Scalars) -> Scalars:
        named = {f"{player}/{name}": value for name, value in (losses | watched).items()}
        named[f"{player}/gradient_norm"] = gradient_norm(parameters)
        check_finite(named)
        with record_function("phase/optimiser"):
            self.optimisers[player].step()
        return named

    # --- the terms ---------------------------------------------------------------------------------------------------

    def _discriminator_losses(self, embeddings: Tensor, keys: Tensor, norms: Tensor | None) -> tuple[Scalars, Scalars]:
        """Weighted terms whose sum D minimises, and what is worth watching, from this process's rows."""
        real, fake, real_keys, fake_keys, norms = self._gathered(embeddings, keys, norms)
        losses = self._batch_losses(real, fake, real_keys, fake_keys)
        both = torch.cat([real, fake])
        if self.objective.smoothness_weight > 0:
            weight = self.objective.smoothness_weight
            losses["norm_hinge"] = weight * self.objective.norm_weight * objectives.norm_hinge(both, self.objective.norm_side)
            if norms is not None:
                losses["smoothness"] = weight * smoothness_penalty(norms, self.objective.lipschitz)
        watched = {"embedding_norm": torch.linalg.vector_norm(both.detach(), dim=1).mean()}
        if norms is not None:
            watched["jacobian_norm"] = norms.detach().mean()
        if self.objective.distance != "hinge":
            for name, z in (("logdet_real", real), ("logdet_fake", fake)):
                watched[name] = objectives.gaussian_logdet(F.normalize(z.detach()), **self._gaussian)
        return losses, watched

    def _batch_losses(self, real: Tensor, fake: Tensor, real_keys: Tensor, fake_keys: Tensor) -> Scalars:
        """The terms in which samples interact: the distance of the distributions and the neighbours."""
        if self.objective.distance == "hinge":
            return {"adversarial_hinge": objectives.adversarial_hinge(real, fake)}
        real_z, fake_z = F.normalize(real), F.normalize(fake)
        losses = {"distance": -self._distance(real_z, fake_z)}
        if self.bank is not None:
            pool = self._pool(real_z, real_keys)
            k, weight = self.objective.neighbours, self.objective.cluster_weight
            skip = self.objective.skip_first_fake
            losses["similarity_real"] = -weight * objectives.neighbour_similarity(real_z, real_keys, *pool, k, skip_first=True)
            losses["similarity_fake"] = weight * objectives.neighbour_similarity(fake_z, fake_keys, *pool, k, skip_first=skip)
        return losses

    def _generator_losses(self, real: Tensor, fake: Tensor, real_keys: Tensor, fake_keys: Tensor) -> Scalars:
        if self.objective.distance == "hinge":
            return {"adversarial_hinge": -fake.mean()}
        real_z, fake_z = F.normalize(real), F.normalize(fake)
        losses = {"distance": self._distance(real_z, fake_z)}
        if self.bank is not None:
            pool = self._pool(real_z, real_keys)
            k, skip = self.objective.neighbours, self.objective.skip_first_fake
            similarity = objectives.neighbour_similarity(fake_z, fake_keys, *pool, k, skip_first=skip)
            losses["similarity_fake"] = -self.objective.cluster_weight * similarity
        return losses

    @property
    def _gaussian(self) -> dict:
        return {
            "covariance": self.objective.covariance,
            "centre": self.objective.centre,
            "epsilon": self.objective.epsilon,
        }

    def _distance(self, real: Tensor, fake: Tensor) -> Tensor:
        measure = objectives.jensen_shannon if self.objective.distance == "jensen_shannon" else objectives.bhattacharyya
        return measure(real, fake, **self._gaussian)

    def _pool(self, real: Tensor, real_keys: Tensor) -> tuple[Tensor, Tensor]:
        """(values, keys): the current real batch, with gradient, followed by the bank."""
        assert self.bank is not None
        embeddings, keys = self.bank.contents()
        return torch.cat([real, embeddings.to(real.dtype)]), torch.cat([real_keys, keys.to(real_keys.dtype)])

    # --- passes ------------------------------------------------------------------------------------------------------

    def _embed(self, inputs: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Embeddings and, from `start`, Jacobian norms of the inputs, from one forward pass with a graph."""
        if start is not None:
            with record_function("phase/jacobian"):
                return outputs_and_norms(self._embedding, inputs, self.objective.power_steps, start=start)
        with record_function("phase/discriminator forward"), self.passes(inputs):
            return self.discriminator(inputs)[1].to(inputs.dtype), None

    @torch.no_grad()
    def _embed_without_graph(self, inputs: Tensor, bfloat16: bool = True) -> Tensor:
        with self.passes(inputs, allowed=bfloat16):
            return self._each_part(lambda part: self.discriminator(part)[1], inputs).to(inputs.dtype)

    def _gathered(self, embeddings: Tensor, keys: Tensor, norms: Tensor | None) -> Gathered:
        """Global (real, fake, real keys, fake keys, norms) from local rows [real; fake], in a single message."""
        n = len(embeddings) // 2
        columns = [embeddings, keys.to(embeddings.dtype)] + ([] if norms is None else [norms[:, None]])
        rows = torch.cat(columns, dim=1)
        # Real and generated rows travel side by side: one row of the message for each row of the batch.
        message = distributed.gather(torch.cat([rows[:n], rows[n:]], dim=1), self.batch)
        real, fake = message.chunk(2, dim=1)
        p, b = embeddings.shape[1], keys.shape[1]
        gathered_norms = None if norms is None else torch.cat([real[:, p + b], fake[:, p + b]])
        return real[:, :p], fake[:, :p], real[:, p : p + b].detach(), fake[:, p : p + b].detach(), gathered_norms

    # --- passes in parts ---------------------------------------------------------------------------------------------
    # D's samples do not interact. So the gradient of a loss of the whole batch is first taken with respect to the embeddings,
    # made without a graph; then each part is embedded again with a graph, and its share of that gradient is sent back.

    @property
    def _in_parts(self) -> bool:
        """The same for every process, also where the batch does not divide evenly: the ways exchange different messages."""
        return self.micro_batch is not None and self.micro_batch < 2 * distributed.largest_share(self.batch)

    def _parts(self, inputs: Tensor) -> list[slice]:
        size = self.micro_batch or len(inputs)
        return [slice(start, start + size) for start in range(0, len(inputs), size)]

    def _each_part(self, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
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

    def _discriminator_backward_in_parts(self, inputs: Tensor, keys: Tensor, start: Tensor | None) -> tuple[Scalars, Scalars]:
        """With its own part of the gradient each part also sends back its own smoothness."""
        with self._same_weights():
            embeddings = self._embed_without_graph(inputs, bfloat16=start is None).requires_grad_()
            losses, watched = self._discriminator_losses(embeddings, keys, None)
            (gradient,) = torch.autograd.grad(_total(losses), embeddings)
            sums = embeddings.new_zeros(2)  # shares of the penalty and of the mean norm, of this process
            for part in self._parts(inputs):
                again, norms = self._embed(inputs[part], None if start is None else start[part])
                surrogate = (again * gradient[part]).sum()
                if norms is not None:
                    penalty = (norms - self.objective.lipschitz).square().sum() / (2 * self.batch)
                    surrogate = surrogate + self.objective.smoothness_weight * penalty
                    sums += torch.stack([penalty, norms.sum() / (2 * self.batch)]).detach()
                with record_function("phase/discriminator backward"):
                    surrogate.backward()
        distributed.sum_gradients(self.discriminator.parameters(), sums)
        if start is not None:
            losses["smoothness"] = self.objective.smoothness_weight * sums[0]
            watched["jacobian_norm"] = sums[1]
        return losses, watched

    def _generator_backward_in_parts(self, real_embeddings: Tensor, fake: Tensor, keys: Tensor) -> tuple[Scalars, Gathered]:
        """The gradient of the images part by part, then one backward pass of G, whose samples do interact."""
        with self._same_weights():
            embeddings = self._embed_without_graph(fake).requires_grad_()
            gathered = self._gathered(torch.cat([real_embeddings, embeddings]), keys, None)
            losses = self._generator_losses(*gathered[:4])
            (gradient,) = torch.autograd.grad(_total(losses), embeddings)
            of_images = torch.empty_like(fake)
            for part in self._parts(fake):
                images = fake[part].detach().requires_grad_()
                again, _ = self._embed(images, None)
                (of_images[part],) = torch.autograd.grad(again, images, gradient[part])
        fake.backward(of_images)
        return losses, gathered

    # --- draws and keys ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _keys(self, inputs: Tensor) -> Tensor:
        """Unit backbone features of the averaged D, by which neighbours are found; empty where nobody looks for any."""
        if self.bank is None:
            return inputs.new_empty(len(inputs), 0)
        with record_function("phase/momentum keys"):
            with self.passes(inputs):
                features = self._each_part(self.average_discriminator.network.features, inputs)  # pyright: ignore[reportArgumentType]
            return F.normalize(features.to(inputs.dtype))

    def _latents(self, purpose: str, step: int, like: Tensor) -> Tensor:
        draws = torch.randn(self.batch, self.latent_size, generator=randomness.generator(self.seed, purpose, step))
        return draws[distributed.local_slice(self.batch)].to(like)

    def _jacobian_start(self, step: int, inputs: Tensor) -> Tensor:
        """Input directions with which the power iteration for [real; fake] begins, sliced from those of the global batch."""
        draws = torch.randn(2, self.batch, *inputs.shape[1:], generator=randomness.generator(self.seed, "jacobian", step))
        return draws[:, distributed.local_slice(self.batch)].flatten(0, 1).to(inputs)

    def _embedding(self, inputs: Tensor) -> Tensor:
        with record_function("phase/discriminator forward"):
            return self.discriminator(inputs)[1]

    # --- use ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def features(self, inputs: Tensor) -> Tensor:
        return self.average_discriminator.network.features(inputs)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return F.normalize(self.average_discriminator.network(inputs)[1])

    @torch.no_grad()
    def sample(self, latents: Tensor) -> Tensor:
        return self.average_generator.network(latents)

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.average_discriminator.network(inputs)[1]


def _total(losses: Scalars) -> Tensor:
    return torch.stack(list(losses.values())).sum()
