"""Options by their dotted names: the words that a person types, and what is said about a wrong one."""

import difflib
import os
import sys
import types
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from sao.errors import InputError

# What version 0.2 called options and their values. The old words are accepted for one release, with a hint.
RENAMED = {
    "method.average": "method.ema_decay",
    "method.gradient_limit": "method.clip_grad_norm",
    "method.partner_temperature": "method.teacher_temperature",
}
RENAMED_VALUES = {"method.keys_from": {"average": "ema"}}
SWITCHES = {"log.tensorboard": ("log.to", "tensorboard")}  # true or false then, a word of a list now
# The last word of an option here, and what people call it elsewhere.
CALLED = {
    "learning_rate": "lr rate",
    "weight_decay": "wd",
    "batch": "batch_size bs",
    "steps": "iterations num_steps max_steps",
    "epochs": "num_epochs",
    "size": "image_size img_size resolution",
    "threads": "num_workers workers",
    "device": "gpu gpus cuda cpu",
    "precision": "dtype fp16 amp",
    "ema_decay": "ema",
    "latent_size": "latent_dim z_dim",
    "embedding_size": "dim",
    "encoder": "backbone arch",
    "method": "model",
}
SYNONYMS = {word: option for option, words in CALLED.items() for word in words.split()}
FLAGS = dict.fromkeys(("output", "output_dir", "outdir", "out_dir"), "--out") | dict.fromkeys(("dataset", "input"), "--data")


def current_name(key: str) -> str:
    """The name of an option today, from a name with hyphens or from one of version 0.2."""
    key = key.replace("-", "_")
    return RENAMED.get(key, key)


def rename(values: dict[str, Any], hint: bool = True) -> None:
    """Bring nested values of version 0.2 to today's names, in place; `hint` says each old one on stderr."""
    for old, new in RENAMED.items():
        (group, name), (_, new_name) = old.split("."), new.split(".")
        inner = values.get(group)
        if isinstance(inner, dict) and name in inner and new_name not in inner:
            values[group] = {new_name if key == name else key: value for key, value in inner.items()}
            if hint:
                _hint(old, new)
    for option, words in RENAMED_VALUES.items():
        group, name = option.split(".")
        inner = values.get(group)
        if isinstance(inner, dict) and isinstance(value := inner.get(name), str) and value in words:
            inner[name] = words[value]
            if hint:
                _hint(f"{option} {value}", f"{option} {words[value]}")
    for old, (new, word) in SWITCHES.items():
        (group, name), (_, new_name) = old.split("."), new.split(".")
        inner = values.get(group)
        if isinstance(inner, dict) and isinstance(inner.get(name), bool):
            on = inner.pop(name)
            inner.setdefault(new_name, [word] if on else [])
            if hint:
                _hint(old, f"{new} {word}")


@cache  # once for each name
def _hint(old: str, new: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"sao: {old} is now called {new}: the next release will not know the old name", file=sys.stderr)


def option_names(model: type[BaseModel], values: Any = None) -> list[str]:
    """Every dotted option of a model, with the members of unions that the values, or else the defaults, choose."""
    names = []
    for name, field in model.model_fields.items():
        value = values.get(name) if isinstance(values, dict) else None
        inner = _chosen(field, value)
        names += [name] if inner is None else [f"{name}.{below}" for below in option_names(inner, value)]
    return names


def every_option(model: type[BaseModel]) -> list[str]:
    """The dotted options of all members of all unions, each once."""
    names = option_names(model)
    for name, field in model.model_fields.items():
        for member in _names(field):
            names += option_names(model, {name: {"name": member}})
    return list(dict.fromkeys(names))


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The groups of options that a field can hold: none, one, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return models_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [model for member in get_args(annotation) for model in models_in(member)]
    return []


