"""A trained model in three lines: `model = sao.load("runs/x"); model.embed(images); model.sample(16)`."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from sao.config import Config
from sao.core.random import generator
from sao.data.dataset import Dataset, Images, PixelRange, Samples, Standardiser, Vectors
from sao.data.files.objects import holds_pictures, readable
from sao.data.files.open import open_for_embedding
from sao.errors import InputError, printable
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
from sao.search.index import Index, Neighbours, stored_features, tensors_digest
from sao.training.device import choose_device
from sao.training.partial_method import PartialMethod, latest_method
from sao.training.pictures import decoded, to_pixels
from sao.training.run_data import reading_of
from sao.training.run_folder import DataFacts, Run

Errors = Literal["skip", "raise"]


def check_feature(name: str) -> None:
    if name not in get_args(FeatureName):
        raise InputError(f"feature must be one of {', '.join(get_args(FeatureName))}, got {name!r}")


class Model:
    """The method of a run at its latest checkpoint, ready to use; it holds none of the training data.

    Of a loaded method only the weights that its uses need come into memory.
    """

    def __init__(
        self, config: Config, facts: DataFacts, method: Method | None, step: int, partial: PartialMethod | None = None
    ) -> None:
        self.config, self.facts, self.step = config, facts, step
        self._method = None if method is None else method.eval()
        self.partial = partial  # the checkpoint that it came from, where it came from one
        self._clusters: SphericalKMeans | None = None

    @property
    def method(self) -> Method:
        """The whole method, with optimisers and all that training needs."""
        if self._method is None:
            assert self.partial is not None
            self._method = self.partial.whole
        return self._method

    def method_for(self, use: Use) -> Method:
        """The method, with only the weights that this use needs."""
        if self._method is not None:
            return self._method
        assert self.partial is not None
        return self.partial.ready_for(use)

    @property
    def device(self) -> torch.device:
        return self.partial.device if self.partial is not None else next(self.method.parameters()).device

    @property
    def usual_feature(self) -> FeatureName:
        """What `embed` gives unless it is told: "layers" of photographs, else "backbone"."""
        return self.method_for("backbone").usual_feature(self.facts.shape)

    def _named(self, feature: FeatureName | None) -> FeatureName:
        if feature is None:
            return self.usual_feature
        check_feature(feature)
        return feature

    def embed(
        self,
        x: Any,
        feature: FeatureName | None = None,
        chunk: int = 256,
        progress: Callable[[int, int], None] | None = None,
        *,
        errors: Errors | None = None,
        return_names: bool = False,
    ) -> Any:
        """Features (n, d) of images of any size, or of vectors (n, d) in their original units; see `usual_feature` for which.

        `x` is a path; an array or tensor, (n, h, w[, c]) or (n, c, h, w), or one image; a list of pictures or paths; a data set
        or a DataLoader of torch, a data set of Hugging Face, a table of pandas. With `return_names` also the n names.

        `errors` says what happens to an item that cannot be read. "skip" leaves it out, with a warning, as `sao embed` does:
        the default for a path. "raise" is the default for all else, whose rows a caller counts.
        """
        feature = self._named(feature)
        function = self.method_for(feature).representation(feature)
        samples = self.samples(x, errors)
        features = extract(function, samples, self.device, chunk, progress=progress)
        return (features, names_of(samples)) if return_names else features

    def search(
        self,
        queries: Any,
        gallery: Any,
        k: int = 20,
        feature: FeatureName | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        errors: Errors | None = None,
    ) -> Neighbours:
        """The k samples of the gallery most like each query, nearest first; both are what `embed` takes.

        For many calls on one gallery make its `index` once.
        """
        asked, names = self.embed(queries, feature, errors=errors, return_names=True)
        return self.index(gallery, feature, progress, errors=errors).search(asked, k, names)

    def index(
        self,
        gallery: Any,
        feature: FeatureName | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        errors: Errors | None = None,
    ) -> Index:
        """Features of a gallery to search in; from the cache where the same samples were embedded by the same weights."""
        samples, feature = self.samples(gallery, errors), self._named(feature)
        about = f"{feature} {self.facts.shape} {self.config.model_dump_json(include={'method', 'encoder'})}"
        weights = tensors_digest(self.method_for(feature).tensors_for(feature), about)
        features, stored = stored_features(samples, weights, lambda: self.embed(samples, feature, progress=progress))
        return Index.of(features, names_of(samples), stored)

    def predict(self, x: Any, k: int | None = None, seed: int = 0) -> np.ndarray:
        """Clusters (n,) of the features. The first call, and every call with `k`, fits the clusters to these samples."""
        features = self.embed(x)
        if k is not None or self._clusters is None:
            self._clusters = best_kmeans(features, self._number(k), seed=seed)
        return self._clusters.assign(features).numpy()

    def clusters(self, x: Any, k: int | None = None, seed: int = 0) -> ClusterSheet:
        """Groups of samples with their outliers; in a notebook it shows each group's most central images."""
        wanted, samples = self._number(k), self.samples(x)
        return ClusterSheet.of(self.embed(samples), samples, wanted, seed)

    def _number(self, k: int | None) -> int:
        if wanted := k or self.facts.classes:
            return wanted
        raise InputError("the data had no labels, so the number of clusters is unknown: give k")

    def untrained(self) -> Method:
        """The method as it was before its first step."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the run began
            return self.config.build_method(self.facts.shape, self.facts.samples, self.facts.classes).to(self.device).eval()

    def evaluate(
        self,
        data: Dataset | Samples,
        seed: int = 0,
        feature: FeatureName | None = None,
        manifold: Manifold = "spectral",
        pretrained: str = "none",
    ) -> Evaluation:
        """The features beside the baselines, by the one evaluator; in a notebook a table.

        `pretrained` names a network that is measured too: efficientnet_lite0, or timm:NAME where its weights are at hand.
        """
        feature = self._named(feature)
        check_algorithm(manifold)
        other = named_network(pretrained, self.facts.shape)
        untrained, learnt, plan = self.untrained(), self.method_for(feature), replace(SUMMARISED, manifold=manifold)
        facts, budget = {"weights": weights_used(learnt)}, Budget(plan.minutes)
        seconds = 0.0 if self.partial is None else Run(self.partial.path.parents[1]).training_seconds()
        found = representations(
            learnt, data, plan, seed, untrained, feature, facts, seconds=seconds, budget=budget, pretrained=other
        )
        return measure(found, plan, seed, budget=budget)

    def __repr__(self) -> str:
        rows = self._about()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        """For a notebook: what was trained on what."""
        return table(self._about())

    def _about(self) -> list[list[str]]:
        about, shape = self.facts, "x".join(map(str, self.facts.shape))
        classes = "none" if about.classes is None else str(about.classes)
        return [
            ["method", self.config.method.name],
            ["data", printable(f"{about.name}: {about.samples} samples of {shape}")],
            ["classes, for evaluation only", classes],
            ["step", f"{self.step} of {self.config.steps_for(about.samples)}"],
            ["device", str(self.device)],
        ]

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Generated samples: uint8 images (n, h, w, c), float32 ones in the units of data of 16 bits, or vectors in theirs."""
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        return self.decode(torch.randn(n, *self.latent_shape, generator=generator(seed, "samples")))

    def decode(self, latents: torch.Tensor) -> np.ndarray:
        """What the generator makes of latents (n, *latent_shape)."""
        drawn = decoded(self._generator(), latents, self.facts.shape, self.device)
        if self.pixel_range is not None:
            return self.pixel_range.values(drawn).cpu().numpy()
        values = to_pixels(drawn) if len(self.facts.shape) == 3 else drawn.cpu().numpy()
        return self._standardiser.invert(values) if self._standardiser is not None else values

    def bytes_of(self, generated: np.ndarray) -> np.ndarray:
        """Generated images as uint8, to look at."""
        if self.pixel_range is None:
            return generated
        return np.rint(self.pixel_range.parts(generated) * 255).astype(np.uint8)

    def samples(self, x: Any, errors: Errors | None = None) -> Samples:
        """Any data that `embed` takes, in the form that the network expects."""
        if isinstance(x, Images | Vectors):
            return x
        if errors not in (None, *get_args(Errors)):
            raise InputError(f"errors must be one of {', '.join(get_args(Errors))}, got {errors!r}")
        if _is_loader(x):
            return self._of_loader(x, errors)
        if isinstance(x, list | tuple) and x and all(hasattr(one, "__array__") for one in x):
            same = len({np.shape(one) for one in x}) == 1
            x = np.stack([_array(one) for one in x]) if same else x
        if not isinstance(x, torch.Tensor) and not _is_array(x):
            return self._read(x, errors)
        if len(self.facts.shape) == 3:
            return self._read(self._several(x), errors)
        x = _array(x)
        if x.ndim != 2 or not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all():
            raise InputError(f"x must be a finite matrix of numbers (n, d), got {x.dtype} {x.shape}")
        return Vectors((self._standardiser.apply(x) if self._standardiser is not None else x).astype(np.float32))

    def _several(self, x: Any) -> np.ndarray:
        """An array of images; of one image in colour, (h, w, c) or a tensor (c, h, w), an array of one."""
        array = _array(x)
        channels = self.facts.shape[0]
        last = array.ndim == 3 and (array.shape[-1] in (3, 4) or array.shape[-1] == channels > 1)
        first = array.ndim == 3 and isinstance(x, torch.Tensor) and len(array) == channels > 1
        return array[None] if last or first else array

    def _of_loader(self, loader: Any, errors: Errors | None) -> Samples:
        """All batches of a DataLoader: tensors, or tuples or mappings of which the first is the inputs."""
        parts, ranges = [], set()
        for batch in loader:
            if isinstance(batch, Mapping):
                batch = next(iter(batch.values()))
            inputs = batch[0] if isinstance(batch, list | tuple) else batch
            parts.append(self.samples(inputs, errors))
            if inputs.dtype.is_floating_point and len(self.facts.shape) == 3:
                ranges.add(bool((inputs < 0).any()))
        if not parts:
            raise InputError("the loader has no batches: give at least one sample")
        if len(ranges) > 1:
            raise InputError("only some batches of the loader have negative pixels: give uint8, or pixels in [0, 1]")
        if isinstance(parts[0], Images):
            levels = parts[0].levels
            if any(part.levels != levels for part in parts):
                raise InputError("the batches of the loader have values of different types: give one")
            return Images(np.concatenate([np.asarray(part.pixels) for part in parts]), levels=levels)
        return Vectors(np.concatenate([part.rows for part in parts]))

    def _read(self, x: Any, errors: Errors | None) -> Samples:
        """From a path, or any object that holds data."""
        is_path = isinstance(x, str | os.PathLike)
        strict = errors == "raise" or (errors is None and not is_path)
        samples, skipped, _ = open_for_embedding(
            x if is_path else readable(x), strict=strict, **reading_of(self.config, self.facts)
        )
        if skipped:
            first = f"{skipped[0].name}: {skipped[0].reason}"
            warnings.warn(f"{len(skipped)} items were skipped, the first: {first}", stacklevel=4)
        return samples

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
    def pixel_range(self) -> PixelRange | None:
        """Of values of 16 bits, what the network sees as -1 and 1."""
        return None if self.facts.pixel_range is None else PixelRange.from_dict(self.facts.pixel_range)

    @property
    def _standardiser(self) -> Standardiser | None:
        return None if self.facts.standardiser is None else Standardiser.from_dict(self.facts.standardiser)


