"""What is said of an option: its kind and range, its default and its meaning, from the place where it is declared."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sao.config.overrides import models_in

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def option_lines(model: type[BaseModel], prefix: str, defaults: BaseModel | None = None) -> Iterator[tuple[str, str, str]]:
    """(dotted name, kind and default, meaning) of every option of a group, and of the groups inside it."""
    for name, field in model.model_fields.items():
        value = getattr(defaults, name) if defaults is not None else field.default
        inner = models_in(field.annotation)
        if name == "name" and get_origin(field.annotation) is Literal:
            continue  # it says which group this is
        if len(inner) == 1:
            nullable = type(None) in get_args(field.annotation)
            yield f"{prefix}{name}", "group, or null" if nullable else "group", field.description or ""
            yield from option_lines(inner[0], f"{prefix}{name}.", value if isinstance(value, BaseModel) else None)
        elif inner:
            names = ", ".join(str(member.model_fields["name"].default) for member in inner)
            yield f"{prefix}{name}", f"one of {names}; {_default(value)}", field.description or ""
        else:
            yield f"{prefix}{name}", f"{_kind(field.annotation, field.metadata)}; {_default(value)}", field.description or ""


def _kind(annotation: Any, limits: list[Any]) -> str:
    """The values that an option takes, in words: "whole number from 1"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [one.metadata if isinstance(one, FieldInfo) else [one] for one in (*arguments[1:], *limits)]
        return _kind(arguments[0], [limit for several in inner for limit in several])
    if origin in (Union, types.UnionType):
        return ", or ".join("null" if one is type(None) else _kind(one, limits) for one in arguments)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            fewest = next((limit.min_length for limit in limits if isinstance(limit, MinLen | Len)), 0)
            return f"list of {_kind(arguments[0], [])} each" + (f", at least {fewest}" if fewest else "")
        return f"list of {len(arguments)}: {_kind(arguments[0], [])} each"
    return WORDS.get(annotation, str(annotation)) + _range(limits)


def _range(limits: list[Any]) -> str:
    bounds = ((Ge, "ge", "from"), (Gt, "gt", "above"), (Le, "le", "to"), (Lt, "lt", "below"))
    return "".join(
        f" {word} {getattr(limit, name)}" for limit in limits for kind, name, word in bounds if isinstance(limit, kind)
    )


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return f"default: {getattr(value, 'name', 'as below')}"
    if value is None:
        return "default: null"
    if isinstance(value, bool):
        return f"default: {str(value).lower()}"
    if isinstance(value, tuple | list):
        return f"default: [{', '.join(map(str, value))}]"
    return f"default: {value}"
