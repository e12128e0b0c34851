"""What every method promises the engine: a step depends on nothing hidden, and a run goes on where it stopped."""

from pathlib import Path

import pytest
import tiny
import torch

from sao.methods import METHODS
from sao.training import checkpoint

LEARNING = [name for name in METHODS if name != "random"]
VIEW_LEARNERS = ("simclr", "vicreg", "byol", "nnclr", "swav", "dino")
# So that in the resumed part something begins that the first part was without.
LATER = {
    "swav": {"method__frozen_epochs": 4 / 89, "method__queue_epochs": 0},
    "dino": {"method__frozen_epochs": 4 / 89},
    "self_conditioned": {"method__recluster_every": 2},
}


def equal(state, other) -> bool:
    return state.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in state.items())


@pytest.mark.parametrize("name", LEARNING)
def test_a_step_is_a_function_of_state_batch_and_step(name):
    found = []
    for seed, step in ((1, 5), (2, 5), (1, 6)):
        method = tiny.method(method=name)
        torch.manual_seed(seed)  # of which no step may take a number
        method.step(tiny.batch(), step)
        found.append(method.state_dict())
    assert equal(found[0], found[1])
    if name != "supervised":  # which draws nothing without augmentation
        assert not equal(found[0], found[2])


@pytest.mark.parametrize(
    ("name", "optimiser"), [*((name, None) for name in LEARNING), *((name, "lars") for name in VIEW_LEARNERS)]
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(name, optimiser, tmp_path: Path):
    options = {"method": name, **LATER.get(name, {})}
    if optimiser:
        options["method__optimiser__kind"] = optimiser
    assert_resumed_is_equal(tmp_path, options)


def test_a_run_with_all_options_for_photographs_resumes_bit_equal(tmp_path: Path):
    """The warm-up ends, and a penalty is made, in the resumed part."""
    options = {
        "method": "structural",
        "encoder__start": "patches",
        "method__cluster_warmup": 5,
        "method__lazy": "true",
        "method__smooth_every": 2,
        "method__local_weight": 0.5,
        "method__local_cluster_weight": 0.7,
        "method__local_size": 4,
        "method__micro_batch": 12,
    }
    assert_resumed_is_equal(tmp_path, options)


def assert_resumed_is_equal(tmp_path: Path, options) -> None:
    """Stopped after 3 of 6 steps."""
    options = {"train__steps": 6, "train__schedule": "cosine", **options}
    run, expected = tiny.trained(tmp_path / "run", **options, log__keep=9)
    third, sixth = checkpoint.steps_in(run.checkpoints)
    sixth.rename(tmp_path / "sixth")
    resumed = tiny.method(**options)
    first = checkpoint.load_latest(run.checkpoints, resumed, print)
    assert (third.name[-1], first) == ("3", 3)
    tiny.go_on(run, run.config, tiny.dataset(), resumed, first)
    rows = tiny.rows(run.folder)
    assert rows[3:6] == rows[6:]
    assert len(list(run.samples.glob("*.png"))) == METHODS[options["method"]].generates  # one grid, drawn twice
    assert equal(expected.state_dict(), resumed.state_dict())