def _is_array(x: Any) -> bool:
    """Whether numpy can take it as it is: an array, or a nested list of numbers."""
    if isinstance(x, list | tuple):
        return not x or (isinstance(x[0], int | float | np.number | list) and not holds_pictures(x))
    return isinstance(x, np.ndarray)


def _array(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)


def _is_loader(x: Any) -> bool:
    return hasattr(x, "dataset") and hasattr(x, "batch_sampler") and hasattr(x, "__iter__")


def names_of(samples: Samples) -> list[str]:
    """Their names, or else their numbers."""
    return [str(i) for i in range(len(samples))] if samples.names is None else list(samples.names)


def load(
    folder: str | Path,
    device: str = "auto",
    weights: Literal["ema", "raw"] = "ema",
    report: Callable[[str], None] = warnings.warn,
) -> Model:
    """The model of a run folder, from its latest whole checkpoint; its EMA weights, or the raw ones.

    Also a model that comes with the package, by its name; a run of that name in the current folder comes first. And a model of
    the Hugging Face Hub: "hf:OWNER/NAME" or "hf:OWNER/NAME@REVISION".

    A damaged checkpoint is passed over and reported.
    """
    run = Run.open(run_folder(folder, report))
    config, facts = run.config, run.facts
    if run.is_copy and weights == "raw":
        raise InputError(f"{folder} holds EMA weights only: it has no raw weights")
    method, step = latest_method(config, facts, run.checkpoints, choose_device(device), weights == "raw", report)
    return Model(config, facts, None, step, method)
