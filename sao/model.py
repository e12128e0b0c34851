"""A trained model in three lines: `model = sao.load("runs/x"); model.embed(images); model.sample(16)`."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from sao.config import Config
from sao.data.samples import Images, Samples, Vectors
from sao.data.tables import Standardiser
from sao.engine import checkpoint
from sao.engine.device import choose_device
from sao.engine.features import extract
from sao.engine.pictures import to_pixels
from sao.engine.run import DataFacts, Run
from sao.errors import InputError
from sao.evaluation.kmeans import SphericalKMeans, best_kmeans
from sao.methods import FeatureName, Generative, Method, generative
from sao.randomness import generator


def check_feature(name: str) -> None:
    if name not in get_args(FeatureName):
        raise InputError(f"feature must be one of {', '.join(get_args(FeatureName))}, got {name!r}")


class Model:
    """The learner of a run at its newest checkpoint, ready to use; it holds none of the training data."""

    def __init__(self, config: Config, facts: DataFacts, method: Method, step: int) -> None:
        self.config, self.facts, self.method, self.step = config, facts, method.eval(), step
        self._clusters: SphericalKMeans | None = None

    @property
    def device(self) -> torch.device:
        return next(self.method.parameters()).device

    def embed(self, x: np.ndarray | Samples, feature: FeatureName = "backbone", chunk: int = 256) -> np.ndarray:
        """Features (n, d) of images (n, h, w[, c]) as uint8, or of vectors (n, d) in their original units."""
        check_feature(feature)
        return extract(self.method.representation(feature), self.samples(x), self.device, chunk)

    def predict(self, x: np.ndarray | Samples, k: int | None = None, seed: int = 0) -> np.ndarray:
        """Clusters (n,) of the features. The first call, and every call with `k`, fits the clusters to these samples."""
        features = self.embed(x)
        if k is not None or self._clusters is None:
            wanted = k or self.facts.classes
            if wanted is None:
                raise InputError("the data had no labels, so the number of clusters is unknown: give k")
            self._clusters = best_kmeans(features, wanted, seed=seed)
        return self._clusters.assign(features).numpy()

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Generated samples: uint8 images (n, h, w, c), or vectors in their original units."""
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        return self.decode(torch.randn(n, *self._generative.latent_shape, generator=generator(seed, "samples")))

    def decode(self, latents: torch.Tensor, chunk: int = 256) -> np.ndarray:
        """What the generator makes of latents (n, *latent_shape)."""
        parts = []
        for part in latents.split(chunk):
            drawn = self._generative.decode(part.to(self.device))
            parts.append(to_pixels(drawn) if len(self.facts.shape) == 3 else drawn.cpu().numpy())
        values = np.concatenate(parts)
        return self._standardiser.invert(values) if self._standardiser is not None else values

    def samples(self, x: np.ndarray | Samples) -> Samples:
        """Check an array and bring it into the form that the network expects."""
        if isinstance(x, Images | Vectors):
            return x
        x = np.asarray(x)
        if len(self.facts.shape) == 1:
            if x.ndim != 2 or not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all():
                raise InputError(f"x must be a finite matrix of numbers (n, d), got {x.dtype} {x.shape}")
            return Vectors((self._standardiser.apply(x) if self._standardiser is not None else x).astype(np.float32))
        x = x[..., None] if x.ndim == 3 else x
        channels, height, width = self.facts.shape
        if x.dtype != np.uint8 or x.shape[1:] != (height, width, channels):
            raise InputError(f"x must be uint8 of shape (n, {height}, {width}, {channels}), got {x.dtype} {x.shape}")
        return Images(x)

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Of what `decode` takes for one sample."""
        return self._generative.latent_shape

    @property
    def _generative(self) -> Generative:
        maker = generative(self.method)
        if maker is None:
            raise InputError(f"a run of method {self.config.method.name} makes no samples")
        return maker

    @property
    def _standardiser(self) -> Standardiser | None:
        return None if self.facts.standardiser is None else Standardiser.from_dict(self.facts.standardiser)


def load(
    folder: str | Path,
    device: str = "auto",
    weights: Literal["ema", "raw"] = "ema",
    report: Callable[[str], None] = warnings.warn,
) -> Model:
    """The model of a run folder, from its newest whole checkpoint; its moving averages, or the raw networks.

    A damaged checkpoint is passed over and reported.
    """
    run = Run.open(Path(folder))
    config, facts = run.config, run.facts
    try:
        method = config.build_method(facts.shape, facts.samples, facts.classes).to(choose_device(device))
    except (RuntimeError, MemoryError, OverflowError) as error:  # numbers that no network, or no machine, can have
        raise InputError(f"the network that {run.folder} describes cannot be built: {str(error).splitlines()[0]}") from None
    step = checkpoint.load_newest(run.checkpoints, method, report)
    if weights == "raw":
        method.use_raw_weights()
    return Model(config, facts, method, step)
