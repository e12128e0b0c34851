"""What every method promises the engine: a step depends on nothing hidden, and a run goes on where it stopped."""

import json
from pathlib import Path

import pytest
import tiny
import torch

from sao.errors import InputError
from sao.methods import METHODS
from sao.training import checkpoint

LEARNING = [name for name in METHODS if name != "random"]
VIEW_METHODS = ("simclr", "vicreg", "byol", "nnclr", "swav", "dino")
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
    ("name", "optimiser"), [*((name, None) for name in LEARNING), *((name, "lars") for name in VIEW_METHODS)]
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


@pytest.mark.parametrize("name", ["bigbigan", "ddpm", "genrep", "mae", "self_conditioned", "stylegan2"])
def test_vectors_are_refused_by_methods_for_images(name):
    encoder = {"encoder": "perceptron"} if METHODS[name].encoders is None else {}
    with pytest.raises(InputError, match=f"method {name} is for images, and this data is vectors"):
        tiny.config(method=name, **encoder).build_method((7,), 100, None)


PATCHES = {"encoder__start": "patches"}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ddpm", {"encoder": "vit"}, "method ddpm cannot use encoder vit: set --encoder unet"),
        ("ddpm", {"method__feature_time": 0}, "feature_time"),
        ("ddpm", {"method__sampling_steps": 1001}, "sampling_steps"),
        ("ddpm", {"method__sampling_variance": "huge"}, "sampling_variance"),
        ("ddpm", {"encoder__multipliers": "[1]"}, "multipliers"),
        ("ddpm", {"encoder__multipliers": "[1, 1, 1, 1, 1]"}, "images of 8x8 cannot be halved 4 times"),
        ("ddpm", {"encoder__dropout": 1.0}, "dropout"),
        ("mae", {"encoder": "resnet"}, "method mae cannot use encoder resnet: set --encoder vit"),
        ("mae", {"method__ema_decay": 0.9}, "has no option ema_decay"),
        ("mae", {"method__mask": 1.0}, "mask"),
        ("mae", {"encoder__width": 6}, "width must be a multiple of 4 and of heads, got 6 with 2 heads"),
        ("mae", {"encoder__heads": 3}, "width must be a multiple of 4 and of heads, got 8 with 3 heads"),
        ("mae", {"method__decoder__heads": 3}, "method.decoder: width must be a multiple of 4 and of heads"),
        ("mae", {"encoder__patch": 3}, "patches of 3x3 do not divide images of 8x8"),
        ("mae", {"encoder__patch": 8}, "a single patch has nothing to be filled in from"),
        ("mae", {"encoder__patch": 1}, "patches of a single value"),
        ("genrep", {"method__source": "{}"}, "does not describe a run"),
        ("genrep", {"method__source": "[1"}, "does not describe a run"),
        ("genrep", {"method__source": json.dumps({**tiny.SOURCE, "method": {"name": "random"}})}, "makes no samples"),
        ("genrep", {"method__pairs": 15}, "method.pairs is 15 and a batch has 16"),
        ("structural", {**PATCHES, "method__spectral_normalisation": "true"}, "choose one of the two"),
        ("structural", {**PATCHES, "encoder__patch": 4}, "at least 12x12 pixels"),
        # Options that would have no effect.
        ("structural", {"method__augment_generated": True}, "augment_generated does nothing without an augmentation"),
        ("structural", {"method__generator_optimiser__kind": "lars"}, "kind"),
        ("hinge", {"method__bank": 64}, "structural has it"),
        ("simclr", {"method__micro_batch": 4}, "micro_batch"),
        ("simclr", {"method__generator__width": 4}, "generator"),
        ("simclr", {"encoder": "biggan"}, "cannot use encoder biggan"),
        ("simclr", {"method__momentum": 0.9}, "byol and dino have it"),
        ("byol", {"method__queue": 9}, "nnclr and swav have it"),
        ("byol", {"method__temperature": 0.1}, "has no option temperature"),
        ("nnclr", {"method__prototypes": 9}, "swav has it"),
        ("supervised", {"method__micro_batch": 4}, "micro_batch"),
        ("supervised", {"method__optimiser__kind": "lars"}, "kind"),
    ],
)
def test_what_cannot_be_built_is_refused(name, options, said):
    with pytest.raises(InputError, match=said):
        tiny.method(method=name, **options)
