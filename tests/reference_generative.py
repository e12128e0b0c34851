"""Whole steps of the generative baselines, as slow as they read: losses are loops over samples, optimisers are written out.

Networks are handed in; the draws of a step are inputs. Nothing is shared with the methods.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from reference_baselines import gradients, length, spread
from reference_step import EMA, AdamW
from torch import Tensor, nn

Terms = dict[str, Tensor]


def log_sigmoid(score: Tensor) -> Tensor:
    return -torch.log(1 + torch.exp(-score))


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum() / len(values)


@dataclass
class Player:
    """A network and what moves it."""

    network: nn.Module
    optimiser: AdamW
    gradients: list[dict[str, Tensor]] = field(default_factory=list)  # of every update

    def optimiser_step(self, losses: Terms) -> Terms:
        """One update; the losses and the length of the gradient, to be logged."""
        found = gradients(torch.stack(list(losses.values())).sum(), self.network)
        self.optimiser.step(self.network, found)
        self.gradients.append(found)
        return {**{name: value.detach() for name, value in losses.items()}, "gradient_norm": length(found)}


def named(player: str, terms: Terms) -> Terms:
    return {f"{player}/{name}": value for name, value in terms.items()}


# --- self-conditioned GAN ------------------------------------------------------------------------------------------------


@dataclass
class SelfConditioned:
    """The first clusters are given; those that follow are found by another library from the means of the old ones."""

    discriminator: Player
    generator: Player
    clusterer: nn.Module
    assigned: Tensor
    k: int
    centroids: Tensor = field(default_factory=lambda: torch.empty(0))

    @torch.no_grad()
    def cluster(self, images: Tensor, first: bool) -> None:
        from sklearn.cluster import KMeans

        self.clusterer.load_state_dict(self.discriminator.network.get_submodule("encoder").state_dict())
        features = self.clusterer(images)
        old = self.assigned
        if not first:
            start = torch.stack([features[old == cluster].mean(0) for cluster in range(self.k)])
            options: Any = {"init": start.numpy(), "n_init": 1, "tol": 0}
            found = KMeans(self.k, **options).fit(features.numpy()).labels_
            self.assigned = torch.as_tensor(self._best_names(found, old))
        self.centroids = torch.stack([features[self.assigned == cluster].mean(0) for cluster in range(self.k)])

    def _best_names(self, found, old: Tensor) -> list[int]:
        """Of all ways to name the new clusters that under which most images keep the name they had."""
        ways = [[way[cluster] for cluster in found] for way in permutations(range(self.k))]
        return max(ways, key=lambda names: sum(name == before for name, before in zip(names, old.tolist(), strict=True)))

    def step(self, real: Tensor, latents: Tensor) -> Terms:
        features = self.clusterer(real)
        clusters = torch.tensor(
            [min(range(self.k), key=lambda c, f=f: float((f - self.centroids[c]).norm())) for f in features]
        )
        fake = self.generator.network(latents, clusters).detach()
        of_real, of_fake = self.discriminator.network(real)[1], self.discriminator.network(fake)[1]
        losses = {
            "real": mean([-log_sigmoid(row[cluster]) for row, cluster in zip(of_real, clusters, strict=True)]),
            "fake": mean([-log_sigmoid(-row[cluster]) for row, cluster in zip(of_fake, clusters, strict=True)]),
        }
        logged = named("discriminator", {**self.discriminator.optimiser_step(losses), "spread": spread(of_real)})
        scores = self.discriminator.network(self.generator.network(latents, clusters))[1]
        against = mean([-log_sigmoid(row[cluster]) for row, cluster in zip(scores, clusters, strict=True)])
        return logged | named("generator", self.generator.optimiser_step({"fake": against}))


# --- StyleGAN2 with adaptive augmentation --------------------------------------------------------------------------------


@dataclass
class StyleGAN2:
    """`augment(images, p, purpose)` and `generate(network, player)` make a step's draws; p and the EMA are kept here."""

    discriminator: Player
    generator: Player
    ema: nn.Module
    p: float
    batch: int
    penalty_weight: float
    penalty_every: int
    half_life: float
    ramp: float
    target: float
    adapt_every: int
    adapt_images: int
    signs: list[float] = field(default_factory=list)

    def step(self, real: Tensor, step: int, augment: Callable, generate: Callable) -> Terms:
        d = self.discriminator.network
        fake = generate(self.generator.network, "discriminator").detach()
        features, of_real = d(augment(real, self.p, "real"), self.batch)
        of_fake = d(augment(fake, self.p, "fake"), self.batch)[1]
        losses = {
            "real": mean([-log_sigmoid(score) for score in of_real.flatten()]),
            "fake": mean([-log_sigmoid(-score) for score in of_fake.flatten()]),
        }
        logged = {**self.discriminator.optimiser_step(losses), "spread": spread(features)}
        if step % self.penalty_every == 0:
            logged["gradient_penalty"] = self._penalise(real, augment)
        logged = named("discriminator", logged)
        scores = d(augment(generate(self.generator.network, "generator"), self.p, "generated"), self.batch)[1]
        logged |= named("generator", self.generator.optimiser_step({"fake": mean([-log_sigmoid(s) for s in scores.flatten()])}))
        sign = sum(1.0 if score > 0 else -1.0 for score in of_real.flatten()) / self.batch
        self._adapt(sign)
        self._follow(step)
        return logged | {f"augmentation/{name}": real.new_tensor(value) for name, value in (("p", self.p), ("real_sign", sign))}

    def _penalise(self, real: Tensor, augment: Callable) -> Tensor:
        """From the whole Jacobian of all scores: a sample's slope is what all scores owe to its pixels."""

        def scores(images: Tensor) -> Tensor:
            return self.discriminator.network(augment(images, self.p, "penalty"), self.batch)[1].flatten()

        jacobian = torch.autograd.functional.jacobian(scores, real, create_graph=True)
        assert isinstance(jacobian, Tensor)
        slopes = jacobian.sum(0).flatten(1)
        loss = self.penalty_every * self.penalty_weight / 2 * mean([(slope * slope).sum() for slope in slopes])
        self.discriminator.optimiser_step({"gradient_penalty": loss})
        return loss.detach()

    def _adapt(self, sign: float) -> None:
        self.signs.append(sign)
        if len(self.signs) == self.adapt_every:
            step = self.batch * self.adapt_every / self.adapt_images
            mean_sign = sum(self.signs) / self.adapt_every
            self.p = max(0.0, self.p + step * ((mean_sign > self.target) - (mean_sign < self.target)))
            self.signs = []

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        half_life = min(self.half_life, self.ramp * step * self.batch)
        kept = 0.0 if half_life == 0 else 2 ** (-self.batch / half_life)
        for own, other in zip(self.ema.parameters(), self.generator.network.parameters(), strict=True):
            own.copy_(kept * own + (1 - kept) * other)


