import pytest
import torch
from torch import nn

from sao.networks import BigGANEncoder, Discriminator, EmbeddingHead, ResNet, ScoreHead, VectorEncoder

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
    assert features.shape == (5, network.feature_size)
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


@pytest.mark.parametrize(("inputs", "outputs", "name"), [(0, 4, "inputs"), (4, 0, "outputs")])
def test_wrong_sizes_are_named(inputs, outputs, name):
    with pytest.raises(ValueError, match=f"^{name} "):
        EmbeddingHead(inputs, outputs)
