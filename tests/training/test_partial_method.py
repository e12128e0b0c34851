"""To embed, only the part of a run comes into memory that is read: no generator, bank, raw network or optimiser."""

import numpy as np
import pytest
import tiny
import torch

import sao
from sao.methods import METHODS, FeatureName, generative
from sao.training import checkpoint
from sao.training.run_folder import DataFacts, Run


def run_of(folder, **options):
    settings = tiny.config(**options)
    run = Run.create(folder, settings, DataFacts.of(tiny.dataset()))
    method = tiny.method(**options)
    with torch.no_grad():
        for tensor in method.state_dict().values():
            if tensor.is_floating_point():
                tensor += 0.05
    checkpoint.save(run.checkpoints, method, 1, keep=1)
    return folder, method.eval()


def in_memory(method) -> set[str]:
    return {name for name, tensor in method.state_dict().items() if not tensor.is_meta}


@pytest.mark.parametrize("name", [name for name in tiny.METHODS if name in METHODS])
def test_every_method_embeds_and_generates_as_if_it_were_whole(name, tmp_path):
    folder, whole = run_of(tmp_path / "run", method=name)
    inputs = tiny.dataset().test.inputs(slice(0, 5))
    model = sao.load(folder, device="cpu")
    uses: list[FeatureName] = ["backbone", "embedding", "layers"]
    for use in uses if whole.has_layers else uses[:2]:
        found = model.method_for(use).representation(use)(inputs)
        torch.testing.assert_close(found, whole.representation(use)(inputs), rtol=1e-4, atol=1e-5)
    if (maker := generative(whole)) is not None:
        latents = torch.randn(3, *maker.latent_shape, generator=torch.Generator().manual_seed(0))
        found = generative(model.method_for("decode"))
        assert found is not None
        torch.testing.assert_close(found.decode(latents), maker.decode(latents))


def test_what_is_not_used_is_not_in_memory(tmp_path):
    folder, whole = run_of(tmp_path / "run")
    model = sao.load(folder, device="cpu")
    model.embed(tiny.dataset().test)
    method = model.method_for("backbone")
    encoder = {name for name in whole.state_dict() if name.startswith("ema_discriminator.network.encoder.")}
    assert encoder
    assert in_memory(method) == encoder
    assert method.optimisers == {}
    model.sample(2)
    assert in_memory(method) == encoder | {name for name in whole.state_dict() if name.startswith("ema_generator.")}
    assert not any(tensor.is_meta for tensor in model.method.state_dict().values())  # asked for as a whole, it is whole
    assert model.method.optimisers


def test_moments_are_not_even_looked_at(tmp_path):
    folder, _ = run_of(tmp_path / "run")
    (path,) = checkpoint.steps_in(folder / "checkpoints")
    (path / "optimisers.safetensors").unlink()
    assert sao.load(folder).embed(tiny.dataset().test).shape == (360, 8)


def test_raw_weights_take_the_place_of_their_ema(tmp_path):
    folder, whole = run_of(tmp_path / "run")
    with torch.no_grad():
        for parameter in whole.get_submodule("discriminator").parameters():
            parameter += 0.1
    checkpoint.save(folder / "checkpoints", whole, 2, keep=1)
    inputs = tiny.dataset().test.inputs(slice(0, 5))
    ema, raw = (sao.load(folder, weights=weights).embed(tiny.dataset().test)[:5] for weights in ("ema", "raw"))
    np.testing.assert_allclose(ema, whole.features(inputs), rtol=1e-4, atol=1e-5)
    whole.use_raw_weights()
    np.testing.assert_allclose(raw, whole.features(inputs), rtol=1e-4, atol=1e-5)
    assert np.abs(raw - ema).max() > 1e-2