# --- BigBiGAN ------------------------------------------------------------------------------------------------------------


@dataclass
class BigBiGAN:
    """`draws(purpose)` gives the latents of a turn and what the encoder's deviations are multiplied by."""

    discriminator: Player
    generator: Player
    encoder: Player
    ema_generator: EMA
    ema_encoder: EMA
    discriminator_steps: int

    def step(self, real: Tensor, draws: Callable[[str], tuple[Tensor, Tensor]]) -> Terms:
        logged: Terms = {}
        for turn in range(self.discriminator_steps):
            scores, means = self._scores(real, *draws(f"discriminator {turn}"), detach=True)
            losses = {
                name: mean([self._hinge(1 - s) for s in scores[0][:, i]]) + mean([self._hinge(1 + s) for s in scores[1][:, i]])
                for i, name in enumerate(("image", "latent", "joint"))
            }
            logged = named("discriminator", {**self.discriminator.optimiser_step(losses), "spread": spread(means)})
        scores, _ = self._scores(real, *draws("generator"), detach=False)
        losses = {
            name: mean(list(scores[0][:, i])) + mean([-s for s in scores[1][:, i]])
            for i, name in enumerate(("image", "latent", "joint"))
        }
        both = torch.stack(list(losses.values())).sum()
        pair = {"g": self.generator, "e": self.encoder}
        together = gradients(both, nn.ModuleDict({name: player.network for name, player in pair.items()}))
        found = {one: {k[2:]: value for k, value in together.items() if k.startswith(f"{one}.")} for one in pair}
        for name, player in pair.items():
            player.optimiser.step(player.network, found[name])
            player.gradients.append(found[name])
        self.ema_generator.update(self.generator.network)
        self.ema_encoder.update(self.encoder.network)
        plain = {name: value.detach() for name, value in losses.items()}
        logged |= named("generator", {**plain, "gradient_norm": length(found["g"])})
        return logged | named("encoder", {"gradient_norm": length(found["e"])})

    def _scores(self, real: Tensor, latents: Tensor, noise: Tensor, detach: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Of (x, E(x)) and of (G(z), z), from one pass of the discriminator; a spectral estimate is refined once in each."""
        fake = self.generator.network(latents)
        means, deviations = self.encoder.network(real)
        inferred = means + deviations * noise
        pairs = torch.cat([real, fake]), torch.cat([inferred, latents])
        scores = self.discriminator.network(*(part.detach() if detach else part for part in pairs))
        return (scores[: len(real)], scores[len(real) :]), means

    @staticmethod
    def _hinge(value: Tensor) -> Tensor:
        return value if value > 0 else 0 * value
