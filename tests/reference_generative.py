"""Whole steps of the generative baselines, as slow as they read: losses are loops over samples, optimisers are written out.

Networks are handed in; the draws of a step are inputs. Nothing is shared with the methods.
"""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from reference_baselines import gradients, length, spread
from reference_step import AdamW
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

    def descend(self, losses: Terms) -> Terms:
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
        logged = named("discriminator", {**self.discriminator.descend(losses), "spread": spread(of_real)})
        scores = self.discriminator.network(self.generator.network(latents, clusters))[1]
        against = mean([-log_sigmoid(row[cluster]) for row, cluster in zip(scores, clusters, strict=True)])
        return logged | named("generator", self.generator.descend({"fake": against}))
