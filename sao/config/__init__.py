"""Every option of a run. Names of the schema are imported when asked for: it imports methods, which import the types."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sao.config.schema import FORMAT, Config, Data, Log, Train, build, load, load_preset, save

__all__ = ["FORMAT", "Config", "Data", "Log", "Train", "build", "load", "load_preset", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("sao.config.schema"), name)
