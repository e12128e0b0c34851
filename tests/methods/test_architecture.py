"""Which networks the options of encoders and generators build, and which optimisers those of methods."""

from typing import Any

import pytest
import tiny
import torch
from torch import nn

from sao.errors import InputError
from sao.methods import ENCODERS, METHODS
from sao.methods.encoders import GeneratorOptions, ResNetOptions, UNetOptions
from sao.methods.optimisers import AdamW
from sao.networks import PlainResNet, ResNet
from sao.networks.layers import ELU, ReLU


@pytest.mark.parametrize(
    ("norm", "activation", "network", "layer"),
    [
        ("group", None, ResNet, ELU),
        ("group", "relu", ResNet, ReLU),
        ("batch", None, PlainResNet, ReLU),
        ("batch", "elu", PlainResNet, ELU),
    ],
)
def test_norm_and_activation_choose_the_resnet(norm, activation, network, layer):
    encoder = ResNetOptions(widths=(4, 8), blocks=1, norm=norm, activation=activation).build((3, 16, 16))
    assert type(encoder) is network
    kinds = {type(module) for module in encoder.modules()} & {ELU, ReLU}
    assert kinds == {layer}
    assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 8)


def test_large_images_have_the_large_stem():
    small, large = (ResNetOptions(widths=(4, 8), norm="batch").build((3, size, size)) for size in (63, 64))
    assert isinstance(small, PlainResNet)
    assert isinstance(large, PlainResNet)
    assert (small.stem.kernel_size, large.stem.kernel_size) == ((3, 3), (7, 7))


def test_a_baseline_learns_with_batchnorm_and_a_discriminator_refuses_it():
    method = tiny.method(method="supervised", encoder__norm="batch")
    assert all(bool(value.isfinite()) for value in method.step(tiny.batch(), 0).values())
    for name in ("structural", "hinge"):
        with pytest.raises(InputError, match=r"encoder\.norm batch"):
            tiny.method(method=name, encoder__norm="batch")


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_patches_make_a_smaller_image_of_more_channels(norm):
    encoder = ResNetOptions(widths=(4, 8), blocks=1, norm=norm, patch=2).build((3, 16, 16))
    assert encoder.get_submodule("stem").in_channels == 12
    assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, 8)
    with pytest.raises(InputError, match=r"patches of 3x3 do not divide images of 16x16: set --encoder\.patch or --data\.size"):
        ResNetOptions(norm=norm, patch=3).build((3, 16, 16))


def test_falling_channels_are_those_of_images():
    plain, falling = (GeneratorOptions(width=8, depth=1, falling=falls).build((1, 16, 16)) for falls in (False, True))
    assert sum(map(torch.numel, falling.parameters())) < sum(map(torch.numel, plain.parameters()))
    with pytest.raises(InputError, match=r"method\.generator\.falling is for images"):
        GeneratorOptions(falling=True).build((7,))


def test_images_that_cannot_be_halved_at_all_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"images of 9x9 cannot be halved 1 times: set --encoder\.multipliers or --data\.size"):
        UNetOptions(channels=4).build((1, 9, 9))


def test_the_network_of_a_diffusion_model_is_for_it_and_for_the_untrained_control_alone():
    assert [name for name, options in METHODS.items() if options.can_use(UNetOptions)] == ["ddpm", "random"]


# Another value for every option of a network, beside small ones.
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "resnet": (
        {"widths": (4, 8), "blocks": 1},
        {"widths": (4, 12), "blocks": 2, "norm": "batch", "patch": 2, "activation": "relu", "start": "patches"},
    ),
    "perceptron": ({"width": 8, "depth": 1}, {"width": 12, "depth": 2}),
    "biggan": ({"width": 8}, {"width": 12}),
    "vit": ({"width": 8, "depth": 1, "heads": 2}, {"width": 16, "depth": 2, "heads": 4, "patch": 8}),
    "unet": (
        {"channels": 4, "blocks": 1},
        {"channels": 8, "blocks": 2, "multipliers": (1, 3), "attention": (8,), "dropout": 0.5},
    ),
    "timm": ({"model": "resnet10t"}, {"model": "resnet14t"}),
    "generator": ({"width": 4, "depth": 1, "latent_size": 8}, {"width": 8, "depth": 2, "latent_size": 12, "falling": True}),
}


def anatomy(network: nn.Module) -> dict[str, Any]:
    """What a network is made of: plain numbers of each layer, and the shape of each weight."""
    plain = {name: vars(module).items() for name, module in network.named_modules()}
    kept = {f"{name}.{key}": value for name, own in plain.items() for key, value in own if isinstance(value, int | float | str)}
    kinds = {name: type(module).__name__ for name, module in network.named_modules()}
    return kept | kinds | {f"shape of {name}": value.shape for name, value in network.state_dict().items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_option_of_a_network_builds_another_one(name):
    small, other = NETWORKS[name]
    kind = {**ENCODERS, "generator": GeneratorOptions}[name]
    assert other.keys() == kind.model_fields.keys() - {"name"}
    shapes = [(6,)] if name == "perceptron" else [(1, 16, 16)]
    shapes += [(6,)] if name == "generator" else []
    for shape in shapes:
        plain = anatomy(kind(**small).build(shape))
        assert anatomy(kind(**small).build(shape)) == plain
        for key, value in other.items():
            if (key, len(shape)) != ("falling", 1):  # which is for images
                assert anatomy(kind(**small | {key: value}).build(shape)) != plain, key


def test_no_encoder_is_left_out():
    assert NETWORKS.keys() == ENCODERS.keys() | {"generator"}


OPTIMISERS = [
    (name, field)
    for name, options in METHODS.items()
    for field, described in options.model_fields.items()
    if isinstance(described.default, AdamW)
]


@pytest.mark.parametrize(("name", "field"), OPTIMISERS)
def test_an_option_of_an_optimiser_reaches_the_one_that_it_names(name, field):
    def numbers(**options: Any) -> dict[str, list[dict[str, Any]]]:
        method = tiny.method(method=name, **options)
        every = {key: {id(weight) for weight in network.parameters()} for key, network in method.named_children()}
        for player, optimiser in method.optimisers.items():
            own = {id(weight) for group in optimiser.param_groups for weight in group["params"]}
            assert own, player
            assert player not in every or own >= every[player]
        return {
            player: [{key: value for key, value in group.items() if key != "params"} for group in optimiser.param_groups]
            for player, optimiser in method.optimisers.items()
        }

    plain = numbers()
    named = field.removesuffix("_optimiser")
    expected = {named} if named in plain else set(plain)
    assert len(expected) == 1
    for key, value in (("learning_rate", "0.0123"), ("weight_decay", "0.045"), ("betas", "[0.3, 0.6]")):
        changed = numbers(**{f"method__{field}__{key}": value})
        assert {player for player in plain if changed[player] != plain[player]} == expected
