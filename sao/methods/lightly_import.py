"""lightly, where a method uses one of its heads."""

from types import ModuleType

from sao.errors import InputError
from sao.torchvision_import import import_torchvision


def import_lightly(method: str) -> ModuleType:
    """Its modules of networks."""
    try:
        import_torchvision()  # lightly imports it; see there what can go wrong
        import lightly.models.modules
    except ImportError:
        raise InputError(f"method {method} needs lightly: pip install 'sao[baselines]'") from None
    return lightly.models.modules
