"""Deep clustering by ClustPy, with its defaults and as many epochs as fit into a given time."""

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sao.data.dataset import Samples
from sao.evaluation.extract import raw_inputs
from sao.evaluation.manifold import UMAP_NEIGHBOURS
from sao.runtime.torchvision_import import import_torchvision

BATCH, EMBEDDING = 256, 10  # ClustPy's own, where its pieces are called one by one
MOST_EPOCHS = {**dict.fromkeys(("dec", "idec", "dcn", "vade"), (100, 150)), "n2d": (100, 0)}  # ClustPy's own
TRIED_ROWS = 6000
SHORT, LONG = (2, 3), (4, 6)  # epochs of the two trials whose difference is the time of an epoch

Epochs = tuple[int, int]  # of pretraining, and of clustering


@dataclass(frozen=True)
class Fitted:
    """What was learnt: features (n, d) of inputs, and the clusters (n,) that the method's own rule finds in them."""

    embed: Callable[[np.ndarray], np.ndarray]
    clusters: Callable[[np.ndarray], np.ndarray]


def inputs_of(samples: Samples) -> np.ndarray:
    """Pixels as rows of numbers from 0 to 1, which VaDE's likelihood asks for."""
    return raw_inputs(samples) / np.float32(255)


def epochs_within(seconds: float, name: str, inputs: np.ndarray, k: int) -> Epochs:
    """In ClustPy's own proportion, and at most its own numbers; from the time of two short trials on a part of the rows.

    The time is that of the processor, in this thread: whatever else runs beside them, a row gets the same share of work.
    """
    part = inputs[:TRIED_ROWS]

    def timed(epochs: Epochs) -> float:
        started = time.thread_time()
        fit(name, part, k, epochs, seed=0)
        return time.thread_time() - started

    timed(SHORT)  # what is imported and allocated once does not count
    longer = max(timed(LONG) - timed(SHORT), 1e-3)
    most = MOST_EPOCHS[name]
    more = [long - short if own else 0 for short, long, own in zip(SHORT, LONG, most, strict=True)]
    number = seconds / (longer / sum(more) * len(inputs) / len(part))
    pretraining, clustering = (min(own, max(1, int(number * own / sum(most)))) for own in most)
    return pretraining, clustering


def fit(name: str, inputs: np.ndarray, k: int, epochs: Epochs, seed: int) -> Fitted:
    """Train on inputs (n, d) from 0 to 1."""
    deep, device = _clustpy(), torch.device("cpu")
    deep.set_torch_seed(seed)  # get_trained_network has a random state and does not seed what it draws batches with
    with _quiet():
        if name == "n2d":
            network = deep.get_trained_network(
                data=inputs, n_epochs=epochs[0], batch_size=BATCH, optimizer_params={"lr": 1e-3}, embedding_size=EMBEDDING,
                device=device, random_state=seed,
            )  # fmt: skip
            return Fitted(network.transform, lambda scored: _on_manifold(network, scored, k, seed))
        kinds = {"dec": deep.DEC, "idec": deep.IDEC, "dcn": deep.DCN, "vade": deep.VaDE}
        pretraining, clustering = epochs
        fitted = kinds[name](
            n_clusters=k, pretrain_epochs=pretraining, clustering_epochs=clustering, device=device, random_state=seed
        ).fit(inputs)
    return Fitted(fitted.transform, fitted.predict)


def _on_manifold(network: Any, scored: np.ndarray, k: int, seed: int) -> np.ndarray:
    """N2D's second half: UMAP as in its paper, and a mixture of Gaussians, of the scored samples themselves."""
    with warnings.catch_warnings(action="ignore"), _quiet():  # there is no TensorFlow; a seeded run uses one thread
        from umap import UMAP  # pyright: ignore[reportMissingImports]

        manifold = {"n_components": k, "n_neighbors": UMAP_NEIGHBOURS, "min_dist": 0.0}
        cpu = torch.device("cpu")
        n2d = _clustpy().N2D(
            k, neural_network=network, manifold_class=UMAP, manifold_params=manifold, device=cpu, random_state=seed
        )
        return n2d.fit(scored).labels_


def _clustpy() -> Any:
    import_torchvision()  # ClustPy imports it, which fails beside the CPU build of torch
    import clustpy.deep  # pyright: ignore[reportMissingImports]

    return clustpy.deep


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without its bars, which would hide what the study says."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stderr(nowhere),
        contextlib.redirect_stdout(nowhere),
    ):
        yield
