"""A preset as the recipe of a row: what suits a method at the scale of the paper is written down once."""

import json
from typing import Any

import yaml

from sao.config.presets import preset_text


def recipe_of(preset: str) -> dict[str, str]:
    """Its options as a person types them, but for the data, which a table chooses."""
    values = yaml.safe_load(preset_text(preset))
    return {key: text for part, value in values.items() if part != "data" for key, text in _typed(part, value).items()}


def _typed(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {key.removesuffix(".name"): value if isinstance(value, str) else json.dumps(value)}
    return {inner: text for name, one in value.items() for inner, text in _typed(f"{key}.{name}", one).items()}
