"""GenRep: whole steps against a slow reference, its pairs of latents, and what it takes of the run of a generator."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import generative
import pytest
import tiny
import torch
from product import gradients_before_updates, stock, unsettle
from reference_baselines import SGD, TwoViews, nt_xent
from reference_step import EMA, AdamW
from scipy.stats import truncnorm
from test_structural_step import assert_alike
from torch import Tensor

from sao.cli.main import main
from sao.core.random import uniform
from sao.data.augmentation import Augmentation
from sao.errors import InputError
from sao.methods import METHODS, Batch, OtherRun
from sao.methods import generative as generative_of
from sao.methods.genrep import GenRep, recorded, truncated_rows
from sao.methods.structural import Structural
from sao.training import checkpoint
from sao.training.model import load

SEED, BATCH, LATENT, SHAPE = generative.SEED, 6, 8, (1, 8, 8)
OPTIMISER = {"learning_rate": 3e-3, "betas": (0.4, 0.9), "weight_decay": 0.2}
OWN = {"temperature": 0.3, "base_temperature": 0.5, "distance": 0.4, "truncation": 1.5, "ema_decay": 0.8}
GENERATING = [name for name, options in METHODS.items() if options.generates]


def built(kind: str = "adamw", **own: Any) -> GenRep:
    small = {"source": json.dumps(tiny.SOURCE), "hidden_size": 16, "projection_size": 8}
    options = {**small, **OWN, "optimiser": {**OPTIMISER, "kind": kind}, **own}
    encoder = {"name": "resnet", "widths": [4, 8], "blocks": 1}
    return generative.built(GenRep, SHAPE, 100, BATCH, encoder, name="genrep", **options)


new_method = partial(tiny.method_of, GenRep, method="genrep")


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"view": {"flip": True, "crop": 0.5}, "second_view": {"flip": True, "solarise": 0.5}},
        {"truncation": None, "ema_decay": None},
        {"pairs": 13},  # two batches and a rest, so that the third step sees the first pairs again
        {"kind": "sgd"},
    ],
    ids=["latents alone", "augmented", "not truncated", "few pairs", "sgd"],
)
def test_steps_are_those_of_the_reference(own):
    method = built(**own)
    generator = stock(method.source.get_submodule("ema_generator.network")).eval()
    ema = None if method.ema_network is None else EMA(stock(method.ema_network.network), 0.8)
    moved_by = SGD(3e-3, 0.2) if own.get("kind") == "sgd" else AdamW(**OPTIMISER)
    expected = TwoViews(stock(method.network), ema, moved_by, lambda a, b: {"nt_xent": 0.3 / 0.5 * nt_xent(a, b, 0.3)})
    for number in range(3):
        pairs = number % 2 if "pairs" in own else number
        latents = (
            cut("latents", pairs, 1.5) if own.get("truncation", 1.5) else generative.drawn("latents", pairs, BATCH, LATENT)
        )
        adjacent = latents + 0.4 * cut("differences", pairs, 2.0)
        changes = own.get("view", {}), own.get("second_view", own.get("view", {}))
        views = [
            Augmentation(**change)(generator(z), SEED, f"view {index}", number, BATCH)
            for index, (z, change) in enumerate(zip((latents, adjacent), changes, strict=True))
        ]
        with gradients_before_updates(method, {"": method.network}) as gradients:
            scalars = method.step(Batch(torch.zeros(BATCH, *SHAPE, dtype=torch.float64), torch.arange(BATCH)), number)
        assert_alike(scalars, expected.step(*views), f"step {number}, logged")
        assert_alike(gradients, expected.gradients, f"step {number}, gradients")
        assert_alike(dict(method.network.state_dict()), dict(expected.network.state_dict()), f"step {number}", rtol=1e-8)
    if ema is not None:
        assert method.ema_network is not None
        found = method.ema_network.network.state_dict()
        assert_alike(dict(found), dict(ema.network.state_dict()), "ema", rtol=1e-8)


def cut(purpose: str, number: int, limit: float) -> Tensor:
    """The same part of another library's distribution, at the level that the row's draw says."""
    levels = uniform(SEED, purpose, number, slice(0, BATCH), (LATENT,), "cpu").double().numpy()
    return torch.from_numpy(truncnorm.ppf(levels, -limit, limit))


def test_latents_and_differences_keep_within_their_limits():
    like = torch.zeros(1, dtype=torch.float64)
    draws = truncated_rows((50,), 2000, 0, "latents", 0, like, 2.0)
    assert float(draws.abs().max()) <= 2
    assert float(draws.std()) == pytest.approx(truncnorm.std(-2, 2), abs=0.01)
    assert float(draws.mean()) == pytest.approx(0, abs=0.01)


def test_adjacent_latents_make_images_that_are_nearer_than_others():
    method = new_method(method__distance=0.05, method__truncation=2)
    one, other = (method.view(index, tiny.batch().inputs, 0) for index in range(2))
    within, between = (one - other).flatten(1).norm(dim=1), (one - one.roll(1, 0)).flatten(1).norm(dim=1)
    assert 0 < float(within.mean()) < 0.3 * float(between.mean())


def test_the_data_is_not_looked_at_and_the_generator_does_not_learn():
    one, other = new_method(), new_method()
    before = {name: value.clone() for name, value in one.source.state_dict().items()}
    batch = tiny.batch()
    assert one.step(batch, 3)["network/nt_xent"] == other.step(Batch(-batch.inputs, batch.rows), 3)["network/nt_xent"]
    assert all(torch.equal(value, before[name]) for name, value in one.source.state_dict().items())
    assert not any(p.requires_grad for p in one.source.parameters())
    assert one.step(batch, 4)["network/nt_xent"] != other.step(batch, 5)["network/nt_xent"]


def test_it_learns_to_find_the_adjacent_image():
    method = new_method(train__batch=32, encoder__widths="[16, 32]", method__optimiser__learning_rate=3e-3)
    losses = [float(method.step(tiny.batch(step, 32), step)["network/nt_xent"]) for step in range(60)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


@pytest.mark.parametrize("name", GENERATING)
def test_the_generator_of_every_run_that_generates_is_taken_over(name):
    """What is left of its method is enough to make the same images."""
    config = tiny.config(method=name, seed=3)
    other = tiny.method(method=name, seed=3)
    unsettle(other)
    tiny.make_steps(other, 0, 2)
    maker = generative_of(other)
    assert maker is not None
    latents = torch.randn(3, *maker.latent_shape, generator=torch.Generator().manual_seed(0))
    expected, size = maker.decode(latents), len(other.state_dict())
    described = OtherRun("runs/x", config.method, config.encoder, config.seed)
    method = new_method(method__source=recorded(described), method__generator="runs/x")
    method.begin(lambda folder: (other, 2))
    torch.testing.assert_close(method.source.decode(latents), expected, rtol=0, atol=0)
    assert int(method.source_step) == 2
    assert len(method.source.state_dict()) < size


# --- the run of the generator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    run, _ = tiny.trained(tmp_path_factory.mktemp("other") / "gan")
    return run.folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def words(out: Path, generator: Path | None, **options: Any) -> list[str]:
    named = {"method__source": ""} if generator is None else {"method__generator": generator}
    chosen = tiny.words(method="genrep", train__steps=6, log__keep=9, **named, **options)
    return ["train", "digits", *chosen, "--out", str(out)]


@pytest.fixture(scope="module")
def own(other, tmp_path_factory) -> Path:
    """A whole run, with a generator that has been removed since."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(other, folder / "gan")
    before = contents(folder / "gan")
    assert main(words(folder / "genrep", folder / "gan")) == 0
    assert contents(folder / "gan") == before, "the other run is only read"
    shutil.rmtree(folder / "gan")
    return folder / "genrep"


