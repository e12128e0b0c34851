"""One step of training: which rows, what the method is given of them."""

from sao.core import distributed
from sao.core.random import batch_rows
from sao.data.loader import Batches
from sao.methods import Batch, Method
from sao.methods.base import Scalars


def make_step(method: Method, batches: Batches, seed: int, global_batch: int, step: int) -> Scalars:
    """A training step on this process's rows of the batch of a step; those of the next are read meanwhile."""
    places = distributed.local_slice(global_batch)
    rows = batch_rows(seed, step, global_batch, len(batches))[places]
    labels = batches.labels(rows) if method.needs_labels else None
    method.refresh(batches, step)
    batch = Batch(batches.training_inputs(rows, seed, step, places), rows.to(batches.device), labels)
    if not batches.resident:
        batches.prefetch(batch_rows(seed, step + 1, global_batch, len(batches))[places])
    return method.training_step(batch, step)