def set_option(model: type[BaseModel], values: dict[str, Any], key: str, text: str) -> None:
    """Change one value in a nested mapping, as a person typed it; `method` and `encoder` take the name of a member."""
    root, whole = model, values
    if (new := current_name(key)) != key.replace("-", "_"):
        _hint(key, new)
    key = new
    if (word := RENAMED_VALUES.get(key, {}).get(text)) is not None:
        _hint(f"{key} {text}", f"{key} {word}")
        text = word
    if key in SWITCHES:
        old, (key, word) = key, SWITCHES[key]
        _hint(old, f"{key} {word}")
        text = {True: word, False: "[]"}.get(_parsed(text), text)
    *parents, last = key.removesuffix(".name").split(".")
    for depth, parent in enumerate(parents):
        field = model.model_fields.get(parent)
        inner = None if field is None else _member(field, values.get(parent), [*parents[depth + 1 :], last])
        if field is None or inner is None:
            raise InputError(_no_option(root, whole, key))
        if not isinstance(values.setdefault(parent, _default(field, inner)), dict):
            return  # not a group of options: what validates the whole says so
        values, model = values[parent], inner
    field = model.model_fields.get(last)
    if field is None:
        raise InputError(_no_option(root, whole, key))
    members = _names(field)
    if members:
        if text not in members:
            raise InputError(f"there is no {last} {text!r}{nearest(text, members)}; there are {', '.join(members)}")
        values[last] = _switched(field, values.get(last, _default(field, None)), text)
        return
    if models_in(field.annotation) and text != "null":
        below = next((name for name in option_names(root, whole) if name.startswith(f"{key}.")), key)
        raise InputError(f"--{key} is a group of options: set one of them, for example --{below}")
    # A text is taken as it was typed: a folder may be called 2024, yes or [x].
    values[last] = text if _is_text(field.annotation) else _parsed(text)
    if key == "train.steps":  # asked for by name, it replaces the epochs of a preset
        values["epochs"] = None


def _switched(field: FieldInfo, current: Any, name: str) -> dict[str, Any]:
    """The values for another member of a union: what was said stays where both have it from a common family."""
    if not isinstance(current, dict) or current.get("name") not in _members(field):
        return {"name": name}
    if current["name"] == name:
        return current
    before, after = _members(field)[current["name"]], _members(field)[name]
    family = next(kind for kind in before.__mro__ if issubclass(after, kind) and issubclass(kind, BaseModel))
    return {"name": name} | {key: value for key, value in current.items() if key in family.model_fields and key != "name"}


def suggestion(model: type[BaseModel], word: str, values: dict[str, Any] | None = None) -> str:
    """ " (did you mean …?)" for a word that is no option: what people call it elsewhere, or what is spelt alike."""
    word = word.removeprefix("--").replace("-", "_")
    if word in FLAGS:
        return f" (did you mean {FLAGS[word]}?)"
    names = option_names(model, values)
    last = word.rpartition(".")[2]
    meant = SYNONYMS.get(last, last)
    same = [name for name in names if meant in (name, name.rpartition(".")[2])]
    if meant in model.model_fields and meant not in names:
        same = [meant]
    if same:
        return f" (did you mean {' or '.join(f'--{name}' for name in same[:2])}?)"
    words = {name.rpartition(".")[2]: name for name in reversed(names)} | {name: name for name in names}
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.75)
    return f" (did you mean --{words[near[0]]}?)" if near else ""


def nearest(word: str, words: Sequence[str]) -> str:
    """ " (did you mean …?)", or nothing where no word is near."""
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def one_line(model: type[BaseModel], error: ValidationError, origin: str) -> str:
    """The first thing that is wrong, with its dotted name."""
    first = error.errors()[0]
    location, names = _located(model, first["loc"])
    key = ".".join(location)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{origin}: {_no_option(model, names, key).replace('there is no option --', 'there is no option ')}"
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        members = _names(_field(model, names, location))
        given = first["input"].get("name") if isinstance(first["input"], dict) else first["input"]
        return f"{origin}: there is no {key} {given!r}{nearest(str(given), members)}; there are {', '.join(members)}"
    if first["type"] == "literal_error":
        annotation = _field(model, names, location).annotation
        if get_origin(annotation) is tuple:
            annotation = get_args(annotation)[0]
        choices = [str(choice) for choice in _choices(annotation)]
        return f"{origin}: {key}: {message}, got {first['input']!r}{nearest(str(first['input']), choices)}"
    shown = "" if isinstance(first["input"], dict | BaseModel) else f", got {first['input']!r}"
    return f"{origin}: {f'{key}: ' if key else ''}{message}{shown}"


