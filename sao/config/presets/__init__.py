"""The presets that come with the package: YAML files that open with their command, their time and their result."""

from importlib import resources
from pathlib import Path

from sao.config.overrides import nearest
from sao.errors import InputError


def preset_names() -> list[str]:
    return sorted(p.name.removesuffix(".yaml") for p in resources.files(__name__).iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"preset file {name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if name not in preset_names():
        raise InputError(f"there is no preset {name!r}{nearest(name, preset_names())}; `sao presets` lists them")
    return (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
