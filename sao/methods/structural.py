"""The paper's method: a discriminator that aligns distributions, groups neighbours and stays smooth, against a generator."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.nn import functional as F

from sao.config.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from sao.core import objectives
from sao.core import random as randomness
from sao.core.jacobian import smoothness_penalty
from sao.core.memory_bank import MemoryBank
from sao.methods.base import Context, Scalars
from sao.methods.encoders import Local, discriminator_for
from sao.methods.gan import Adversarial, Side, SmoothOptions

SHARED = ("distance", "similarity_fake", "local_distance", "local_similarity_fake")  # terms that both players have
LOCAL_POSITIONS = 4  # of each image, of which similar ones are looked for


class Options(SmoothOptions):
    """Structural adversarial objectives."""

    name: Literal["structural"] = "structural"
    embedding_size: PositiveInt = Field(default=128, description="numbers in an embedding, p")
    distance: Literal["jensen_shannon", "bhattacharyya"] = Field(
        default="jensen_shannon", description="between the Gaussians of real and generated embeddings"
    )
    covariance: Literal["full", "diagonal"] = Field(
        default="full", description="full: the authors' code; diagonal: the paper's text"
    )
    centre: Literal["sphere", "mean"] = Field(
        default="sphere", description="what it is taken around: the unit or the plain mean"
    )
    epsilon: PositiveFloat = Field(default=0.5, description="variance added to a covariance, over all its directions together")
    cluster_weight: NonNegativeFloat = Field(default=3.0, description="λ_c, weight of the similarity to neighbours; 0: no bank")
    cluster_warmup: NonNegativeInt = Field(
        default=0,
        description="steps over which λ_c grows linearly from 0: at the beginning neighbours are arbitrary, and pulling "
        "samples to them makes all embeddings alike; 0: at once, the paper's",
    )
    neighbours: PositiveInt = Field(default=1, description="K, neighbours of each sample")
    skip_first_fake: bool = Field(default=False, description="drop a generated sample's nearest neighbour (authors' code)")
    keys_from: Literal["ema", "own"] = Field(
        default="ema",
        description="whose backbone features say which samples are neighbours: the EMA discriminator's, in a pass of its "
        "own (the paper's), or those of the discriminator's own pass for the losses, which is faster",
    )
    bank: PositiveInt = Field(default=10240, description="past embeddings in which neighbours are looked for")
    lazy: bool = Field(
        default=False,
        description="multiply the weight of the penalty on Jacobian norms by smooth_every, so that fewer penalties are "
        "together as strong (StyleGAN2's lazy regularisation); the log shows the term as it is without the factor",
    )
    power_steps: PositiveInt = Field(default=1, description="power iterations for the spectral norm")
    norm_weight: NonNegativeFloat = Field(default=4.0, description="λ_h, weight of the hinge on embeddings' lengths, times λ_s")
    norm_side: Literal["floor", "ceiling"] = Field(default="floor", description="floor: lengths below 1 cost; ceiling: above 1")

    local_weight: NonNegativeFloat = Field(
        default=0.0,
        description="weight of the same distance between real and generated local embeddings: a head on the map of a middle "
        "stage makes one of every position, so that a batch has thousands; 0: none, the paper's",
    )
    local_cluster_weight: NonNegativeFloat = Field(
        default=0.0,
        description="weight of the similarity of local embeddings to the nearest one of another image of the real batch, at "
        "four random positions of each image; 0: none, the paper's",
    )
    local_stage: NonNegativeInt | None = Field(
        default=None, description="the encoder's stage whose map is embedded locally, from 0 on; null: the last but one"
    )
    local_size: PositiveInt = Field(default=64, description="numbers in a local embedding")

    @property
    def has_local(self) -> bool:
        return self.local_weight > 0 or self.local_cluster_weight > 0

    def build(self, context: Context) -> "Structural":
        return Structural(self, context)


class Structural(Adversarial):
    headline = ("discriminator/distance", "generator/distance")
    may_collapse = True

    def __init__(self, options: Options, context: Context) -> None:
        local = Local(options.local_stage, options.local_size) if options.has_local else None
        discriminator = discriminator_for(
            context.encoder,
            context.shape,
            options.embedding_size,
            options.spectral_normalisation,
            local,
            jacobians=options.smoothness_weight > 0,
        )
        super().__init__(discriminator, options.generator.build(context.shape), options, context)
        self.options, self.power_steps = options, options.power_steps
        self.zero_sum = options.smoothness_weight * options.norm_weight == 0  # the hinge on lengths is D's alone
        self.bank = None
        if options.cluster_weight > 0:
            features = discriminator.encoder.feature_size
            self.bank = MemoryBank(options.bank, options.embedding_size, features, context.samples)

    def discriminator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        """−d + λ_c (sim_fake − sim_real) + λ_s (smoothness + λ_h norm_hinge), and local terms; logged without `lazy`."""
        options, cluster_weight = self.options, self._cluster_weight(step)
        real_z, fake_z = F.normalize(real.embeddings), F.normalize(fake.embeddings)
        losses = {"distance": -self.distance(real_z, fake_z)}
        if self.bank is not None:
            pool = self._pool(real_z, real.keys)
            real_similarity = self._similarity(real_z, real.keys, pool, skip_first=True)
            fake_similarity = self._similarity(fake_z, fake.keys, pool, skip_first=options.skip_first_fake)
            losses["similarity_real"] = -cluster_weight * real_similarity
            losses["similarity_fake"] = cluster_weight * fake_similarity
        if options.smoothness_weight * options.norm_weight > 0:
            hinge = objectives.norm_hinge.unchecked(torch.cat([real.embeddings, fake.embeddings]), options.norm_side)
            losses["norm_hinge"] = options.smoothness_weight * options.norm_weight * hinge
        if len(real.norms) > 0:
            penalty = smoothness_penalty.unchecked(torch.cat([real.norms, fake.norms]), options.lipschitz)
            if options.lazy:
                penalty = penalty + (options.smooth_every - 1) * (penalty - penalty.detach())
            losses["smoothness"] = options.smoothness_weight * penalty
        return losses | self._local_losses(real, fake, step)

    def generator_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        """d − λ_c sim_fake, and the same for local embeddings."""
        real_z, fake_z = F.normalize(real.embeddings), F.normalize(fake.embeddings)
        losses = {"distance": self.distance(real_z, fake_z)}
        if self.bank is not None:
            pool = self._pool(real_z, real.keys)
            similarity = self._similarity(fake_z, fake.keys, pool, skip_first=self.options.skip_first_fake)
            losses["similarity_fake"] = -self._cluster_weight(step) * similarity
        return losses | {name: -value for name, value in self._local_losses(real, fake, step).items() if name in SHARED}

    def generator_losses_of_one_pass(self, of_discriminator: Scalars, real: Side, fake: Side, step: int) -> Scalars:
        """What the players share: each of them minimises the other's with the sign turned."""
        return {name: -value for name, value in of_discriminator.items() if name in SHARED}

    def diagnostics(self, real: Side, fake: Side) -> Scalars:
        lengths = torch.linalg.vector_norm(torch.cat([real.embeddings, fake.embeddings]).detach(), dim=1)
        logdets = {
            name: objectives.gaussian_logdet.unchecked(F.normalize(side.embeddings.detach()), **self._gaussian)
            for name, side in (("logdet_real", real), ("logdet_fake", fake))
        }
        return {"embedding_norm": lengths.mean(), **logdets, **super().diagnostics(real, fake)}

    @torch.no_grad()
    def keys(self, inputs: Tensor, features: Tensor) -> Tensor:
        """Unit backbone features, by which neighbours are found; empty where nobody looks for any."""
        if self.bank is None:
            return super().keys(inputs, features)
        if self.options.keys_from == "ema":
            with record_function("phase/momentum keys"), self.autocast(inputs) as called:
                features = self.in_micro_batches(called(self.ema_discriminator.network.features), inputs)  # pyright: ignore[reportArgumentType]
        return F.normalize(features.to(inputs.dtype))

    def update_bank(self, real: Side) -> None:
        if self.bank is not None:
            self.bank.push_unchecked(F.normalize(real.embeddings.detach()), real.keys)

    @torch.no_grad()
    def embeddings(self, inputs: Tensor) -> Tensor:
        return F.normalize(super().embeddings(inputs))

    @property
    def _gaussian(self) -> objectives.Gaussian:
        options = self.options
        return {"covariance": options.covariance, "centre": options.centre, "epsilon": options.epsilon}

    def distance(self, real: Tensor, fake: Tensor) -> Tensor:
        """d of two sets of unit embeddings, which D maximises and G minimises."""
        measure = objectives.jensen_shannon if self.options.distance == "jensen_shannon" else objectives.bhattacharyya
        return measure.unchecked(real, fake, **self._gaussian)

    def _cluster_weight(self, step: int) -> float:
        """λ_c at a step."""
        warmup = self.options.cluster_warmup
        return self.options.cluster_weight * (min(1.0, (step + 1) / warmup) if warmup else 1.0)

    def _local_losses(self, real: Side, fake: Side, step: int) -> Scalars:
        """D's terms of local embeddings: −w d, and the similarities to the nearest of another image of the real batch."""
        options, losses = self.options, {}
        if not options.has_local:
            return losses
        real_z, fake_z = F.normalize(real.local, dim=2), F.normalize(fake.local, dim=2)
        if options.local_weight > 0:
            losses["local_distance"] = -options.local_weight * self.distance(real_z.flatten(0, 1), fake_z.flatten(0, 1))
        if options.local_cluster_weight > 0:
            weight = options.local_cluster_weight
            real_z, fake_z = self._some_positions("real", real_z, step), self._some_positions("generated", fake_z, step)
            losses["local_similarity_real"] = -weight * objectives.nearest_similarity.unchecked(real_z, real_z, others=True)
            losses["local_similarity_fake"] = weight * objectives.nearest_similarity.unchecked(fake_z, real_z)
        return losses

    def _some_positions(self, side: str, local: Tensor, step: int) -> Tensor:
        """(n, 4, q): of each row of the global batch (n, positions, q) some that are drawn for it."""
        places = self._local_positions(side, local, step)
        return local.gather(1, places[:, :, None].expand(-1, -1, local.shape[2]))

    def _local_positions(self, side: str, local: Tensor, step: int) -> Tensor:
        """(n, 4) different places; all of them where there are fewer."""
        rows, positions = slice(0, len(local)), local.shape[1]
        draws = randomness.uniform(self.seed, f"local positions/{side}", step, rows, (positions,), local.device)
        return draws.topk(min(LOCAL_POSITIONS, positions), dim=1).indices

    def _pool(self, real: Tensor, real_keys: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and keys among which neighbours are found: the current real batch, which has a gradient, and the bank."""
        assert self.bank is not None
        embeddings, keys = self.bank.contents()
        return torch.cat([real, embeddings.to(real.dtype)]), torch.cat([real_keys, keys.to(real_keys.dtype)])

    def _similarity(self, queries: Tensor, query_keys: Tensor, pool: tuple[Tensor, Tensor], skip_first: bool) -> Tensor:
        k = self.options.neighbours
        return objectives.neighbour_similarity.unchecked(queries, query_keys, *pool, k, skip_first=skip_first)
