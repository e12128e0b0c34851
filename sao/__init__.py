"""sao: representations learnt by the discriminator of a GAN, without labels and without augmented views."""

from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from sao.api import Model, load, register, train
    from sao.estimator import StructuralEmbedding

__all__ = ["Model", "StructuralEmbedding", "__version__", "load", "register", "train"]


def __getattr__(name: str) -> Any:
    """Import torch and the rest when they are first asked for: `sao --help` should not wait for them."""
    if name in ("Model", "load", "register", "train"):
        from sao import api

        return getattr(api, name)
    if name == "StructuralEmbedding":
        from sao import estimator

        return estimator.StructuralEmbedding
    raise AttributeError(f"module 'sao' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What a person, or a shell that completes names, may ask for."""
    return sorted({*globals(), *__all__})
