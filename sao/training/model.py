"""A trained model in three lines: `model = sao.load("runs/x"); model.embed(images); model.sample(16)`."""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from sao.config import Config
from sao.core.random import generator
from sao.data.dataset import Dataset, Images, Samples, Standardiser, Vectors
from sao.data.files.objects import holds_pictures, readable
from sao.data.files.open import open_for_embedding
from sao.errors import InputError
from sao.evaluation.budget import Budget
from sao.evaluation.evaluator import SUMMARISED, Evaluation, measure, representations, weights_used
from sao.evaluation.extract import extract
from sao.evaluation.html import table
from sao.evaluation.kmeans import SphericalKMeans, best_kmeans
from sao.evaluation.manifold import Manifold, check_algorithm
from sao.evaluation.pretrained import pretrained as named_network
from sao.methods import FeatureName, Generative, Method, Use, generative
from sao.models import run_folder
from sao.report.cluster_sheet import ClusterSheet
from sao.training.device import choose_device
from sao.training.partial_method import PartialMethod, latest_method
from sao.training.pictures import decoded, to_pixels
from sao.training.run_folder import DataFacts, Run


def check_feature(name: str) -> None:
    if name not in get_args(FeatureName):
        raise InputError(f"feature must be one of {', '.join(get_args(FeatureName))}, got {name!r}")


