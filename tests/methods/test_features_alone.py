"""Using a method changes nothing in it, and what an image gets does not depend on its neighbours in the batch."""

from collections.abc import Callable

import pytest
import tiny
import torch
from torch import Tensor

from sao.methods import METHODS, Method, generative

BATCHNORM = {"encoder": "resnet", "encoder__widths": "[4, 8]", "encoder__norm": "batch"}
VIEW_LEARNERS = ("simclr", "vicreg", "byol", "nnclr", "swav", "dino")
CASES = {
    **{name: {"method": name} for name in METHODS},
    **{f"{name}, BatchNorm": {"method": name, **BATCHNORM} for name in (*VIEW_LEARNERS, "supervised", "random", "genrep")},
    "simclr, EMA of BatchNorm": {"method": "simclr", **BATCHNORM, "method__ema_decay": 0.9},
}


def uses(method: Method) -> dict[str, tuple[Callable[[Tensor], Tensor], Tensor]]:
    """What a method gives to others, with a batch for it."""
    images = tiny.batch(size=4).inputs
    found = {name: (method.representation(name), images) for name in ("backbone", "embedding")}
    found["jacobian"] = (method.smooth_function, images)
    if method.has_layers:
        found["layers"] = (method.layers, images)
    if method.own_clusters is not None:
        found["clusters"] = (method.clusters_of, images)
    maker = generative(method)
    if maker is not None:
        draws = torch.randn(4, *maker.latent_shape, generator=torch.Generator().manual_seed(0))
        found["samples"] = (maker.decode, draws)
    return found


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in CASES.items()])
def test_use_is_of_each_sample_alone_and_leaves_the_method_as_it_was(options):
    method = tiny.method(**options)
    modes = {name: module.training for name, module in method.named_modules()}
    state = {name: value.clone() for name, value in method.state_dict().items()}
    for use, (function, batch) in uses(method).items():
        whole = function(batch).detach()
        alone = torch.cat([function(batch[i : i + 1]).detach() for i in range(len(batch))])
        torch.testing.assert_close(alone, whole, rtol=1e-4, atol=1e-5, msg=lambda text, use=use: f"{use}: {text}")
        assert {name: module.training for name, module in method.named_modules()} == modes, use
        assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items()), use
        assert all(parameter.grad is None for parameter in method.parameters()), use
