"""Networks of timm and of the reader's own as encoders: who takes which, and why not."""

import numpy as np
import outside as files
import pytest
import tiny
import torch

import sao
from sao.config import load_preset, outside
from sao.config.auto import choose_options
from sao.data.dataset import Images
from sao.errors import InputError
from sao.methods import METHODS, Batch
from sao.networks.any_module import ModuleEncoder
from sao.training.validation import validate

IMAGES = (3, 32, 32)


def config(method: str, **encoder: str):
    small = {name: value for name, value in tiny.METHODS[method].items() if not name.startswith("encoder")}
    options = tiny.OPTIONS | small | {"method": method} | {key.replace("__", "."): value for key, value in encoder.items()}
    return load_preset("digits", options)


@pytest.fixture
def own(tmp_path) -> str:
    return f"{files.write(tmp_path, files.ENCODER)}:Options"


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_networks_of_timm_train_with_fresh_weights(name):
    method = config("vicreg", encoder=f"timm:{name}").build_method(IMAGES, 100, None)
    images = torch.randn(2, *IMAGES)
    assert method.features(images).shape == (2, method.get_submodule("network.encoder").feature_size)
    again = config("vicreg", encoder=f"timm:{name}").build_method(IMAGES, 100, None)
    assert torch.equal(method.features(images), again.features(images))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet18", "with BatchNorm2d samples of a batch interact.*timm:convnext_atto"),
        ("resnet_18", "has no network 'resnet_18'"),
    ],
)
def test_a_discriminator_refuses_networks_of_timm_with_the_reason(name, said):
    with pytest.raises(InputError, match=said):
        config("structural", encoder=f"timm:{name}").build_method(IMAGES, 100, None)


def test_a_network_of_timm_without_batchnorm_is_regularised():
    method = config("structural", encoder="timm:convnext_atto").build_method(IMAGES, 100, None)
    batch = Batch(torch.rand(16, *IMAGES), torch.arange(16))
    assert float(method.training_step(batch, 0)["discriminator/smoothness"]) > 0


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("batchnorm", "with BatchNorm2d samples of a batch interact"),
        ("dropout", "Dropout draws at random"),
        ("mixes", "depends on the other samples"),
        ("once", "cannot be differentiated"),
    ],
)
def test_what_a_discriminator_cannot_be_other_methods_take(kind, said, own):
    with pytest.raises(InputError, match=said):
        config("structural", encoder=own, encoder__kind=kind).build_method((1, 8, 8), 100, None)
    for name in ("vicreg", "random"):
        method = config(name, encoder=own, encoder__kind=kind).build_method((1, 8, 8), 100, None)
        assert method.features(torch.rand(3, 1, 8, 8)).shape == (3, 8)
        found = validate(method, tiny.few())
        assert ("eval/jacobian_norm_q50" in found) == (kind != "once")


@pytest.mark.parametrize("kind", ["plain", "reverse"])
def test_a_module_of_the_readers_own_is_regularised_without_forward_mode_too(kind, own, tmp_path):
    settings = tiny.OPTIONS | tiny.METHODS["structural"] | {"train.steps": "2", "encoder.kind": kind}
    settings = {name: value for name, value in settings.items() if name != "encoder.widths"}
    model = sao.train("digits", tmp_path / "run", options=settings, encoder=own)
    assert isinstance(model.method.get_submodule("discriminator.encoder"), ModuleEncoder)
    assert model.config.encoder is not None
    assert model.config.encoder.model_dump() == {"name": "convnet", "width": 8, "patch": 1, "kind": kind}
    features = model.embed(tiny.dataset().test)
    outside.forget()
    with pytest.raises(InputError, match=r"mine\.py:Options \(encoder convnet\)"):
        sao.load(tmp_path / "run")
    outside.use_file(own.removesuffix(":Options"))
    assert (sao.load(tmp_path / "run").embed(tiny.dataset().test) == features).all()


def test_a_network_that_gives_no_features_is_one_line(own):
    with pytest.raises(InputError, match=r"encoder convnet does not take samples of 1x8x8: .*got \(2, 8, 16\)"):
        config("vicreg", encoder=own, encoder__kind="tokens").build_method((1, 8, 8), 100, None)


def test_a_live_module_is_refused_with_what_to_give_instead(tmp_path):
    with pytest.raises(InputError, match="got Sequential: a run builds its networks again, so give options that do"):
        sao.train("digits", tmp_path / "run", encoder=torch.nn.Sequential())  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()


def test_batchnorm_of_torch_trains_in_one_process(own, monkeypatch):
    monkeypatch.setattr("sao.core.distributed.world_size", lambda: 2)
    with pytest.raises(InputError, match="has BatchNorm2d, whose moments would be of one process's rows: train in one process"):
        config("vicreg", encoder=own, encoder__kind="batchnorm").build_method((1, 8, 8), 100, None)


def test_options_of_an_own_encoder_are_not_chosen_for_the_data(own):
    images = Images(np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8))
    chosen, _ = choose_options(load_preset("own", {"encoder": own, "train.device": "cpu"}), images, {"encoder"})
    assert chosen.encoder is not None
    assert chosen.encoder.model_dump()["patch"] == 1


def test_every_method_without_encoders_of_its_own_takes_timm():
    names = {name for name, options in METHODS.items() if options.encoders is None}
    assert {"structural", "vicreg", "simclr", "supervised"} <= names
    assert all(config(name, encoder="timm:resnet18").encoder for name in ("vicreg", "simclr", "supervised"))
