"""Every option of a run: their types, the schema, dotted overrides, help, presets, and what fits the data (auto).

The schema imports methods, which import `sao.config.types`: so names of the schema are imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sao.config.schema import FORMAT, Config, Data, Log, Train, build, load, load_preset, save

__all__ = ["FORMAT", "Config", "Data", "Log", "Train", "build", "load", "load_preset", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("sao.config.schema"), name)
