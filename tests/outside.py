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
