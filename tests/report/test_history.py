"""What a page says of the time before it."""

import pytest
import tiny

from sao.report.history import curves, described
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


def test_a_curve_holds_the_values_of_its_own_name_at_their_steps():
    rows = [
        {"step": step, "generator/distance": step / 10, "discriminator/distance": -step, "time/seconds": 9.0}
        | ({"eval/knn5_n40": 0.125 * step, "eval/jacobian_norm_q05": 0.5, "eval/jacobian_norm_q95": 2.0} if step > 2 else {})
        for step in (2, 4, 6)
    ]
    found = {chart["title"]: {one["name"]: (one["steps"], one["values"]) for one in chart["series"]} for chart in curves(rows)}
    assert found == {
        "Losses of the generator": {"distance": ([2, 4, 6], [0.2, 0.4, 0.6])},
        "Losses of the discriminator": {"distance": ([2, 4, 6], [-2, -4, -6])},
        "Accuracy on 40 held-out samples": {"5 neighbours": ([4, 6], [0.5, 0.75])},
        "Jacobian norm σ of held-out samples": {"5 %": ([4, 6], [0.5, 0.5]), "95 %": ([4, 6], [2.0, 2.0])},
    }
