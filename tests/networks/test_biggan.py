import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.networks import Generator
from sao.networks.biggan import Block, SelfAttention
from sao.networks.cpu import batchnorm as cpu_batchnorm
from sao.networks.cpu import portable


def attention_maps(network: Generator) -> list[tuple[int, ...]]:
    """Spatial sizes at which the network attends in one pass."""
    shapes: list[tuple[int, ...]] = []
    for module in network.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_hook(lambda m, inputs, outputs: shapes.append(tuple(outputs.shape[2:])))
    with torch.no_grad():
        network.eval()(torch.zeros(1, network.latent_size))
    return shapes


def test_the_papers_network_is_built_as_the_paper_says():
    network = Generator()
    assert not attention_maps(network)
    blocks = [m for m in network.blocks if isinstance(m, Block)]
    assert [b.upsample for b in blocks] == [False, True] * 3
    assert all(b.outputs == 512 and b.convolutions[0].out_channels == 128 for b in blocks)
    assert network.start == 4


def test_the_network_for_128_pixels_is_that_of_biggan_deep():
    """Channels 16 16 8 4 2 1 times the width over five doublings from 4x4, attention at 64x64."""
    network = Generator(128, 3, 4, 2, 8)
    blocks = [m for m in network.blocks if isinstance(m, Block)]
    assert [b.outputs for b in blocks] == [64, 64, 64, 32, 32, 16, 16, 8, 8, 4]
    assert [b.convolutions[0].in_channels for b in blocks] == [64, 64, 64, 64, 32, 32, 16, 16, 8, 8]
    assert attention_maps(network) == [(64, 64)]
    assert network.start == 4


@pytest.mark.parametrize(
    ("size", "maps"), [(32, []), (64, []), (96, []), (127, [(64, 64)]), (192, [(96, 96)]), (256, [(64, 64)])]
)
def test_attention_comes_once_between_64_pixels_and_the_image(size, maps):
    assert attention_maps(Generator(size, 1, 1, 1, 4)) == maps


@pytest.mark.parametrize("size", [8, 9, 12, 15, 16, 17, 28, 31, 32, 33, 48, 64, 65, 96, 128, 129, 255, 256])
@pytest.mark.parametrize("channels", [1, 5])
def test_any_size_and_channel_count(size, channels):
    network = Generator(size, channels, width=1, depth=1, latent_size=4)
    images = network(torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
    assert images.shape == (2, channels, size, size)
    assert images.abs().max() <= 1
    images.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize(("size", "outputs"), [(8, [8]), (16, [8, 4]), (32, [16, 8, 4]), (64, [64, 32, 16, 8])])
def test_channels_fall_as_the_image_grows(size, outputs):
    network = Generator(size, 1, 4, 1, 4, falling=True)
    assert [block.outputs for block in network.blocks if isinstance(block, Block)] == outputs
    assert network(torch.zeros(2, 4)).shape == (2, 1, size, size)


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (3, 3)])
def test_narrow_and_shallow_versions(width, depth):
    network = Generator(16, 3, width, depth, 4)
    assert len(network.blocks) == 2 * depth
    assert network(torch.zeros(2, 4)).shape == (2, 3, 16, 16)


def test_every_latent_makes_an_image_of_its_own():
    network = Generator(16, 3, 4, 2, 8).eval()
    latents = torch.randn(3, 8)
    images = network(latents)
    torch.testing.assert_close(network(latents[1:2]), images[1:2])
    assert (images[0] - images[1]).abs().max() > 1e-3


@pytest.mark.parametrize(("outputs", "upsample"), [(8, True), (5, True), (8, False), (3, False)])
def test_shortcut_keeps_the_first_channels_and_doubles_by_repetition(outputs, upsample):
    block, x = Block(8, outputs, 4, upsample), torch.randn(2, 8, 3, 3)
    for parameter in block.convolutions[-1].parameters():
        nn.init.zeros_(parameter)
    expected = x[:, :outputs]
    if upsample:
        expected = expected.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(block(x, torch.randn(2, 4)), expected)


def test_block_is_four_times_norm_relu_conv_with_the_doubling_before_the_second():
    block = Block(8, 8, 4, True).double().eval()
    x, condition = torch.randn(2, 8, 3, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    y = x
    for index, (norm, convolution) in enumerate(zip(block.norms, block.convolutions, strict=True)):
        y = F.relu(norm(y, condition))
        if index == 1:
            y = y.repeat_interleave(2, 2).repeat_interleave(2, 3)
        assert isinstance(convolution, nn.Conv2d)
        assert convolution.kernel_size == [(1, 1), (3, 3), (3, 3), (1, 1)][index]
        y = F.conv2d(y, convolution.weight, convolution.bias, padding="same")
    expected = y + x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(block(x, condition), expected)


def test_attention_equals_a_loop_over_positions():
    layer = SelfAttention(8).double()
    x = torch.randn(2, 8, 4, 6, dtype=torch.float64)
    assert torch.equal(layer(x), x)  # the strength starts at zero
    nn.init.constant_(layer.strength, 0.7)
    query, key, value = layer.query(x), F.max_pool2d(layer.key(x), 2), F.max_pool2d(layer.value(x), 2)
    attended = torch.zeros(2, 4, 4, 6, dtype=torch.float64)
    for n in range(2):
        for i in range(4):
            for j in range(6):
                scores = torch.stack([query[n, :, i, j] @ k for k in key[n].flatten(1).T])
                attended[n, :, i, j] = value[n].flatten(1) @ scores.softmax(0)
    torch.testing.assert_close(layer(x), x + 0.7 * layer.output(attended))


# Parts of one sample, of as many as are left over, and of all; and torch's own operators, which know no parts. At 128 pixels
# there is attention.
@pytest.mark.parametrize(
    ("size", "training", "at_once"),
    [
        *((*network, at_once) for network in ((8, True), (16, True), (16, False)) for at_once in (1, 6_000, 2**22, None)),
        (128, True, 6_000),
        pytest.param(128, True, None, marks=pytest.mark.slow),
    ],
)
def test_recomputation_keeps_images_gradients_statistics_and_spectral_vectors(monkeypatch, size, training, at_once):
    monkeypatch.setattr(cpu_batchnorm, "AT_ONCE", at_once)
    plain = Generator(size, 3, 2, 2, 8).double().train(training)
    latents = torch.randn(2, 7, 8, dtype=torch.float64)
    weights = torch.randn(7, 3, size, size, dtype=torch.float64)
    recomputed = copy.deepcopy(plain)
    recomputed.recompute = True
    for z in latents:
        expected = plain(z)
        with portable(at_once is None):
            found = recomputed(z)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11)
        for images in (expected, found):
            (images * weights).sum().backward()
    scale = max(float(p.grad.abs().max()) for p in plain.parameters() if p.grad is not None)
    for (name, parameter), other in zip(plain.named_parameters(), recomputed.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-9, atol=1e-11 * scale, msg=name)
    torch.testing.assert_close(dict(recomputed.named_buffers()), dict(plain.named_buffers()), rtol=1e-12, atol=1e-12)


def stored_bytes(network: Generator, latents: Tensor) -> int:
    """Bytes that one pass keeps for its backward pass, without the weights."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        images = network(latents)
    del images
    return sum(kept.values())


@pytest.mark.parametrize("stock", [False, True])
def test_recomputation_stores_less_than_half(stock):
    with portable(stock):
        network, latents = Generator(32, 3, 8, 2, 8), torch.zeros(64, 8)
        whole = stored_bytes(network, latents)
        network.recompute = True
        assert stored_bytes(network, latents) < 0.5 * whole
