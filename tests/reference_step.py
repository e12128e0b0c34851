"""One whole step of the method in float64, as slow as it reads: full Jacobians, AdamW written out, the bank a plain list.

Of the package it knows the losses of `reference_losses`, which share nothing with the product either, and networks that
are handed in. The draws of a step are inputs.
"""

from dataclasses import dataclass, field, replace

import reference_losses as reference
import torch
from reference_losses import Rows, Settings, Terms, unit
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap


@dataclass(frozen=True)
class Draws:
    discriminator_latents: Tensor  # (n, latent)
    generator_latents: Tensor
    directions: Tensor | None  # of the inputs [real; fake], with which the power iteration begins
    discriminator_mirrored: Tensor  # (n,) which of the generated images are shown in a mirror
    generator_mirrored: Tensor
    real_positions: Tensor | None = None  # (n, 4) of the map of each real image, of which similar ones are looked for
    generated_positions: Tensor | None = None


@dataclass(frozen=True)
class Local:
    """Of the local terms; a stage of the networks here is one block."""

    stage: int
    weight: float
    cluster_weight: float


class AdamW:
    """Decoupled weight decay, then Adam with corrected averages; one step of all parameters with given gradients."""

    def __init__(self, learning_rate: float, betas: tuple[float, float], weight_decay: float) -> None:
        self.learning_rate, self.betas, self.weight_decay = learning_rate, betas, weight_decay
        self.count: dict[str, int] = {}  # updates of each parameter: one without a gradient has none
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, network: nn.Module, gradients: dict[str, Tensor]) -> None:
        one, two = self.betas
        for name, weight in network.named_parameters():
            if name not in gradients:
                continue
            g = gradients[name]
            count = self.count[name] = self.count.get(name, 0) + 1
            self.first[name] = one * self.first.get(name, torch.zeros_like(g)) + (1 - one) * g
            self.second[name] = two * self.second.get(name, torch.zeros_like(g)) + (1 - two) * g * g
            mean = self.first[name] / (1 - one**count)
            square = self.second[name] / (1 - two**count)
            decayed = weight - self.learning_rate * self.weight_decay * weight
            weight.copy_(decayed - self.learning_rate * mean / (square.sqrt() + 1e-8))


@dataclass
class EMA:
    """The EMA of a network: parameters and running statistics follow it, other buffers are copied."""

    network: nn.Module
    decay: float

    @torch.no_grad()
    def update(self, source: nn.Module) -> None:
        current = {**dict(source.named_parameters()), **dict(source.named_buffers())}
        for name, value in {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}.items():
            follows = isinstance(value, nn.Parameter) or "running_" in name
            value.copy_(self.decay * value + (1 - self.decay) * current[name] if follows else current[name])


@dataclass
class Bank:
    """Rows, the oldest first."""

    capacity: int
    rows: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def push(self, embeddings: Tensor, keys: Tensor) -> None:
        self.rows = [*self.rows, *zip(embeddings, keys, strict=True)][-self.capacity :]

    def contents(self, like: Tensor, keys: Tensor) -> Rows:
        """Embeddings (m, p) and keys (m, b); m is 0 before the first step."""
        if not self.rows:
            return like[:0], keys[:0]
        return torch.stack([row[0] for row in self.rows]), torch.stack([row[1] for row in self.rows])