class Model:
    """The learner of a run at its latest checkpoint, ready to use; it holds none of the training data.

    Of a loaded method only the weights that its uses need come into memory.
    """

    def __init__(
        self, config: Config, facts: DataFacts, method: Method | None, step: int, partial: PartialMethod | None = None
    ) -> None:
        self.config, self.facts, self.step = config, facts, step
        self._method, self._partial = None if method is None else method.eval(), partial
        self._clusters: SphericalKMeans | None = None

    @property
    def partial(self) -> PartialMethod | None:
        """The checkpoint that it came from, where it came from one."""
        return self._partial

    @property
    def method(self) -> Method:
        """The whole method, with optimisers and all that training needs."""
        if self._method is None:
            assert self._partial is not None
            self._method = self._partial.whole
        return self._method

    def method_for(self, use: Use) -> Method:
        """The method, with only the weights that this use needs."""
        if self._method is not None:
            return self._method
        assert self._partial is not None
        return self._partial.ready_for(use)

    @property
    def device(self) -> torch.device:
        return self._partial.device if self._partial is not None else next(self.method.parameters()).device

    def embed(
        self, x: Any, feature: FeatureName = "backbone", chunk: int = 256, progress: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Features (n, d) of images (n, h, w[, c]) as uint8, or of vectors (n, d) in their original units.

        Also of a path; of a list of pictures or paths; of a data set of torch or Hugging Face; of a table of pandas.
        """
        check_feature(feature)
        function = self.method_for(feature).representation(feature)
        return extract(function, self.samples(x), self.device, chunk, progress=progress)

    def predict(self, x: Any, k: int | None = None, seed: int = 0) -> np.ndarray:
        """Clusters (n,) of the features. The first call, and every call with `k`, fits the clusters to these samples."""
        features = self.embed(x)
        if k is not None or self._clusters is None:
            wanted = k or self.facts.classes
            if wanted is None:
                raise InputError("the data had no labels, so the number of clusters is unknown: give k")
            self._clusters = best_kmeans(features, wanted, seed=seed)
        return self._clusters.assign(features).numpy()

    def clusters(self, x: Any, k: int | None = None, seed: int = 0) -> ClusterSheet:
        """Groups of samples with their outliers; in a notebook it shows each group's most central images."""
        wanted = k or self.facts.classes
        if wanted is None:
            raise InputError("the data had no labels, so the number of clusters is unknown: give k")
        samples = self.samples(x)
        return ClusterSheet.of(self.embed(samples), samples, wanted, seed)

    def untrained(self) -> Method:
        """The learner as it was before its first step."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the run began
            return self.config.build_method(self.facts.shape, self.facts.samples, self.facts.classes).to(self.device).eval()

    def evaluate(
        self,
        data: Dataset | Samples,
        seed: int = 0,
        feature: FeatureName = "backbone",
        manifold: Manifold = "spectral",
        pretrained: str = "none",
    ) -> Evaluation:
        """The features beside the baselines, by the one evaluator; in a notebook a table.

        `pretrained` names a network that is measured too: efficientnet_lite0, or timm:NAME where its weights are at hand.
        """
        check_feature(feature)
        check_algorithm(manifold)
        other = named_network(pretrained, self.facts.shape)
        untrained, learnt, plan = self.untrained(), self.method_for(feature), replace(SUMMARISED, manifold=manifold)
        facts, budget = {"weights": weights_used(learnt)}, Budget(plan.minutes)
        seconds = 0.0 if self._partial is None else Run(self._partial.path.parents[1]).training_seconds()
        found = representations(
            learnt, data, plan, seed, untrained, feature, facts, seconds=seconds, budget=budget, pretrained=other
        )
        return measure(found, plan, seed, budget=budget)

    def _repr_html_(self) -> str:
        """For a notebook: what was trained on what."""
        about, shape = self.facts, "x".join(map(str, self.facts.shape))
        classes = "none" if about.classes is None else str(about.classes)
        rows = [
            ["method", self.config.method.name],
            ["data", f"{about.name}: {about.samples} samples of {shape}"],
            ["classes, for evaluation only", classes],
            ["step", f"{self.step} of {self.config.steps_for(about.samples)}"],
            ["device", str(self.device)],
        ]
        return table(rows)

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Generated samples: uint8 images (n, h, w, c), or vectors in their original units."""
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        return self.decode(torch.randn(n, *self.latent_shape, generator=generator(seed, "samples")))

    def decode(self, latents: torch.Tensor) -> np.ndarray:
        """What the generator makes of latents (n, *latent_shape)."""
        drawn = decoded(self._generator(), latents, self.facts.shape, self.device)
        values = to_pixels(drawn) if len(self.facts.shape) == 3 else drawn.cpu().numpy()
        return self._standardiser.invert(values) if self._standardiser is not None else values

    def samples(self, x: Any) -> Samples:
        """Check an array, or read any other object that holds data, and bring it into the form that the network expects."""
        if isinstance(x, Images | Vectors):
            return x
        if not isinstance(x, torch.Tensor) and not _is_array(x):
            return self._read(x)
        x = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
        if len(self.facts.shape) == 1:
            if x.ndim != 2 or not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all():
                raise InputError(f"x must be a finite matrix of numbers (n, d), got {x.dtype} {x.shape}")
            return Vectors((self._standardiser.apply(x) if self._standardiser is not None else x).astype(np.float32))
        x = x[..., None] if x.ndim == 3 else x
        channels, height, width = self.facts.shape
        if x.dtype != np.uint8 or x.shape[1:] != (height, width, channels):
            raise InputError(f"x must be uint8 of shape (n, {height}, {width}, {channels}), got {x.dtype} {x.shape}")
        return Images(x)

    def _read(self, x: Any) -> Samples:
        """From a path, or any object that holds data; every item is needed, so a bad one is an error."""
        source = x if isinstance(x, str | os.PathLike) else readable(x)
        shape, transform = self.facts.shape, self._standardiser
        return open_for_embedding(source, shape=shape, standardiser=transform, fit=self.config.data.fit, strict=True)[0]

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Of what `decode` takes for one sample."""
        return self._generator().latent_shape

    def _generator(self) -> Generative:
        maker = generative(self.method_for("decode")) if self.config.method.generates else None
        if maker is None:
            raise InputError(f"a run of method {self.config.method.name} makes no samples")
        return maker

    @property
    def _standardiser(self) -> Standardiser | None:
        return None if self.facts.standardiser is None else Standardiser.from_dict(self.facts.standardiser)


def _is_array(x: Any) -> bool:
    """Whether numpy can take it as it is: an array, or a nested list of numbers."""
    if isinstance(x, list | tuple):
        return not x or (isinstance(x[0], int | float | np.number | np.ndarray | list) and not holds_pictures(x))
    return isinstance(x, np.ndarray)


def load(
    folder: str | Path,
    device: str = "auto",
    weights: Literal["ema", "raw"] = "ema",
    report: Callable[[str], None] = warnings.warn,
) -> Model:
    """The model of a run folder, from its latest whole checkpoint; its EMA weights, or the raw ones.

    Also a model that comes with the package, by its name; a run of that name in the current folder comes first.

    A damaged checkpoint is passed over and reported.
    """
    run = Run.open(run_folder(folder, report))
    config, facts = run.config, run.facts
    if run.is_copy and weights == "raw":
        raise InputError(f"{folder} holds EMA weights only: it has no raw weights")
    method, step = latest_method(config, facts, run.checkpoints, choose_device(device), weights == "raw", report)
    return Model(config, facts, None, step, method)
