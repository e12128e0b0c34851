"""The self-conditioned GAN: its classes are clusters of its discriminator's features, made again every so many steps."""

import copy
import math
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from sao.config.types import Decay, PositiveFloat, PositiveInt
from sao.core import distributed
from sao.core import random as randomness
from sao.core.agreement import best
from sao.errors import InputError
from sao.evaluation.partitions import best_matching
from sao.methods.base import (
    Batch,
    Context,
    Generative,
    MethodOptions,
    Scalars,
    TrainingData,
    evaluating,
    frozen,
    images_only,
    normal_rows,
)
from sao.methods.encoders import image_shape
from sao.methods.optimisers import AdamW
from sao.methods.two_view import spread
from sao.networks import Discriminator
from sao.networks.self_conditioned import ClusterGenerator, ConvolutionalEncoder

CHUNK = 256  # images that are embedded at a time to be clustered


class Adam(AdamW):
    """The authors', of both players."""

    learning_rate: PositiveFloat = Field(default=1e-4, description="highest learning rate; train.schedule may lower it")
    betas: tuple[Decay, Decay] = Field(default=(0.0, 0.99), description="decay of the first and of the second moment")


class Options(MethodOptions):
    """Self-conditioned GAN: it generates by the clusters that its discriminator sees."""

    name: Literal["self_conditioned"] = "self_conditioned"
    encoders: ClassVar[tuple[str, ...] | None] = ()
    generates: ClassVar[bool] = True
    discriminator_optimiser: Adam = Field(default=Adam(), description="how the discriminator is updated")
    generator_optimiser: Adam = Field(default=Adam(), description="how the generator is updated")
    width: PositiveInt = Field(default=64, description="channels of both networks are multiples of it")
    latent_size: PositiveInt = Field(default=128, description="numbers in a latent vector")
    embedding_size: PositiveInt = Field(default=256, description="numbers by which the generator is told a cluster")
    clusters: PositiveInt = Field(default=100, description="k, clusters that the images are divided into")
    clustered: PositiveInt = Field(default=25_000, description="training images that are clustered, the same ones each time")
    recluster_every: PositiveInt = Field(default=25_000, description="steps after which they are clustered again")
    restarts: PositiveInt = Field(default=10, description="of the first k-means, of which the best is taken")

    def build(self, context: Context) -> "SelfConditioned":
        images_only(context.shape, self.name)
        if min(self.clustered, context.samples) < self.clusters:
            raise InputError(
                f"method.clusters is {self.clusters} but only {min(self.clustered, context.samples)} images are clustered: "
                "set --method.clusters to that or less"
            )
        return SelfConditioned(self, context)


class SelfConditioned(Generative):
    headline = ("discriminator/real", "discriminator/fake", "generator/fake")
    features_with = ("discriminator.encoder",)
    decodes_with: ClassVar[tuple[str, ...]] = ("generator", "shares")
    centroids: Tensor
    assigned: Tensor
    shares: Tensor

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__()
        channels, size = image_shape(context.shape, "self_conditioned")
        k, width, latent_size = options.clusters, options.width, options.latent_size
        encoder = ConvolutionalEncoder(size, channels, width)
        self.discriminator = Discriminator(encoder, nn.Linear(encoder.feature_size, k))
        self.generator = ClusterGenerator(k, size, channels, width, latent_size, options.embedding_size)
        self.clusterer = copy.deepcopy(encoder).requires_grad_(False)
        # The last number of a latent says which cluster a sample is of, so that latents alone are enough to make samples.
        self.latent_shape = (latent_size + 1,)
        self.options, self.batch, self.seed, self.own_clusters = options, context.batch, context.seed, k
        self.register_buffer("centroids", torch.zeros(k, encoder.feature_size))
        self.register_buffer("assigned", torch.zeros(min(options.clustered, context.samples), dtype=torch.int64))
        self.register_buffer("shares", torch.full((k,), 1 / k))
        self.optimisers = {
            "discriminator": options.discriminator_optimiser.build(self.discriminator.parameters()),
            "generator": options.generator_optimiser.build(self.generator.parameters()),
        }

    # --- clusters ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def refresh(self, data: TrainingData, step: int) -> None:
        if step % self.options.recluster_every > 0:
            return
        k, options = len(self.centroids), self.options
        self.clusterer.load_state_dict(self.discriminator.encoder.state_dict())
        features = self._features_of_clustered(data)
        if step == 0:
            draws = randomness.generator(self.seed, "clusters")
            labels = cluster_anew(features, k, options.restarts, draws)
        else:
            labels = cluster_again(features, self.assigned, k)
        self.assigned.copy_(distributed.from_main(labels))
        self.centroids.copy_(distributed.from_main(means_of(features, self.assigned, k)))
        self.shares.copy_(F.one_hot(self.assigned, k).to(self.shares.dtype).mean(0))

    def _features_of_clustered(self, data: TrainingData) -> Tensor:
        """Of the images that are clustered, each embedded by one of the processes."""
        count = len(self.assigned)
        rows = torch.randperm(len(data), generator=randomness.generator(self.seed, "clustered rows"))[:count]
        parts = rows[distributed.local_slice(count)].split(CHUNK)
        return distributed.gather(torch.cat([self._clustered_by(data.inputs(part)) for part in parts]), count)

    def _clustered_by(self, images: Tensor) -> Tensor:
        """The features in which clusters are told apart."""
        return self.clusterer(images.to(self.centroids.dtype))

    @torch.no_grad()
    def clusters_of(self, inputs: Tensor) -> Tensor:
        """As the discriminator saw the images when it was last copied."""
        return nearest(self._clustered_by(inputs), self.centroids)[0]

    # --- the two players ---------------------------------------------------------------------------------------------

    def step(self, batch: Batch, step: int) -> Scalars:
        """Both players see the same clusters, which are those of the real batch, and the same latents."""
        clusters = self.clusters_of(batch.inputs)
        latents = normal_rows((self.generator.latent_size,), self.batch, self.seed, "latents", step, batch.inputs)
        scalars = self._update_discriminator(batch.inputs, latents, clusters)
        return scalars | self._update_generator(latents, clusters)

    def _update_discriminator(self, real: Tensor, latents: Tensor, clusters: Tensor) -> Scalars:
        """−log σ(D(x)_y) − log(1 − σ(D(G(z, y))_y))."""
        with self.autocast(real) as called:
            with torch.no_grad():
                fake = called(self.generator)(latents, clusters)
            of_real, of_fake = (called(self.discriminator)(images)[1].to(real.dtype) for images in (real, fake))
        rows = torch.cat([_chosen(of_real, clusters), _chosen(of_fake, clusters), of_real.detach()], dim=1)
        rows = distributed.gather(rows, self.batch)
        losses = {"real": F.softplus(-rows[:, 0]).mean(), "fake": F.softplus(rows[:, 1]).mean()}
        return self.backward_and_update("discriminator", losses, {"spread": spread(rows[:, 2:])})

    def _update_generator(self, latents: Tensor, clusters: Tensor) -> Scalars:
        """−log σ(D(G(z, y))_y)."""
        with frozen(self.discriminator):
            with self.autocast(latents) as called:
                made = called(self.generator)(latents, clusters)
                scores = called(self.discriminator)(made)[1].to(latents.dtype)
            scores = distributed.gather(_chosen(scores, clusters), self.batch)
            return self.backward_and_update("generator", {"fake": F.softplus(-scores).mean()}, {})

    # --- use ---------------------------------------------------------------------------------------------------------

    def smooth_function(self, inputs: Tensor) -> Tensor:
        return self.discriminator(inputs)[1]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """The last number, normal as the others, falls into one of k intervals, each as probable as its cluster is large."""
        level = torch.special.ndtr(latents[:, -1].contiguous()).to(self.shares.dtype)
        clusters = torch.searchsorted(self.shares.cumsum(0), level).clamp_max(len(self.shares) - 1)
        with evaluating(self.generator):
            return self.generator(latents[:, :-1], clusters)


