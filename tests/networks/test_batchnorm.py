import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sao.core import distributed
from sao.networks.cpu import batchnorm as cpu_batchnorm
from sao.networks.cpu import portable
from sao.networks.layers import BatchNorm


def batches(*shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [3 + 2 * torch.randn(6, 4, *shape, dtype=torch.float64, generator=generator) for _ in range(3)]


@pytest.fixture(params=["one process", "the sums of several"])
def path(request, monkeypatch):
    """Both ways to the moments: torch's kernel, and the sums over processes, here with an only process."""
    if request.param != "one process":
        monkeypatch.setattr(distributed, "world_size", lambda: 2)
        monkeypatch.setattr(distributed, "total", lambda tensor: tensor)


@pytest.fixture(params=[False, True], ids=["cpu", "portable"], autouse=True)
def operators(request):
    with portable(request.param):
        yield


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("shape", [(), (5, 3)])
def test_equals_batchnorm_followed_by_the_conditions_gain_and_bias(shape):
    norm = BatchNorm(4, 3).double()
    plain = (nn.BatchNorm2d if shape else nn.BatchNorm1d)(4, affine=False).double()
    condition = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert isinstance(norm.gain, nn.Linear)
    assert isinstance(norm.bias, nn.Linear)
    extra = [1] * len(shape)
    gain = 1 + (condition @ norm.gain.weight.T).reshape(6, 4, *extra)
    bias = (condition @ norm.bias.weight.T).reshape(6, 4, *extra)
    for training in (True, True, False):
        norm.train(training)
        plain.train(training)
        for x in batches(*shape):
            ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            outputs, expected = norm(ours, condition), plain(theirs) * gain + bias
            torch.testing.assert_close(outputs, expected)
            weights = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2))
            (own,) = torch.autograd.grad((outputs * weights).sum(), ours)
            (other,) = torch.autograd.grad((expected * weights).sum(), theirs)
            torch.testing.assert_close(own, other)
    torch.testing.assert_close(norm.running_mean, plain.running_mean)
    torch.testing.assert_close(norm.running_var, plain.running_var)


@pytest.mark.usefixtures("path")
def test_without_a_condition_it_is_batchnorm():
    norm, plain = BatchNorm(4).double(), nn.BatchNorm2d(4).double()
    with torch.no_grad():
        for ours, theirs in ((norm.gain, plain.weight), (norm.bias, plain.bias)):
            assert isinstance(ours, nn.Parameter)
            theirs.copy_(ours.copy_(torch.tensor([0.5, 1.0, -2.0, 3.0])))
    for x in batches(2, 2):
        torch.testing.assert_close(norm(x), plain(x))
    torch.testing.assert_close(norm.running_var, plain.running_var)


@pytest.mark.usefixtures("path")
def test_half_precision_keeps_its_type_and_wide_statistics():
    norm = BatchNorm(4)
    x = batches(5, 3)[0]
    outputs = norm(x.bfloat16())
    expected = nn.BatchNorm2d(4)(x.float())
    torch.testing.assert_close(outputs.float(), expected, rtol=0.03, atol=0.03)
    assert norm.running_mean.dtype == torch.float32


@pytest.mark.parametrize(
    "x", [torch.zeros(0, 4), torch.zeros(2, 3), torch.zeros(4), torch.zeros(2, 4, 0, 3), torch.zeros(1, 4)]
)
def test_wrong_inputs_are_named(x):
    with pytest.raises(ValueError, match=r"^x "):
        BatchNorm(4)(x)


def test_a_single_sample_is_welcome_in_evaluation_and_where_it_has_positions():
    norm = BatchNorm(4)
    assert norm(torch.randn(1, 4, 2, 2)).isfinite().all()
    assert norm.eval()(torch.zeros(1, 4)).shape == (1, 4)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("condition_size", [3, None])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 9])
def test_a_layer_in_chunks_has_the_same_values_gradients_and_statistics(monkeypatch, condition_size, training, chunk):
    monkeypatch.setattr(cpu_batchnorm, "AT_ONCE", chunk * 4 * 5 * 3)
    whole, chunked = (BatchNorm(4, condition_size).double().train(training) for _ in range(2))
    chunked.load_state_dict(whole.state_dict())
    x, _, weight = batches(5, 3)
    weight = weight[:2, :, :1, :1].clone().requires_grad_()
    condition = None if condition_size is None else batches()[0][:, :condition_size]
    results = []
    for norm in (whole, chunked):
        inputs = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        if norm is whole:
            outputs = F.conv2d(F.relu(norm(inputs, condition)), weight)
        else:
            outputs = norm.then(F.conv2d, [weight], inputs, condition)
        gradients = torch.autograd.grad(outputs.square().sum(), [inputs, weight, *norm.parameters()])
        results.append([outputs, *gradients, *norm.buffers()])
    torch.testing.assert_close(results[1], results[0])
    assert results[1][0].is_contiguous(memory_format=torch.channels_last)
