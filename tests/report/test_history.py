"""What a page says of the time before it."""

import pytest
import tiny

from sao.report.history import described
from sao.training.run_folder import DataFacts


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([20, 50], "in 50s"),
        ([60, 125], "in 2m 05s"),
        ([60, 120, 30, 90], "in 3m 30s"),  # resumed: the clock begins anew
        ([60, 120, 130], "in 2m 10s"),
        ([100, 10, 20, 5], "in 2m 05s"),  # twice
    ],
)
def test_the_time_of_a_run_is_that_of_all_its_parts(seconds, said):
    rows = [{"step": step, "time/seconds": float(clock)} for step, clock in enumerate(seconds, 1)]
    sentences = described(tiny.config(), DataFacts.of(tiny.dataset()), 8, None, [*rows, {"step": 9}], needs_labels=False)
    assert f"passes over the data, {said}." in " ".join(sentences)