def _no_option(model: type[BaseModel], values: dict[str, Any], key: str) -> str:
    group, _, rest = key.partition(".")
    last = rest.partition(".")[0]
    field = model.model_fields.get(group)
    chosen = None if field is None else _chosen(field, values.get(group))
    if field is not None and len(models_in(field.annotation)) > 1 and chosen and last not in chosen.model_fields:
        owners = [name for name, member in _members(field).items() if last in member.model_fields]
        if not owners:
            return f"{group} {_name(chosen)} has no option {last}{suggestion(model, key, values)}"
        has = f"{', '.join(owners[:-1])} and {owners[-1]} have" if len(owners) > 1 else f"{owners[0]} has"
        return f"{group} {_name(chosen)} has no option {last} ({has} it)"
    return f"there is no option --{key}{suggestion(model, key, values)}"


def _members(field: FieldInfo) -> dict[str, type[BaseModel]]:
    return {_name(member): member for member in models_in(field.annotation)}


def _names(field: FieldInfo) -> list[str]:
    """Of the members of a union."""
    members = models_in(field.annotation)
    return [_name(member) for member in members] if len(members) > 1 else []


def _name(member: type[BaseModel] | None) -> str:
    return "" if member is None else str(member.model_fields["name"].default)


def _chosen(field: FieldInfo, value: Any) -> type[BaseModel] | None:
    """The group of options that a field holds for a value of it, or for none."""
    members = models_in(field.annotation)
    if len(members) < 2:
        return members[0] if members else None
    if isinstance(value, dict) and "name" in value:
        return _members(field).get(value["name"])
    return type(field.default) if isinstance(field.default, BaseModel) else None


def _member(field: FieldInfo, value: Any, rest: list[str]) -> type[BaseModel] | None:
    """The same on the way to an option; where nothing is chosen yet, the first member that has it."""
    chosen = _chosen(field, value)
    if chosen is not None or value is not None:
        return chosen
    members = models_in(field.annotation)
    return next((member for member in members if rest[0] in member.model_fields), members[0] if members else None)


def _default(field: FieldInfo, member: type[BaseModel] | None) -> dict[str, Any]:
    """The values of a group that nobody has changed yet."""
    if isinstance(field.default, BaseModel):
        return field.default.model_dump(mode="json")
    return {"name": _name(member)} if member is not None and "name" in member.model_fields else {}


def _located(model: type[BaseModel], parts: Sequence[int | str]) -> tuple[list[str], dict[str, Any]]:
    """The dotted name of a place in a validation error, which puts the member of a union into it; and those members."""
    location: list[str] = []
    chosen: dict[str, Any] = {}
    current: type[BaseModel] | None = model
    rest = iter(part for part in parts if isinstance(part, str))
    for part in rest:
        location.append(part)
        field = None if current is None else current.model_fields.get(part)
        current = None if field is None else _chosen(field, None)
        if field is not None and len(models_in(field.annotation)) > 1 and (tag := next(rest, None)) is not None:
            chosen[part] = {"name": tag}
            current = _members(field).get(tag)
    return location, chosen


def _field(model: type[BaseModel], values: dict[str, Any], location: Sequence[str]) -> FieldInfo:
    *parents, last = location
    for parent in parents:
        inner = _chosen(model.model_fields[parent], values.get(parent))
        assert inner is not None
        model = inner
    return model.model_fields[last]


def _parsed(text: str) -> Any:
    """A number as Python reads it (YAML takes 1e-3 for a text and 010 for 8); anything else as YAML does."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return text


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation is str or bool(_choices(annotation))


def _choices(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()
