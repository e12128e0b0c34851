"""Files of a reader's own, for tests: a method, an encoder, data, and what can be wrong with each."""

from pathlib import Path

METHOD = '''
from typing import Literal

from pydantic import Field

from sao.config.types import PositiveFloat
from sao.methods import vicreg


class Options(vicreg.Options):
    """VICReg with a factor."""

    name: Literal["scaled"] = "scaled"
    factor: PositiveFloat = Field(default=2.0, description="of the loss")

    def build(self, context):
        return Scaled(self, context)


class Scaled(vicreg.VICReg):
    def losses(self, views, step):
        return {name: self.options.factor * loss for name, loss in super().losses(views, step).items()}
'''


def write(folder: Path, text: str = METHOD, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


ENCODER = '''
from typing import Literal

import torch
from torch import nn
from pydantic import Field

from sao.config.types import PositiveInt
from sao.methods import AnyEncoderOptions


class Options(AnyEncoderOptions):
    """A plain network of torch."""

    name: Literal["convnet"] = "convnet"
    width: PositiveInt = Field(default=8, description="channels")
    patch: PositiveInt = Field(default=1, description="as an encoder of the package calls another thing")
    kind: Literal["plain", "batchnorm", "dropout", "mixes", "once", "tokens", "reverse"] = "plain"

    def build(self, shape):
        first = nn.Conv2d(shape[0], self.width, 3, stride=2, padding=1)
        other = {
            "plain": nn.Identity, "batchnorm": lambda: nn.BatchNorm2d(self.width), "dropout": nn.Dropout, "mixes": Mixes,
            "once": lambda: Own(Once), "reverse": lambda: Own(Reverse), "tokens": lambda: nn.Flatten(2),
        }
        return nn.Sequential(first, nn.ELU(), other[self.kind]())


class Mixes(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Own(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


class Reverse(torch.autograd.Function):
    """Without a rule for forward mode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


class Once(Reverse):
    """Nor one for the second derivative."""

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()
'''

DATA = '''
import numpy as np
from sklearn.datasets import make_moons


def moons():
    """Two half circles, and which a point is of."""
    return make_moons(60, noise=0.05, random_state=0)
'''
