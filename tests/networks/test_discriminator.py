from functools import partial

import pytest
import torch
from examples import DISCRIMINATORS, resnet
from torch import nn

from sao.methods.encoders import UNetOptions, ViTOptions
from sao.networks import (
    BigGANEncoder,
    Discriminator,
    EmbeddingHead,
    Generator,
    PlainResNet,
    ResNet,
    ScoreHead,
    VectorEncoder,
    VectorGenerator,
)
from sao.networks.self_conditioned import ClusterGenerator, ConvolutionalEncoder
from sao.networks.stylegan2 import StyleDiscriminator, StyleGenerator

ENCODERS = {
    "resnet": (lambda: ResNet(1, (4, 8), (1, 1), (False, True)), (1, 8, 8)),
    "biggan": (lambda: BigGANEncoder(1, 8), (1, 8, 8)),
    "vectors": (lambda: VectorEncoder(3, 16, 2), (3,)),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_it_is_an_encoder_and_the_head_behind_it(name):
    build, shape = ENCODERS[name]
    encoder = build().eval()
    head = EmbeddingHead(encoder.feature_size, 6)
    network, inputs = Discriminator(encoder, head), torch.rand(5, *shape)
    features, embeddings = network(inputs)
    assert features.shape == (5, encoder.feature_size)
    assert embeddings.shape == (5, 6)
    assert torch.equal(network.features(inputs), features)
    assert torch.equal(encoder(inputs), features)
    assert torch.equal(head(features), embeddings)


def test_features_are_made_without_the_head():
    encoder = VectorEncoder(3, 16, 2)
    network = Discriminator(encoder, nn.Linear(1, 1))  # does not fit
    assert network.features(torch.rand(5, 3)).shape == (5, 16)


def test_a_score_is_normalised_spectrally():
    """A linear map to one number has its length for a norm."""
    weight = ScoreHead(16).eval().output.weight
    assert float(torch.linalg.vector_norm(weight.detach())) == pytest.approx(1)


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_samples_never_interact(name):
    """In the paper's way of training too: nothing but the spectral estimate differs between training and evaluation mode."""
    network, batch = DISCRIMINATORS[name].network().eval(), DISCRIMINATORS[name].batch(3).requires_grad_()
    features, embeddings = network(batch)
    for found in (features, embeddings):
        (gradient,) = torch.autograd.grad(found[1].square().sum(), batch, retain_graph=True)
        assert gradient[1].abs().sum() > 0
        assert (gradient[[0, 2]] == 0).all()
    torch.testing.assert_close(network(batch[1:2]), (features[1:2], embeddings[1:2]))
    if "spectral" not in name and name != "biggan":
        torch.testing.assert_close(network.train()(batch), (features, embeddings))


def vit(size: int) -> nn.Module:
    return ViTOptions().build((3, size, size))


# Parameters; of the paper's networks as it rounds them, and of a transformer without the 384 numbers of each position.
PUBLISHED = {
    "resnet and head": (lambda: Discriminator(ResNet(), EmbeddingHead(512, 128)), pytest.approx(11.5e6, rel=0.01)),
    "generator": (Generator, pytest.approx(5.0e6, rel=0.02)),
    "biggan": (lambda: Discriminator(BigGANEncoder(3, 256), ScoreHead(256)), pytest.approx(4.2e6, rel=0.01)),
    "torchvision's resnet": (lambda: PlainResNet(large=True), 11_689_512 - 512 * 1000 - 1000),  # without its classifier
    "stylegan2's generator": (StyleGenerator, 19_947_539),
    "stylegan2's discriminator": (StyleDiscriminator, 20_720_641),
    "generator of clusters": (lambda: ClusterGenerator(100), 5_935_107),
    "convolutions and 100 clusters": (lambda: nn.Sequential(ConvolutionalEncoder(), nn.Linear(8192, 100)), 3_746_980),
    "unet": (lambda: UNetOptions().build((3, 32, 32)), 35_746_307),
    "vit": (lambda: vit(32), 21_338_496 - 65 * 384),
    "vit, large images": (lambda: vit(128), 21_467_520 - 257 * 384),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_the_published_size(name):
    build, size = PUBLISHED[name]
    with torch.device("meta"):
        assert sum(p.numel() for p in build().parameters()) == size


WRONG = [
    *((EmbeddingHead, {"inputs": 4, "outputs": 4} | {name: 0}, name) for name in ("inputs", "outputs")),
    *((partial(network, 2), {name: 0}, name) for network in (VectorEncoder, VectorGenerator) for name in ("width", "depth")),
    *((Generator, {"size": size}, "size") for size in (7, 257)),
    *((Generator, {name: 0}, name) for name in ("channels", "width", "depth", "latent_size")),
    *((network, {"widths": (8, 8)}, "widths") for network in (ResNet, PlainResNet)),
    *((network, {"blocks": (1, 1, 1, 0)}, "blocks") for network in (ResNet, PlainResNet)),
    (ResNet, {"channels": 0}, "channels"),
]


@pytest.mark.parametrize(("network", "options", "name"), WRONG)
def test_wrong_options_are_named(network, options, name):
    with pytest.raises(ValueError, match=f"^{name} "):
        network(**options)


WRONG_SHAPES = {
    "generator": (lambda: Generator(8, 1, 1, 1, 4), "latents ", [(0, 4), (4,), (2, 3), (2, 4, 1)]),
    "vectors": (lambda: VectorEncoder(3, 16, 1), "vectors ", [(0, 3), (3,), (2, 4)]),
    "generator of vectors": (lambda: VectorGenerator(3, 16, 1, 5), "latents ", [(0, 5), (5,), (2, 4), (1, 5)]),
    "resnet": (resnet, "images ", [(2, 1, 16, 16), (0, 3, 16, 16), (3, 16, 16), (2, 3, 16, 3), (2, 3, 3, 16)]),
    "vit": (
        lambda: ViTOptions(patch=2, width=8, depth=1, heads=2).build((1, 8, 8)),
        r"images must be \(n, 1, 8, 8\)",
        [(2, 3, 8, 8), (2, 1, 16, 16), (2, 1, 64)],
    ),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_wrong_inputs_are_named(name):
    """One latent alone is wrong where there are no other batch statistics to train with."""
    build, said, shapes = WRONG_SHAPES[name]
    for shape in shapes:
        with pytest.raises(ValueError, match=f"^{said}"):
            build()(torch.zeros(shape))
