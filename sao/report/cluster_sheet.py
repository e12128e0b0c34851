"""Groups of samples, and the sheet that shows each group's most central images."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from sao.data.dataset import Images, Pixels, Samples
from sao.evaluation.html import table
from sao.evaluation.inputs import unit_rows
from sao.evaluation.kmeans import best_kmeans
from sao.evaluation.manifold import Manifold, manifold_clusters
from sao.evaluation.outliers import outliers
from sao.training.pictures import grid

CENTRAL = 12  # images shown of each cluster


@dataclass(frozen=True, eq=False)
class ClusterSheet:
    """Of each sample its name, its cluster, its cosine with the centre, and whether it is far from all others."""

    names: Sequence[str]
    clusters: np.ndarray
    cosines: np.ndarray
    outliers: np.ndarray
    k: int
    pixels: Pixels | None = None

    @classmethod
    def of(
        cls, features: np.ndarray, samples: Samples, k: int, seed: int = 0, manifold: Manifold | None = None
    ) -> "ClusterSheet":
        clusters, cosines = _clustered(features, k, manifold, seed)
        pixels = samples.bytes if isinstance(samples, Images) else None
        strange = outliers(features, pixels, seed)
        names = list(samples.names) if samples.names is not None else [str(i) for i in range(len(samples))]
        return cls(names, clusters, cosines, strange, k, pixels)

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.clusters, minlength=self.k)

    def central(self, cluster: int) -> np.ndarray:
        """Rows of the most central samples of a cluster, without outliers."""
        members = np.flatnonzero((self.clusters == cluster) & ~self.outliers)
        return members[np.argsort(-self.cosines[members], kind="stable")[:CENTRAL]]

    def picture(self) -> Image.Image:
        """A row for each cluster, with its number and its size."""
        assert self.pixels is not None
        shown = np.full((self.k * CENTRAL, *self.pixels.shape[1:]), 255, np.uint8)
        for cluster in range(self.k):
            chosen = self.central(cluster)
            shown[cluster * CENTRAL : cluster * CENTRAL + len(chosen)] = self.pixels[chosen]
        return grid(shown, columns=CENTRAL, titles=[_said(cluster, count) for cluster, count in enumerate(self.counts)])

    def _repr_html_(self) -> str:
        """The sheet itself; of vectors the names of the most central rows."""
        if self.pixels is None:
            names = list(map(str, self.names))
            rows = [[_said(k, count), ", ".join(names[i] for i in self.central(k))] for k, count in enumerate(self.counts)]
            return table(rows, ["cluster", "most central"])
        stream = io.BytesIO()
        self.picture().save(stream, "PNG")
        data = base64.b64encode(stream.getvalue()).decode()
        return f'<img alt="the most central images of {self.k} clusters" src="data:image/png;base64,{data}">'


def _clustered(features: np.ndarray, k: int, manifold: Manifold | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cluster (n,) of each sample and the cosine (n,) with that cluster's mean direction."""
    if manifold is None:
        assigned, cosines = best_kmeans(features, k, seed=seed).nearest(features)
        return assigned.numpy(), cosines.numpy()
    units, assigned = unit_rows(torch.from_numpy(features)), manifold_clusters(features, k, manifold, seed)
    means = unit_rows(torch.zeros(k, units.shape[1]).index_add_(0, assigned, units))
    return assigned.numpy(), (units * means[assigned]).sum(dim=1).numpy()


def _said(cluster: int, count: int) -> str:
    return f"{cluster}: {count} image{'' if count == 1 else 's'}"