@dataclass
class Structural:
    """The method's state; networks in training mode, EMAs in evaluation mode, nothing shared with the product's."""

    settings: Settings
    discriminator: nn.Module
    generator: nn.Module
    ema_discriminator: EMA
    ema_generator: EMA
    discriminator_optimiser: AdamW
    generator_optimiser: AdamW
    bank: Bank | None
    power_steps: int = 1
    smooth_every: int = 1
    one_pass: bool = False
    own_keys: bool = False  # of the pass of D that the losses see, instead of its EMA's
    local: Local | None = None
    cluster_warmup: int = 0
    lazy: bool = False
    smooth_one_in: int = 1
    gradients: dict[str, Tensor] = field(default_factory=dict)  # of the last step

    def step(self, real: Tensor, draws: Draws, step: int) -> Terms:
        if self.one_pass:
            logged = self._one_step_of_both(real, draws, step)
        else:
            logged, real_keys = self._discriminator_step(real, draws, step)
            logged |= self._generator_step(real, real_keys, draws, step)
        self.ema_discriminator.update(self.discriminator)
        self.ema_generator.update(self.generator)
        return logged

    def _discriminator_step(self, real: Tensor, draws: Draws, step: int) -> tuple[Terms, Tensor]:
        """Also the keys of the real samples, which are found once."""
        fake = shown(self.generator(draws.discriminator_latents), draws.discriminator_mirrored).detach()
        norms = None
        features, both, local = self._outputs(torch.cat([real, fake]))
        if self.settings.smoothness_weight > 0 and step % self.smooth_every == self.smooth_every - 1:
            assert draws.directions is not None
            norms = self._norms(torch.cat([real, fake]), draws.directions)
        real_z, fake_z = both[: len(real)], both[len(real) :]
        keys = self._keys(real, features[: len(real)]), self._keys(fake, features[len(real) :])
        settings = self._settings(step)
        terms = reference.discriminator_terms(settings, real_z, fake_z, keys, self._pool(real_z, keys[0]), norms)
        terms |= self._local_terms(local[: len(real)], local[len(real) :], draws)
        others = reference.diagnostics(self.settings, real_z, fake_z, norms)
        return self._update("discriminator", self.discriminator, self.discriminator_optimiser, terms, others), keys[0]

    def _one_step_of_both(self, real: Tensor, draws: Draws, step: int) -> Terms:
        """Both gradients are taken before either moves, of one batch; the bank takes what D made of it then."""
        fake = shown(self.generator(draws.generator_latents), draws.generator_mirrored)
        features, both, local = self._outputs(torch.cat([real, fake]))
        real_local, fake_local = local[: len(real)], local[len(real) :]
        real_z, fake_z = both[: len(real)], both[len(real) :]
        keys = self._keys(real, features[: len(real)]), self._keys(fake, features[len(real) :])
        pool = self._pool(real_z, keys[0])
        settings = self._settings(step)
        of_generator = reference.generator_terms(settings, real_z.detach(), fake_z, keys, pool)
        of_generator |= turned(self._local_terms(real_local.detach(), fake_local, draws))
        names, weights = zip(*self.generator.named_parameters(), strict=True)
        total = torch.stack(list(of_generator.values())).sum()
        gradients = dict(zip(names, torch.autograd.grad(total, weights, retain_graph=True), strict=True))
        norms = None
        if self.settings.smoothness_weight > 0 and step % self.smooth_every == self.smooth_every - 1:
            assert draws.directions is not None
            norms = self._norms(torch.cat([real, fake]).detach(), draws.directions)
        terms = reference.discriminator_terms(settings, real_z, fake_z, keys, pool, norms)
        terms |= self._local_terms(real_local, fake_local, draws)
        others = reference.diagnostics(self.settings, real_z, fake_z, norms)
        logged = self._update("discriminator", self.discriminator, self.discriminator_optimiser, terms, others)
        logged |= self._moved("generator", self.generator, self.generator_optimiser, gradients, of_generator)
        if self.bank is not None:
            self.bank.push(unit(real_z.detach()), keys[0])
        return logged

    def _generator_step(self, real: Tensor, real_keys: Tensor, draws: Draws, step: int) -> Terms:
        """Against the D that has just moved, in two passes of it; each refines a spectral normalisation once."""
        fake = shown(self.generator(draws.generator_latents), draws.generator_mirrored)
        (_, real_z, real_local), (features, fake_z, fake_local) = self._outputs(real), self._outputs(fake)
        real_z, real_local = real_z.detach(), real_local.detach()
        keys = real_keys, self._keys(fake, features)
        terms = reference.generator_terms(self._settings(step), real_z, fake_z, keys, self._pool(real_z, keys[0]))
        terms |= turned(self._local_terms(real_local, fake_local, draws))
        logged = self._update("generator", self.generator, self.generator_optimiser, terms, {})
        if self.bank is not None:
            self.bank.push(unit(real_z), keys[0])
        return logged

    def _update(self, player: str, network: nn.Module, optimiser: AdamW, terms: Terms, others: Terms) -> Terms:
        names, weights = zip(*network.named_parameters(), strict=True)
        times = {"smoothness": self.smooth_every} if self.lazy else {}  # what is logged is not multiplied
        total = torch.stack([times.get(name, 1) * value for name, value in terms.items()]).sum()
        gradients = dict(zip(names, torch.autograd.grad(total, weights), strict=True))
        return self._moved(player, network, optimiser, gradients, {**terms, **others})

    def _moved(self, player: str, network: nn.Module, optimiser: AdamW, gradients: dict[str, Tensor], logged: Terms) -> Terms:
        self.gradients |= {f"{player}.{name}": g for name, g in gradients.items()}
        optimiser.step(network, gradients)
        length = torch.cat([g.flatten() for g in gradients.values()]).square().sum().sqrt()
        return {f"{player}/{name}": value.detach() for name, value in {**logged, "gradient_norm": length}.items()}

    def _settings(self, step: int) -> Settings:
        """With the λ_c of a step: the first has one part of it, the second two, and so on."""
        weight, parts = self.settings.cluster_weight, self.cluster_warmup
        return replace(self.settings, cluster_weight=weight * (step + 1) / parts if step < parts else weight)

    def _norms(self, inputs: Tensor, directions: Tensor) -> Tensor:
        """Of the inputs [real; fake], of one in so many of each half."""
        half = len(inputs) // 2
        chosen = [row for row in range(len(inputs)) if row % half % self.smooth_one_in == 0]
        return jacobian_norms(self.discriminator, inputs[chosen], directions[chosen], self.power_steps)

    def _outputs(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, embeddings and, of every position of a map on the way, local embeddings (n, positions, q)."""
        if self.local is None:
            return *self.discriminator(inputs), inputs[:0]
        found: list[Tensor] = []
        block = self.discriminator.get_submodule(f"encoder.stages.{self.local.stage}")
        hook = block.register_forward_hook(lambda module, arguments, output: found.append(output))  # pyright: ignore[reportArgumentType]
        features, embeddings = self.discriminator(inputs)
        hook.remove()
        for name in ("hidden", "output"):
            layer = self.discriminator.get_submodule(f"local_head.{name}")
            weight, bias = layer.weight, layer.bias
            assert isinstance(weight, Tensor)
            assert isinstance(bias, Tensor)
            if name == "output":
                found[0] = torch.where(found[0] > 0, found[0], found[0].exp() - 1)  # ELU
            found[0] = torch.einsum("oi,nihw->nohw", weight[:, :, 0, 0], found[0]) + bias[None, :, None, None]
        rows, columns = found[0].shape[2:]
        local = torch.stack([found[0][:, :, y, x] for y in range(rows) for x in range(columns)], dim=1)
        return features, embeddings, local

    def _local_terms(self, real: Tensor, fake: Tensor, draws: Draws) -> Terms:
        """D's: −w d of all positions of all images, and the similarities of those that were drawn."""
        terms: Terms = {}
        if self.local is None:
            return terms
        if self.local.weight > 0:
            every = [unit(torch.cat(list(side))) for side in (real, fake)]
            terms["local_distance"] = -self.local.weight * reference.distance(self.settings, *every)
        if self.local.cluster_weight > 0:
            assert draws.real_positions is not None
            assert draws.generated_positions is not None
            of_real = [unit(image[places]) for image, places in zip(real, draws.real_positions, strict=True)]
            of_fake = [unit(image[places]) for image, places in zip(fake, draws.generated_positions, strict=True)]
            weight = self.local.cluster_weight
            terms["local_similarity_real"] = -weight * nearest_similarity(of_real, of_real, others=True)
            terms["local_similarity_fake"] = weight * nearest_similarity(of_fake, of_real, others=False)
        return terms

    def _keys(self, inputs: Tensor, own: Tensor) -> Tensor:
        """From the EMA of D, as it was before this step, or D's own features."""
        features = own if self.own_keys else self.ema_discriminator.network(inputs)[0]
        return unit(features.detach())

    def _pool(self, real: Tensor, keys: Tensor) -> Rows | None:
        return None if self.bank is None else self.bank.contents(real.detach(), keys)


def turned(terms: Terms) -> Terms:
    """G's local terms are D's with the sign turned, but for that of real samples alone."""
    return {name: -value for name, value in terms.items() if name != "local_similarity_real"}


def nearest_similarity(queries: list[Tensor], pool: list[Tensor], others: bool) -> Tensor:
    """One position after the other: the largest of its cosines with the positions of the (other) images."""
    largest = []
    for image, positions in enumerate(queries):
        values = torch.cat([there for number, there in enumerate(pool) if not others or number != image])
        largest += [max(torch.dot(query, value) for value in values) for query in positions]
    return torch.stack(largest).mean()


def shown(images: Tensor, mirrored: Tensor) -> Tensor:
    return torch.stack([image.flip(-1) if turned else image for image, turned in zip(images, mirrored, strict=True)])


def jacobian_norms(network: nn.Module, inputs: Tensor, directions: Tensor, power_steps: int) -> Tensor:
    """sg(u) J sg(v) for each input, from its whole Jacobian J (p, inputs) and the first v; u = Jv/|Jv|, v = uJ/|uJ|."""
    weights: dict[str, Tensor] = dict(network.named_parameters())
    training = network.training
    network.eval()  # the weights that the pass before it had: spectral normalisation is not refined once more

    def embed(sample: Tensor) -> Tensor:
        return functional_call(network, weights, (sample[None],))[1][0]

    matrices = vmap(jacrev(embed))(inputs).flatten(2)
    network.train(training)
    norms = []
    for matrix, direction in zip(matrices, directions, strict=True):
        u, v = torch.empty(0), direction.flatten()
        for _ in range(power_steps):
            u = matrix @ v / (matrix @ v).square().sum().sqrt()
            v = u @ matrix / (u @ matrix).square().sum().sqrt()
        norms.append(u.detach() @ matrix @ v.detach())
    return torch.stack(norms)
