"""A training that broke gives no model, also where Ctrl-C ends it between two rows of the log."""

import signal

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from sao import StructuralEmbedding
from sao.methods.structural import Structural
from sao.training.loop import Diverged

ROWS = np.asarray(make_blobs(60, 4, centers=3, random_state=1)[0])


def breaks_a_term(method: Structural) -> None:
    method.health.look({"discriminator/distance": torch.tensor(torch.nan)})


def breaks_a_weight(method: Structural) -> None:
    with torch.no_grad():
        next(method.parameters()).fill_(torch.inf)


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (breaks_a_term, r"^step 3: discriminator/distance is NaN or inf; set options"),
        (breaks_a_weight, r"^step 3: .* became NaN or inf by the update; set options"),
    ],
)
@pytest.mark.parametrize("steps", [1000, 3])
def test_a_broken_training_is_refused_whether_it_is_interrupted_or_complete(breaks, said, steps, monkeypatch):
    """No row is logged before its end: nothing else looks at the numbers."""
    step = Structural.step

    def breaking(self, batch, number):
        scalars = step(self, batch, number)
        if number == 2:
            breaks(self)
            if steps > 3:
                signal.raise_signal(signal.SIGINT)  # as a person types it
        return scalars

    monkeypatch.setattr(Structural, "step", breaking)
    with pytest.raises(Diverged, match=said):
        StructuralEmbedding(3, steps=steps, options={"log.every": 1000}, random_state=0).fit(ROWS)
