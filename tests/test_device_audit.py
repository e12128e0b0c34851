"""One whole step of every method, and every other use of it, on a device that is no CPU: see device_audit."""

import json

import pytest
import tiny
import torch
from device_audit import BESIDE_THE_BATCH, META, HostRead, LeftBehind, audited, batch_of, built, fused_optimisers, moved

from sao.config import Config, build, load_preset
from sao.config.presets import preset_names
from sao.data.loader import Batches
from sao.evaluation.extract import extract
from sao.methods import METHODS, Batch, Method, generative
from sao.methods.supervised import Supervised
from sao.networks import layers
from sao.training.step import make_step

# What a preset trains on: shape of a sample, samples, classes.
DATA = {
    "digits": ((1, 8, 8), 1437, 10),
    "spirals": ((2,), 10_000, 2),
    "cifar10": ((3, 32, 32), 50_000, 10),
    "cifar100": ((3, 32, 32), 50_000, 100),
    "imagenet10": ((3, 128, 128), 13_000, 10),
    "imagenet100": ((3, 128, 128), 126_689, 100),
    "fashion_mnist": ((1, 28, 28), 60_000, 10),
}


def new_method(name: str, **options) -> Method:
    method = moved(tiny.method(method=name, **options))
    method.refresh = lambda data, step: None  # reads the data now and then, between steps
    return method


CASES: dict[str, dict[str, str]] = {name: {} for name in METHODS} | {
    "structural, one pass": {"method__one_pass": "true"},
    "structural, own keys": {"method__keys_from": "own"},
    "structural, one pass, zero sum": {"method__one_pass": "true", "method__smooth_every": "2", "method__norm_weight": "0"},
    "structural, local": {"method__local_weight": "1", "method__local_cluster_weight": "1", "method__micro_batch": "10"},
    "structural, local, one pass": {"method__local_weight": "1", "method__one_pass": "true"},
    "structural, norms of some": {"method__smooth_one_in": "5"},
    "structural, all augmented": {"method__augmentation__flip": "true", "method__augment_generated": "true"},
}
CASES |= {f"simclr, {kind}": {"method__optimiser__kind": kind} for kind in ("lars", "sgd")}  # those before are of AdamW


@pytest.mark.parametrize("name", CASES)
def test_a_step_never_waits_for_the_device(name):
    """As the engine makes it, from rows of the data to the updates; the second one finds the bank of the first."""
    method, batches = new_method(name.split(",")[0], **CASES[name]), Batches(tiny.dataset().train, META)
    with fused_optimisers(), audited(data=True) as audit:
        for step in range(2):
            scalars = make_step(method, batches, 0, 16, step)
    assert audit.copied <= 2 * (16 * 64 + BESIDE_THE_BATCH)
    assert audit.returned == 0
    state = [value for one in method.optimisers.values() for values in one.state.values() for value in values.values()]
    found = [*method.parameters(), *method.buffers(), *scalars.values(), *state]
    assert {value.device for value in found if isinstance(value, torch.Tensor)} == {META}


def test_a_batch_that_does_not_stay_on_the_device_travels_as_bytes():
    method, batches = new_method("supervised"), Batches(tiny.dataset().train, META, resident_bytes=0)
    with fused_optimisers(), audited(data=True) as audit:
        make_step(method, batches, 0, 16, 0)
    assert 16 * 64 <= audit.copied <= 16 * 64 + BESIDE_THE_BATCH


@pytest.mark.parametrize("name", METHODS)
def test_features_and_samples_never_wait_for_the_device(name):
    method, test = new_method(name).eval(), tiny.dataset().test
    inputs = batch_of((1, 8, 8), 16, False).inputs
    with audited() as audit:
        assert method.embeddings(inputs).device == META
        if (maker := generative(method)) is not None:
            assert maker.decode(torch.empty(5, *maker.latent_shape, device=META)).shape == (5, 1, 8, 8)
    assert audit.copied == 0
    with audited(results=True, data=True) as audit:
        found = extract(method.features, test, META)
    assert audit.copied <= len(test) * 64 + BESIDE_THE_BATCH
    assert audit.returned == found.nbytes