def _chosen(scores: Tensor, clusters: Tensor) -> Tensor:
    """Of the k scores of each image that of its cluster, (n, 1)."""
    return scores.gather(1, clusters[:, None])


ITERATIONS = 300


def cluster_anew(features: Tensor, k: int, restarts: int, generator: torch.Generator) -> Tensor:
    """Clusters (n,) of the best of some runs from k-means++ starts: that with the smallest squared distances."""
    runs: list[tuple[float, Tensor]] = []
    for _ in range(restarts):
        labels = settled(features, nearest(features, _plus_plus(features, k, generator))[0], k)
        runs.append((float(nearest(features, means_of(features, labels, k))[1].double().sum()), labels))
    return runs[best({run: -squares for run, (squares, _) in enumerate(runs)})][1]


def cluster_again(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """Clusters (n,) that begin at the means of the old ones in new features, each named like the old one it has most of."""
    return renamed(settled(features, labels, k), labels, k)


def settled(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """Lloyd's iteration, until no sample changes its cluster."""
    for _ in range(ITERATIONS):
        moved = nearest(features, means_of(features, labels, k))[0]
        if torch.equal(moved, labels):
            break
        labels = moved
    return labels


def means_of(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """(k, d); a starved cluster begins again at one of the samples that are farthest from the mean of their own."""
    members = torch.nn.functional.one_hot(labels, k).T.to(features.dtype)
    counts = members.sum(1)
    means = members @ features / counts.clamp_min(1)[:, None]
    starved = (counts == 0).nonzero().flatten()
    if len(starved) > 0:
        distances = (features - means[labels]).square().sum(1)
        means[starved] = features[distances.topk(len(starved)).indices]
    return means


def nearest(features: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest mean (n,) of each sample, and its squared distance (n,)."""
    centre = means.mean(0)  # distances from products lose digits where everything is far from the origin
    features, means = features - centre, means - centre
    distances, labels = (means.square().sum(1) - 2 * features @ means.T).min(1)
    return labels, (distances + features.square().sum(1)).clamp_min(0)


def renamed(labels: Tensor, old: Tensor, k: int) -> Tensor:
    """The same clusters with the names of the old ones, one to one, so that most samples keep theirs."""
    shared = np.zeros((k, k), dtype=np.int64)  # by number: a starved cluster has a row and a column too
    np.add.at(shared, (labels.cpu().numpy(), old.cpu().numpy()), 1)
    return torch.as_tensor(best_matching(shared), device=labels.device)[labels]


def _plus_plus(features: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Greedy k-means++: each new centre is the best of several that are drawn in proportion to the squared distance."""
    trials = 2 + int(math.log(k))
    centred = features - features.mean(0)
    squares = centred.square().sum(1)

    def distances(rows: Tensor) -> Tensor:
        return (squares[rows, None] + squares - 2 * centred[rows] @ centred.T).clamp_min(0)

    chosen = [torch.randint(len(features), (1,), generator=generator).to(features.device)]
    least = distances(chosen[0])[0]
    for _ in range(1, k):
        cumulative = least.double().cumsum(0)
        drawn = torch.rand(trials, generator=generator, dtype=torch.float64).to(features.device) * cumulative[-1]
        candidates = torch.searchsorted(cumulative, drawn).clamp_max(len(features) - 1)
        reduced = torch.minimum(distances(candidates), least)
        best = reduced.sum(1).argmin()
        chosen.append(candidates[best][None])
        least = reduced[best]
    return features[torch.cat(chosen)]
