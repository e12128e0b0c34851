"""The page itself: a template with style and script, and one block of data that nothing in it can break out of."""

import html
import json
import math
from importlib import resources
from typing import Any

SCRIPTS = (
    "elements", "thumbnails", "charts", "overview", "labels", "map_view", "map_paint", "map_cards", "map_panel", "sections",
    "start",
)  # fmt: skip


def page(data: dict[str, Any], title: str) -> str:
    template = _part("page.html")
    values = {
        "TITLE": html.escape(title),
        "STYLE": _part("style.css"),
        "DATA": as_script_data(data),
        "SCRIPT": "\n".join(_part(f"{name}.js") for name in SCRIPTS),
    }
    # In one pass: what stands in the data is not looked at again.
    parts = template.split("@@")
    return "".join(values[part] if number % 2 else part for number, part in enumerate(parts))


def as_script_data(data: Any) -> str:
    """JSON that cannot end the element it stands in, whatever names and labels say."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no word for NaN."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _part(name: str) -> str:
    return resources.files("sao.report").joinpath("template", name).read_text(encoding="utf-8")