# --- at full size ----------------------------------------------------------------------------------------------------------


def full_step(config: Config, shape: tuple[int, ...], samples: int, classes: int | None) -> None:
    method = built(config, shape, samples, classes)
    batch = batch_of(shape, config.train.batch, method.needs_labels)
    with fused_optimisers(), audited() as audit:
        assert method.training_step(batch, 0)
    assert audit.copied == audit.returned == 0


def generator_of(preset: str) -> dict[str, str]:
    """What a run of another preset would be to a method that learns from its generator."""
    other = load_preset(preset).model_dump(mode="json")
    return {"method.source": json.dumps({name: other[name] for name in ("method", "encoder", "seed")})}


def of_preset(name: str) -> tuple[Config, tuple[int, ...], int, int]:
    config = load_preset(name, generator_of("bigbigan") if name == "genrep" else None)
    shape, samples, classes = DATA["imagenet10" if name == "own" else config.data.source]  # own images may be as large
    if config.data.size is not None:
        shape = (shape[0], config.data.size, config.data.size)
    return config, shape, samples, classes


def different_presets() -> list[str]:
    """One of each kind: CIFAR-100 has the networks of CIFAR-10."""
    kinds = {}
    for name in preset_names():
        config, shape, _, _ = of_preset(name)
        kinds.setdefault((config.method.model_dump_json(), str(config.encoder), shape), name)
    return list(kinds.values())


def without_preset() -> list[str]:
    """Methods that no preset has at full size; their defaults are it."""
    return [name for name in METHODS if name not in {load_preset(preset).method.name for preset in preset_names()}]


QUICK = ("cifar10", "digits", "byol")  # of the presets, so that every step is tried at full size by a few


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in different_presets()]
)
def test_every_preset_makes_its_step(name):
    full_step(*of_preset(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", without_preset())
def test_every_other_method_makes_its_step_with_the_networks_of_its_defaults(name):
    full_step(build({"method": {"name": name}}), *DATA["cifar10"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"method.micro_batch": "64"}, {"method.power_steps": "3", "method.smooth_every": "2"}])
def test_other_ways_through_the_papers_step(options):
    full_step(load_preset("cifar10", options), *DATA["cifar10"])


# --- the audit notices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (lambda batch: batch.inputs.mean().item(), (HostRead, RuntimeError)),
        (lambda batch: bool(batch.inputs.isfinite().all()), (HostRead, RuntimeError)),
        (lambda batch: batch.inputs[batch.inputs > 0], HostRead),
        (lambda batch: batch.inputs.cpu(), HostRead),
        (lambda batch: torch.linalg.cholesky(torch.eye(3, device=META)), HostRead),
        (lambda batch: batch.inputs + torch.zeros(8), LeftBehind),
        (lambda batch: torch.randn(16, 8), LeftBehind),
        (lambda batch: layers.elu(batch.inputs), AssertionError),
    ],
)
def test_a_deliberate_fault_in_a_step_is_found(fault, error, monkeypatch):
    step = Supervised.step

    def faulty(self: Supervised, batch: Batch, number: int):
        fault(batch)
        return step(self, batch, number)

    monkeypatch.setattr(Supervised, "step", faulty)
    method, batch = new_method("supervised"), batch_of((1, 8, 8), 16, True)
    with fused_optimisers(), audited(), pytest.raises(error):
        method.training_step(batch, 0)


def test_copies_are_counted():
    with audited(data=True) as audit:
        torch.zeros(1000).to(META)
        torch.tensor([1.0, 2.0], device=META)
        torch.empty(8, device=META).copy_(torch.zeros(8))
    assert audit.copied == 4000 + 8 + 32
