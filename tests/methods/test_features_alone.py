"""Using a method changes nothing in it, and what an image gets does not depend on its neighbours in the batch."""

from collections.abc import Callable

import pytest
import tiny
import torch
from torch import Tensor
from torch.nn import functional as F

from sao.methods import METHODS, Method, generative

BATCHNORM = {"encoder": "resnet", "encoder__widths": "[4, 8]", "encoder__norm": "batch"}
VIEW_LEARNERS = ("simclr", "vicreg", "byol", "nnclr", "swav", "dino")
CASES = {
    **{name: {"method": name} for name in METHODS},
    **{f"{name}, BatchNorm": {"method": name, **BATCHNORM} for name in (*VIEW_LEARNERS, "supervised", "random", "genrep")},
    "simclr, EMA of BatchNorm": {"method": "simclr", **BATCHNORM, "method__ema_decay": 0.9},
}

OWN_JACOBIAN = ("self_conditioned",)  # of the logits of all clusters, which are no embeddings


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


@pytest.mark.parametrize("name", METHODS)
def test_use_reads_the_weights_that_it_declares_and_no_others(name):
    """A use of the trained network in place of its EMA, for example, meets a NaN here."""
    declarations = {"backbone": "backbone", "embedding": "embedding", "jacobian": "embedding", "samples": "decode"}
    for use, declared in declarations.items():
        method = tiny.method(method=name)
        if use not in uses(method) or (use == "jacobian" and name in OWN_JACOBIAN):
            continue
        function, batch = uses(method)[use]
        expected = function(batch).detach()
        needed = method.tensors_for(declared)  # pyright: ignore[reportArgumentType]
        with torch.no_grad():
            for other, value in (dict(method.named_parameters()) | dict(method.named_buffers())).items():
                if other not in needed and value.is_floating_point():
                    value.fill_(torch.nan)
        torch.testing.assert_close(function(batch).detach(), expected, msg=lambda text, use=use: f"{use}: {text}")
        with torch.no_grad():
            for value in needed.values():
                if value.is_floating_point():
                    value.fill_(torch.nan)
        assert not bool(function(batch).isfinite().all()), use


@pytest.mark.parametrize("name", [name for name in METHODS if name not in OWN_JACOBIAN])
def test_the_jacobian_is_of_what_the_objective_sees(name):
    method = tiny.method(method=name)
    images = tiny.batch(size=4).inputs
    embedded, differentiated = method.embeddings(images), method.smooth_function(images).detach()
    torch.testing.assert_close(F.normalize(differentiated), F.normalize(embedded), rtol=1e-4, atol=1e-5)