def test_a_run_goes_on_after_it_was_moved_and_the_other_is_gone(own, other, tmp_path):
    whole = load(own)
    assert isinstance(whole.method, GenRep)
    assert whole.config.model_dump()["method"]["generator"] == str(own.parent / "gan")
    assert int(whole.method.source_step) == 8
    made_there = load(other).method
    assert isinstance(made_there, Structural)
    taken = whole.method.source.get_submodule("ema_generator").state_dict()
    torch.testing.assert_close(taken, made_there.ema_generator.state_dict(), rtol=0, atol=0)
    moved = shutil.copytree(own, tmp_path / "elsewhere")
    shutil.rmtree(checkpoint.steps_in(moved / "checkpoints")[-1])
    rows = tiny.rows(moved)
    assert main(["resume", str(moved)]) == 0
    assert tiny.rows(moved) == rows
    again = load(moved).method.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.method.state_dict().items())


def test_killed_before_its_first_checkpoint_it_begins_again(own, other, tmp_path, capsys):
    out = shutil.copytree(own, tmp_path / "genrep")
    rows = tiny.rows(out)
    shutil.rmtree(out / "checkpoints")
    capsys.readouterr()
    assert main(["resume", str(out)]) == 2
    assert "gan is not a run" in capsys.readouterr().err
    assert main(["resume", str(out), "--method.generator", str(other)]) == 0
    assert tiny.rows(out) == rows


def test_a_dry_run_prices_it(other, tmp_path, capsys):
    assert main([*words(tmp_path / "genrep", other), "--dry-run"]) == 0
    assert "whole run   6 steps" in capsys.readouterr().out


@pytest.fixture(scope="module")
def silent(tmp_path_factory) -> Path:
    run, _ = tiny.trained(tmp_path_factory.mktemp("silent") / "run", method="random", train__steps=1)
    return run.folder


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["train", "dry run"])
@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("none", "set --method.generator to the folder of its run"),
        ("nowhere", "nowhere is not a run"),
        ("silent", "a run of method random, which makes no samples"),
        ("itself", "of method genrep, which makes no samples"),
    ],
)
def test_a_run_that_cannot_be_used_is_one_line_and_nothing_is_written(which, said, dry, own, silent, tmp_path, capsys):
    generator = {"none": None, "nowhere": tmp_path / "nowhere", "silent": silent, "itself": own}[which]
    capsys.readouterr()
    out = tmp_path / "out"
    assert said in tiny.refused(capsys, *words(out, generator), *dry)
    assert not out.exists()


def test_images_of_another_size_are_refused_before_anything_is_written(other, tmp_path, capsys):
    assert "makes images of 1x8x8 and the data has 1x16x16" in tiny.refused(
        capsys, *words(tmp_path / "out", other), "--data.size", "16"
    )
    assert not (tmp_path / "out").exists()


def test_a_generator_that_was_exchanged_meanwhile_is_refused(other):
    method = new_method(method__generator=other, method__source=json.dumps(tiny.SOURCE))
    wider = tiny.method(method__generator__width=8)
    with pytest.raises(InputError, match="another generator than when the options were read"):
        method.begin(lambda folder: (wider, 1))
