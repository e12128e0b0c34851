"""The same step, arranged literally as the authors' code arranges it: the baseline that ours is measured against.

Draws and updates are those of `Structural`, losses those of `sao.benchmark.reference`; the arrangement is the one described for
the released code: contiguous layout and torch's own operators, a graph for every pass, the momentum encoder run for real and
generated samples in both passes, the Jacobian by a forward pass of its own with vmap of jvp and one reverse pass more than
needed, and D's parameters collecting gradients during the generator's pass.
"""

from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap
from torch.nn import functional as F

from sao.benchmark import reference
from sao.methods.adversarial import Side
from sao.methods.method import Batch, Method, total
from sao.methods.structural import Structural
from sao.networks import Generator
from sao.networks.activation import ELU
from sao.networks.batchnorm import ConditionalBatchNorm
from sao.networks.biggan import ToImages
from sao.networks.convolution import Convolution
from sao.networks.groupnorm import GroupNorm
from sao.networks.layout import ImageNetwork
from sao.networks.spectral import SpectralNormalisation, matrix


class Literal(Structural):
    """Make one with `literal(method)`; it shares nothing with the method it was made from."""

    def step(self, batch: Batch, step: int):
        real = self.augmentation(batch.inputs, self.seed, "discriminator", step, self.batch)
        scalars, _ = self._update_discriminator(real, step)
        scalars |= self._update_generator(real, self.keys(real), step)
        self.average_discriminator.update(self.discriminator)
        self.average_generator.update(self.generator)
        return scalars

    def _update_discriminator(self, real: Tensor, step: int):
        fake = self.generator(self._latents("discriminator latents", step, real)).detach()
        real_keys = self.keys(real)
        keys = torch.cat([real_keys, self.keys(fake)])
        both = torch.cat([real, fake])
        sides = self._gathered(self.discriminator(both)[1], keys)
        norms = self._literal_norms(both, step)
        bank = None if self.bank is None else self.bank.contents()
        (real_z, real_k), (fake_z, fake_k) = sides
        losses = reference.discriminator_terms(self._settings, real_z, fake_z, (real_k, fake_k), bank, norms)
        watched = reference.watched(self._settings, real_z, fake_z, norms)
        self.optimisers["discriminator"].zero_grad()
        total(losses).backward()
        return self.update("discriminator", losses, watched), real_keys

    def _update_generator(self, real: Tensor, real_keys: Tensor, step: int):
        fake = self.generator(self._latents("generator latents", step, real))
        keys = torch.cat([real_keys, self.keys(fake)])
        sides = self._gathered(self.discriminator(torch.cat([real, fake]))[1], keys)
        bank = None if self.bank is None else self.bank.contents()
        (real_z, real_k), (fake_z, fake_k) = sides
        losses = reference.generator_terms(self._settings, real_z, fake_z, (real_k, fake_k), bank)
        self.optimisers["generator"].zero_grad()
        total(losses).backward()
        scalars = self.update("generator", losses, {})
        self.remember(Side(sides[0].embeddings.detach(), sides[0].keys))
        return scalars

    @property
    def _settings(self) -> reference.Settings:
        return reference.Settings(**{name: getattr(self.options, name) for name in reference.Settings.__dataclass_fields__})

    def _literal_norms(self, both: Tensor, step: int) -> Tensor:
        """sg(u) J sg(v) with u = Jv/|Jv| by vmap of jvp and v = uJ/|uJ| by a reverse pass, then one more product."""
        weights: dict[str, Tensor] = dict(self.discriminator.named_parameters())

        def embed(sample: Tensor) -> Tensor:
            return functional_call(self.discriminator, weights, (sample[None],))[1][0]

        start = F.normalize(self._jacobian_start(step, both).flatten(1)).view_as(both)
        u = F.normalize(vmap(lambda x, v: jvp(embed, (x,), (v,))[1])(both, start))
        inputs = both.detach().requires_grad_()
        outputs = self.discriminator(inputs)[1]
        (v,) = torch.autograd.grad(outputs, inputs, u.detach(), create_graph=True)
        v = F.normalize(v.flatten(1)).view_as(both)
        (product,) = torch.autograd.grad(outputs, inputs, u.detach(), create_graph=True)
        return (product * v.detach()).flatten(1).sum(1)


def has_literal(method: Method) -> bool:
    """Whether there is a literal arrangement: of the paper's method as it is, with the Jacobian in each step."""
    if not isinstance(method, Structural):
        return False
    options = method.options
    return options.smoothness_weight > 0 and (options.power_steps, options.smooth_every) == (1, 1)


def literal(method: Method) -> Literal:
    """Turn a freshly built method into its literal arrangement, with torch's own operators instead of ours."""
    assert has_literal(method)
    for module in method.modules():
        if isinstance(module, ImageNetwork):
            module.use_layout(torch.contiguous_format)
        if isinstance(module, Generator):
            module.frugal = False
        for kind, forward in OPERATORS.items():
            if isinstance(module, kind):
                module.forward = MethodType(forward, module)
    method.__class__ = Literal
    assert isinstance(method, Literal)
    return method


def _elu(self: ELU, x: Tensor, other: Tensor | None = None) -> Tensor:
    return F.elu(x if other is None else x + other)


def _batch_norm(self: ConditionalBatchNorm, x: Tensor, condition: Tensor | None = None) -> Tensor:
    normalised = F.batch_norm(
        x, self.running_mean, self.running_var, training=self.training, momentum=self.momentum, eps=self.eps
    )
    gain = 1 + self.gain(condition) if isinstance(self.gain, nn.Linear) else self.gain[None]
    bias = self.bias(condition) if isinstance(self.bias, nn.Linear) else self.bias[None]
    extra = [1] * (x.ndim - 2)
    return normalised * gain.reshape(*gain.shape, *extra) + bias.reshape(*bias.shape, *extra)


def _normalise_spectrally(self: SpectralNormalisation, weight: Tensor) -> Tensor:
    rows = matrix(weight)
    if self.training:
        with torch.no_grad():
            self._u = F.normalize(torch.mv(rows, self._v), dim=0)
            self._v = F.normalize(torch.mv(rows.T, self._u), dim=0)
    return weight / torch.vdot(self._u, torch.mv(rows, self._v))


OPERATORS: dict[type, Callable[..., Tensor]] = {
    Convolution: nn.Conv2d.forward,
    ToImages: nn.Conv2d.forward,
    GroupNorm: nn.GroupNorm.forward,
    ConditionalBatchNorm: _batch_norm,
    ELU: _elu,
    SpectralNormalisation: _normalise_spectrally,
}
