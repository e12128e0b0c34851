"""What D and G minimise, written as the paper reads: explicit matrices, determinants, inverses, one line for each term.

The oracle of the method. It shares no code with the package, so that a sign or a factor that is wrong there is seen here.
Axes: n batch, m pool, p embedding, b backbone (key).
"""

from dataclasses import dataclass

import reference
import torch
from torch import Tensor

Terms = dict[str, Tensor]
Rows = tuple[Tensor, Tensor]  # embeddings (m, p) and keys (m, b)


@dataclass(frozen=True)
class Settings:
    distance: str = "jensen_shannon"  # or bhattacharyya, hinge
    covariance: str = "full"  # or diagonal
    centre: str = "sphere"  # or mean
    epsilon: float = 0.5
    cluster_weight: float = 3.0  # λ_c
    neighbours: int = 1  # K
    skip_first_fake: bool = False
    smoothness_weight: float = 5.0  # λ_s
    lipschitz: float = 1.0
    norm_weight: float = 4.0  # λ_h
    norm_side: str = "floor"  # or ceiling


def discriminator_terms(
    settings: Settings, real: Tensor, fake: Tensor, keys: Rows, bank: Rows | None, jacobian_norms: Tensor | None
) -> Terms:
    """D minimises −d + λ_c (sim_fake − sim_real) + λ_s (smooth + λ_h norm_hinge), of unnormalised embeddings (n, p).

    `keys` are those of real and of generated samples. Without a bank nothing is grouped, without norms nothing smoothed.
    """
    terms: Terms = {}
    if settings.distance == "hinge":
        terms["adversarial_hinge"] = (1 - real).clamp(min=0).mean() + (1 + fake).clamp(min=0).mean()
    else:
        terms["distance"] = -distance(settings, unit(real), unit(fake))
        if bank is not None:
            sim_real, sim_fake = similarities(settings, real, fake, keys, bank)
            terms["similarity_real"] = settings.cluster_weight * -sim_real
            terms["similarity_fake"] = settings.cluster_weight * sim_fake
    if settings.smoothness_weight * settings.norm_weight > 0 and settings.distance != "hinge":  # a score has no length to hold
        norms = torch.cat([real, fake]).square().sum(1).sqrt()
        beyond = 1 - norms if settings.norm_side == "floor" else norms - 1
        norm_hinge = beyond.clamp(min=0).square().mean()
        terms["norm_hinge"] = settings.smoothness_weight * (settings.norm_weight * norm_hinge)
    if jacobian_norms is not None:
        smooth = (jacobian_norms - settings.lipschitz).square().mean()
        terms["smoothness"] = settings.smoothness_weight * smooth
    return terms


def generator_terms(settings: Settings, real: Tensor, fake: Tensor, keys: Rows, bank: Rows | None) -> Terms:
    """G minimises d − λ_c sim_fake."""
    if settings.distance == "hinge":
        return {"adversarial_hinge": -fake.mean()}
    terms = {"distance": distance(settings, unit(real), unit(fake))}
    if bank is not None:
        _, sim_fake = similarities(settings, real, fake, keys, bank)
        terms["similarity_fake"] = -settings.cluster_weight * sim_fake
    return terms


def diagnostics(settings: Settings, real: Tensor, fake: Tensor, jacobian_norms: Tensor | None) -> Terms:
    """What D's update logs beside its terms."""
    found: Terms = {}
    if jacobian_norms is not None:
        found["jacobian_norm"] = jacobian_norms.detach().mean()
    if settings.distance != "hinge":
        found["embedding_norm"] = torch.cat([real, fake]).detach().square().sum(1).sqrt().mean()
        found["logdet_real"] = torch.logdet(covariance(settings, unit(real.detach())))
        found["logdet_fake"] = torch.logdet(covariance(settings, unit(fake.detach())))
    return found


def distance(settings: Settings, real: Tensor, fake: Tensor) -> Tensor:
    """d of unit embeddings: the Jensen–Shannon divergence or the Bhattacharyya distance of the fitted Gaussians."""
    measure = reference.jensen_shannon if settings.distance == "jensen_shannon" else reference.bhattacharyya
    return measure(real, fake, settings.covariance, settings.centre, settings.epsilon)


def covariance(settings: Settings, z: Tensor) -> Tensor:
    return reference.covariance(z, settings.covariance, settings.centre, settings.epsilon)


def similarities(settings: Settings, real: Tensor, fake: Tensor, keys: Rows, bank: Rows) -> tuple[Tensor, Tensor]:
    """sim_real and sim_fake, both with neighbours among the real batch and the bank."""
    (real_keys, fake_keys), (bank_embeddings, bank_keys) = keys, bank
    pool = torch.cat([unit(real), bank_embeddings]), torch.cat([real_keys, bank_keys])
    k = settings.neighbours
    sim_real = reference.neighbour_similarity(unit(real), real_keys, *pool, k, skip_first=True)  # the nearest is itself
    return sim_real, reference.neighbour_similarity(unit(fake), fake_keys, *pool, k, settings.skip_first_fake)


def unit(rows: Tensor) -> Tensor:
    return rows / rows.square().sum(1, keepdim=True).sqrt()
