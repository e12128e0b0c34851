"""The same step, arranged literally as the authors' code arranges it: the baseline that ours is measured against.

Draws, losses and updates are those of `Structural`. The arrangement follows the released code:
- contiguous layout, torch's own operators, and a graph for every pass;
- the momentum encoder embeds real and generated samples in both updates;
- the Jacobian takes a forward pass of its own (vmap of jvp) and one reverse pass more than needed;
- D's parameters collect gradients during the generator's update.
"""

import torch
from torch import Tensor
from torch.func import functional_call, jvp, vmap
from torch.nn import functional as F

from sao.config import Config
from sao.methods import structural
from sao.methods.base import Batch, Context, total
from sao.networks import Generator
from sao.networks.cpu import portable

# The paper's step, which these options make shorter.
WHOLE = {"one_pass": False, "smooth_every": 1, "smooth_one_in": 1, "keys_from": "ema"}


class Literal(structural.Structural):
    def __init__(self, options: structural.Options, context: Context) -> None:
        super().__init__(options, context)
        if isinstance(self.generator, Generator):
            self.generator.recompute = False

    @portable()
    def step(self, batch: Batch, step: int):
        real = self.augmentation(batch.inputs, self.seed, "discriminator", step, self.batch)
        scalars, _ = self._update_discriminator(real, step)
        scalars |= self._update_generator(real, self._keys(real), step)
        self.ema_discriminator.update(self.discriminator)
        self.ema_generator.update(self.generator)
        return scalars

    def _update_discriminator(self, real: Tensor, step: int):
        fake = self.generator(self._latents("discriminator latents", step, real)).detach()
        real_keys = self._keys(real)
        keys = torch.cat([real_keys, self._keys(fake)])
        both = torch.cat([real, fake])
        norms = self._literal_norms(both, step)
        sides = self._gather(self.discriminator(both)[1], keys, norms[:, None], both.new_empty(len(both), 0, 0))
        losses = self.discriminator_losses(*sides, step)
        self.optimisers["discriminator"].zero_grad()
        total(losses).backward()
        return self.update("discriminator", losses, self.diagnostics(*sides)), real_keys

    def _update_generator(self, real: Tensor, real_keys: Tensor, step: int):
        fake = self.generator(self._latents("generator latents", step, real))
        keys = torch.cat([real_keys, self._keys(fake)])
        embeddings = self.discriminator(torch.cat([real, fake]))[1]
        nothing = embeddings.new_empty(len(embeddings), 0)
        sides = self._gather(embeddings, keys, nothing, nothing[:, :, None])
        losses = self.generator_losses(*sides, step)
        self.optimisers["generator"].zero_grad()
        total(losses).backward()
        scalars = self.update("generator", losses, {})
        self.update_bank(sides[0])
        return scalars

    def _keys(self, inputs: Tensor) -> Tensor:
        return self.keys(inputs, inputs[:0])  # by the EMA of D, which asks for nothing of D's own

    def _literal_norms(self, both: Tensor, step: int) -> Tensor:
        """sg(u) J sg(v) with u = Jv/|Jv| by vmap of jvp and v = uJ/|uJ| by a reverse pass, then one more product."""
        weights: dict[str, Tensor] = dict(self.discriminator.named_parameters())

        def embed(sample: Tensor) -> Tensor:
            return functional_call(self.discriminator, weights, (sample[None],))[1][0]

        directions = self._jacobian_directions(step, both)
        assert directions is not None
        start = F.normalize(directions.flatten(1)).view_as(both)
        u = F.normalize(vmap(lambda x, v: jvp(embed, (x,), (v,))[1])(both, start))
        inputs = both.detach().requires_grad_()
        outputs = self.discriminator(inputs)[1]
        (v,) = torch.autograd.grad(outputs, inputs, u.detach(), create_graph=True)
        v = F.normalize(v.flatten(1)).view_as(both)
        (product,) = torch.autograd.grad(outputs, inputs, u.detach(), create_graph=True)
        return (product * v.detach()).flatten(1).sum(1)


def has_literal(config: Config) -> bool:
    """Whether there is a literal arrangement: of the paper's method with a penalty and one power iteration."""
    options = config.method
    if type(options) is not structural.Options or options.has_local or options.cluster_warmup > 0:
        return False
    return options.smoothness_weight > 0 and options.power_steps == 1


def left_out(config: Config) -> dict[str, str]:
    """The options with which ours does less than the literal step, and their values."""
    options = config.method
    assert isinstance(options, structural.Options)
    return {name: str(getattr(options, name)).lower() for name, value in WHOLE.items() if getattr(options, name) != value}


class Options(structural.Options):
    """The options of the paper's method, which build its literal arrangement."""

    def build(self, context: Context) -> Literal:
        with portable():  # weights in torch's usual layout
            return Literal(self, context)


def literal(config: Config) -> Config:
    """The same configuration for the literal arrangement, which always makes the whole step of the paper."""
    return config.model_copy(update={"method": Options.model_validate({**config.method.model_dump(), **WHOLE})})
