"""The method as a scikit-learn estimator: `StructuralEmbedding().fit(X).transform(X)`, for vectors and for images."""

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sao.config import Config, build, load_preset
from sao.config.auto import choose_options
from sao.config.overrides import rename
from sao.core.agreement import check_finite
from sao.data.dataset import LARGEST_VALUE, Dataset, Images, Samples, Standardiser, Vectors
from sao.data.files.objects import holds_pictures, pictures_of
from sao.data.split import encode_labels
from sao.errors import InputError
from sao.evaluation.evaluator import Evaluation
from sao.evaluation.extract import BROKEN
from sao.evaluation.inputs import unit_rows
from sao.evaluation.kmeans import SphericalKMeans, best_kmeans
from sao.evaluation.manifold import Manifold, check_algorithm, manifold_clusters
from sao.evaluation.neighbours import majority, nearest
from sao.methods import FeatureName, Method
from sao.runtime.files import own_path, read_json, write_text, written
from sao.training import checkpoint
from sao.training import model as models
from sao.training.device import choose_device
from sao.training.log import OnLog
from sao.training.loop import Diverged
from sao.training.model import Model, check_feature
from sao.training.run_folder import DataFacts, Run
from sao.training.trainer import fit

SOURCE = "an array in memory"  # stands in a saved run where a path would
LENGTH_SCALE = 16.0
LOWER = 'set options={"method.discriminator_optimiser.learning_rate": …} lower'  # advice where a training diverged
VOTERS = 10  # training samples that are asked for the cluster of a new one
FACTS, ARRAYS = "estimator.json", "estimator.safetensors"


class StructuralEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Features and clusters learnt without labels by a discriminator, and a generator beside it.

    X is a table (n, d) of numbers, which is standardised, or square images (n, h, w[, c]) as uint8, 8 to 256 pixels a side.
    Images may also be a list of pictures or of paths, a data set of torch, torchvision or Hugging Face, or a table of pandas
    with a column of paths. Such images are cropped to squares and resized.

    Parameters
    ----------
    n_clusters : int, default=8
        Clusters of `predict`.
    steps : int or None, default=None
        Training steps; None chooses by the amount of data.
    feature : {"backbone", "embedding", "layers"} or None, default=None
        What `transform` returns: features of the backbone, unit embeddings as the objective sees them, or the features with the
        maps of every stage, averaged to 4x4 or 2x2. None: the last for photographs from 32 pixels a side on, else the first.
    manifold : {"spectral", "umap"} or None, default=None
        Clusters by k-means, or groups that neighbours connect, of whatever shape; "umap" needs sao[manifold]. The features
        of the training samples are then kept, because `predict` asks the nearest ones.
    options : dict or None, default=None
        Options of the configuration by their dotted names, for example {"train.batch": 64}; the rest is chosen to fit the data.
    device : str, default="auto"
        "cpu", "cuda", or an accelerator if there is one.
    random_state : int, RandomState instance or None, default=None
        The same integer gives the same model.
    verbose : bool, default=False
        Print what was chosen and why, and the progress.
    on_log : callable or None, default=None
        Called with each row of metrics, a dict of the step and the metrics. KeyboardInterrupt in it ends `fit` early; any other
        exception ends it without a model. It is not saved.

    Attributes
    ----------
    model_ : sao.Model
        The trained model.
    labels_ : ndarray of shape (n,)
        The clusters of the training samples.
    cluster_centers_ : ndarray of shape (n_clusters, n_features_out)
        Centroids of unit length; of a manifold, the mean directions of its groups.
    notes_ : list of str
        What was chosen for the data, and why.
    n_steps_ : int
        Steps made; fewer than asked for after an interrupt, which ends `fit` early and leaves a usable model.
    n_features_in_ : int
        Numbers in a sample of `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X had any.
    """

    feature_names_in_: np.ndarray

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        steps: int | None = None,
        feature: FeatureName | None = None,
        manifold: Manifold | None = None,
        options: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        on_log: OnLog | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.steps = steps
        self.feature: FeatureName | None = feature
        self.manifold: Manifold | None = manifold
        self.options = options
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.on_log = on_log

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from X; y is ignored. Ctrl-C ends the training early and keeps what was learnt."""
        if self.feature is not None:
            check_feature(self.feature)
        if self.manifold is not None:
            check_algorithm(self.manifold)
        x = self._checked(X, reset=True)
        clusters = self.n_clusters
        if not isinstance(clusters, int | np.integer) or not 1 <= clusters <= len(x):
            raise InputError(f"n_clusters={clusters!r} should be a whole number from 1 to n_samples={len(x)}")
        by_hand = self._by_hand()
        asked = load_preset("own", by_hand)
        samples, standardiser = self._prepared(x, asked.seed)
        config, self.notes_ = choose_options(asked, samples, by_hand.keys())
        self._use(self._trained(config, samples, standardiser))
        self.n_steps_ = self.model_.step
        self._find_clusters(self._features(samples), int(clusters), config.seed)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features (n, d): float64 for tables of float64, else float32."""
        check_is_fitted(self)
        x = self._checked(X, reset=False)
        return self._features(self.model_.samples(x)).astype(np.float64 if x.dtype == np.float64 else np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of the nearest centroid; of a manifold, that of most of the nearest training samples."""
        check_is_fitted(self)
        if not len(self._seen):
            return self._nearest(X)[0]
        queries, keys = (unit_rows(torch.from_numpy(rows)) for rows in (self._checked_features(X), self._seen))
        voters = nearest(queries, keys.to(queries.dtype), min(VOTERS, len(keys)))
        return majority(torch.from_numpy(self.labels_)[voters], len(self.cluster_centers_)).numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Mean cosine between the features of a sample and its nearest centroid, at most 1: how tight the clusters are.

        It knows nothing of labels: it compares seeds or numbers of clusters of one setting, not the worth of features.
        """
        return float(self._nearest(X)[1].mean())

    def evaluate(self, X: Any, y: Any = None) -> Evaluation:
        """The features beside the baselines, by the evaluator of `sao eval`; labels y are for this alone."""
        check_is_fitted(self)
        samples = self.model_.samples(self._checked(X, reset=False))
        if y is not None:
            labels = encode_labels(np.asarray(y))
            samples = replace(samples, labels=labels.codes, class_names=labels.names)
        return self.model_.evaluate(samples, self.model_.config.seed, self.feature, self.manifold or "spectral")

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> np.ndarray:
        """Generated samples in the form of X: uint8 images (n, h, w, c), or rows in their original units."""
        check_is_fitted(self)
        drawn = self.model_.sample(n_samples, seed=_drawn_seed(random_state))
        if (stored := self.model_.facts.standardiser) is None:
            return drawn
        rows = np.tile(self._means, (len(drawn), 1))  # columns that never varied keep their value
        rows[:, stored["kept"]] = drawn
        return rows

    # --- the two ways to keep a fitted estimator ---------------------------------------------------------------------

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write a run folder, which `load` reads, and `sao.load`, `sao embed`, `sao cluster` and `sao sample` too."""
        check_is_fitted(self)
        model = self.model_
        run = Run.create(Path(folder), model.config, model.facts, overwrite)
        checkpoint.save(run.checkpoints, model.method, model.step, keep=1)
        parameters = self.get_params() | {"on_log": None}
        if not isinstance(self.random_state, int | np.integer | None):  # a generator is no plain text; the seed it gave is
            parameters["random_state"] = model.config.seed
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        stored = {"parameters": parameters, "notes": self.notes_, "feature_names": names}
        write_text(run.folder / FACTS, json.dumps(stored, indent=1, default=_plain))
        arrays = {"centroids": self.cluster_centers_, "labels": self.labels_, "means": self._means, "seen": self._seen}
        with written(run.folder / ARRAYS) as temporary:
            save_file(arrays, temporary)
        return run.folder

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """What `save` wrote; nothing is unpickled."""
        folder = Path(folder)
        model = models.load(folder, device)
        try:
            stored = read_json(folder / FACTS)
            with own_path(folder / ARRAYS) as path:
                arrays = load_file(path)
            estimator = cls(**stored["parameters"] | {"device": device})
            estimator.notes_, names = list(stored["notes"]), stored["feature_names"]
            estimator.cluster_centers_, estimator.labels_ = arrays["centroids"], arrays["labels"]
            estimator._means, estimator._seen = arrays["means"], arrays.get("seen", np.zeros((0, 0)))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"{folder} holds no estimator, or a damaged one ({error}); sao.load reads any run") from None
        if names:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        facts = model.facts
        estimator.n_features_in_ = int(np.prod(facts.shape)) if facts.standardiser is None else facts.standardiser["width"]
        estimator.n_steps_ = model.step
        estimator._use(model)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Arrays and plain values, so that a pickle holds no live network."""
        plain: Any = super().__getstate__()
        state: dict[str, Any] = {name: value for name, value in plain.items() if name != "_exact"}
        if (model := state.pop("model_", None)) is not None:
            tensors = {name: value.cpu().numpy() for name, value in model.method.state_dict().items()}
            state["_stored"] = (model.config.model_dump(mode="json"), asdict(model.facts), tensors, model.step)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("_stored", None)
        super().__setstate__({"on_log": None} | state)  # version 0.2 had none
        if stored is not None:
            config, facts, tensors, step = stored
            rename(config, hint=False)  # a pickle may be of version 0.2
            config, facts = build(config), DataFacts(**facts)
            named = {checkpoint.current_name(name): torch.from_numpy(value) for name, value in tensors.items()}
            method = _built(config, facts, named)
            self._use(Model(config, facts, method.to(choose_device(self.device)), step))

    # --- parts -------------------------------------------------------------------------------------------------------

    def _by_hand(self) -> dict[str, str]:
        """The options that this object's parameters set, as the command line would."""
        if not isinstance(self.options, dict | None):
            raise InputError(f'options must be a dict such as {{"train.batch": 64}}, got {self.options!r}')
        options = {"data.source": SOURCE, "train.device": self.device, "seed": _drawn_seed(self.random_state)}
        if self.steps is not None:
            options["train.steps"] = self.steps
        by_name = self.options or {}
        if twice := by_name.keys() & options.keys():
            raise InputError(f"options holds {min(twice)}: set it by the parameters random_state, steps and device instead")
        options |= by_name
        return {key: value if isinstance(value, str) else json.dumps(value, default=_plain) for key, value in options.items()}

    def _checked(self, X: Any, reset: bool) -> np.ndarray:
        """Images as they are, or a finite matrix; either of the shape that was fitted."""
        fitted_shape = None if reset else self.model_.facts.shape
        if isinstance(X, torch.Tensor):
            X = X.detach().cpu().numpy()
        if holds_pictures(X):
            if fitted_shape is not None and len(fitted_shape) != 3:
                raise InputError("the estimator was fitted to a table, and these are images: give rows of numbers")
            X = pictures_of(X, fitted_shape)
        if len(fitted_shape or ()) != 3 and getattr(X, "ndim", 2) not in (3, 4):
            x: Any = validate_data(self, X, reset=reset, dtype=(np.float64, np.float32), ensure_min_samples=2 if reset else 1)
            if np.abs(x).max() > LARGEST_VALUE:
                raise InputError(f"X has values beyond {LARGEST_VALUE:g}, too large to compute with: scale them")
            return x
        x = np.asarray(X)
        if fitted_shape is not None:
            x = x[..., None] if x.ndim == 3 else x
            shape = (*fitted_shape[1:], fitted_shape[0])
            if x.dtype != np.uint8 or x.shape[1:] != shape:
                raise InputError(f"X must be as it was fitted, uint8 images {shape}, got {x.dtype} {x.shape[1:]}")
            return x
        if x.dtype != np.uint8 or len(x) < 2 or x.shape[1] != x.shape[2] or not 8 <= x.shape[1] <= 256 or 0 in x.shape:
            wanted = "images must be uint8 (n, h, w[, c]), at least 2, square with 8 to 256 pixels a side"
            raise InputError(f"{wanted}, got {x.dtype} {x.shape}")
        self.n_features_in_ = int(np.prod(x.shape[1:]))
        vars(self).pop("feature_names_in_", None)  # of an earlier fit to a table
        return x if x.ndim == 4 else x[..., None]

    def _prepared(self, x: np.ndarray, seed: int) -> tuple[Samples, Standardiser | None]:
        """What the network sees, and for vectors the transform that makes it so."""
        if x.ndim == 4:
            self._means = np.zeros(0)
            return Images(x), None
        names = getattr(self, "feature_names_in_", [f"column {i}" for i in range(x.shape[1])])
        rows = x.astype(np.float64)
        self._means = rows.mean(axis=0)
        standardiser = Standardiser.fit(rows, [str(name) for name in names], LENGTH_SCALE, seed)
        return Vectors(standardiser.apply(rows)), standardiser

    def _trained(self, config: Config, samples: Samples, standardiser: Standardiser | None) -> Model:
        for note in self.notes_ if self.verbose else []:
            print(note)
        about = None if standardiser is None else standardiser.to_dict()
        try:
            model = fit(config, Dataset(SOURCE, samples, samples), about, bool(self.verbose), self.on_log)
        except Diverged as error:
            raise Diverged(error.step, error.what, LOWER) from None
        total = config.steps_for(len(samples))
        if model.step < total:
            warnings.warn(f"interrupted after {model.step} of {total} steps; the model is usable as it is", stacklevel=3)
        return model

    def _use(self, model: Model) -> None:
        self.model_ = model
        self._exact = model.method
        if len(model.facts.shape) == 1:
            # In double precision the features of a row do not depend on which rows come with it, not even in the last digit
            # that scikit-learn compares; for vectors it costs next to nothing.
            self._exact = _built(model.config, model.facts, model.method.state_dict()).to(model.device).double().eval()

    @torch.no_grad()
    def _features(self, samples: Samples, chunk: int = 256) -> np.ndarray:
        function = self._exact.representation(self.feature or self.model_.usual_feature)
        precision = next(self._exact.parameters())
        parts = [function(samples.inputs(slice(i, i + chunk)).to(precision)) for i in range(0, len(samples), chunk)]
        found = torch.cat(parts).cpu().numpy()
        check_finite("the features", found, BROKEN)
        return found

    def _find_clusters(self, features: np.ndarray, k: int, seed: int) -> None:
        if self.manifold is None:
            found = best_kmeans(features, k, seed=seed)
            centroids, labels, self._seen = found.centroids, found.assign(features), np.zeros((0, 0))
        else:
            labels = manifold_clusters(features, k, self.manifold, seed)
            units = unit_rows(torch.from_numpy(features))
            centroids, self._seen = unit_rows(units.new_zeros(k, units.shape[1]).index_add_(0, labels, units)), features
        self.cluster_centers_, self.labels_ = centroids.numpy(), labels.numpy()

    def _checked_features(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._features(self.model_.samples(self._checked(X, reset=False)))

    def _nearest(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Cluster and cosine with its centroid."""
        features = self._checked_features(X)
        clusters, cosines = SphericalKMeans(torch.from_numpy(self.cluster_centers_), 0.0, 0).nearest(features)
        return clusters.numpy(), cosines.numpy()

    @property
    def _n_features_out(self) -> int:
        return self.cluster_centers_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.three_d_array = True
        return tags


def _built(config: Config, facts: DataFacts, tensors: dict[str, torch.Tensor]) -> Method:
    method = config.build_method(tuple(facts.shape), facts.samples, facts.classes)
    method.load_state_dict(tensors)
    return method


def _drawn_seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(value: Any) -> Any:
    """What JSON holds, of numbers from numpy."""
    return value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else str(value)
