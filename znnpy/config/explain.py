"""Turns pydantic's validation errors into messages: the key as written, what is allowed, the nearest spelling.

Which spelling is the nearest, other programs' words included, is found by `problems.nearest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from znnpy.config.problems import Key, nearest, suggestion
from znnpy.fields import shown
from znnpy.registered_types import Registered

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_LIMITS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def explain(error: ErrorDetails, data: Any, model: type[BaseModel]) -> tuple[Key, str]:
    """Return the key (below `data`) and the message for one of pydantic's errors."""
    kind, context = error["type"], error.get("ctx", {})
    key = written_key(error["loc"], data)
    if kind == "znnpy":
        below = written_key((*key, *context["key"]), data)
        return below, str(context["text"])
    if kind.startswith("union_tag"):
        return (*key, "kind"), _tag(context, key, model, data)
    if kind == "missing":
        return key, _missing(key, error["loc"], data)
    if kind == "extra_forbidden":
        return key, "unknown key" + suggestion(str(key[-1]), allowed_keys(key[:-1], model, data))
    return key, _value(kind, context, error)


def misspelt(errors: Sequence[ErrorDetails], data: Any, model: type[BaseModel]) -> set[Key]:
    """Return missing keys in whose place an unknown key stands: the two are one problem to report."""
    found = set()
    for error in errors:
        if error["type"] == "extra_forbidden":
            *above, word = error["loc"]
            key = written_key(error["loc"], data)
            found.add((*above, nearest(str(word), allowed_keys(key[:-1], model, data)) or ""))
    return found


def _missing(key: Key, loc: Key, data: Any) -> str:
    if key and key[-1] == loc[-1]:
        return "is missing"
    for part in key:
        data = data[part]
    return f"{data} needs {loc[-1]}; write it in full, {{kind: {data}, {loc[-1]}: ...}}"


def _value(kind: str, context: Mapping[str, Any], error: ErrorDetails) -> str:
    found = f"found {shown(error['input'])}"
    if kind == "literal_error":
        return _literal(context["expected"], error["input"])
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}; {found}"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"{words} {context[name]}; {found}"
    return f"{error['msg'][0].lower()}{error['msg'][1:]}; {found}"


def _literal(expected: str, value: Any) -> str:
    allowed = re.findall(r"'([^']*)'|\b(True|False)\b", expected)
    words = [text or flag.lower() for text, flag in allowed]
    return f"is {shown(value)}" + suggestion(value if isinstance(value, str) else "", words)


def _tag(context: Mapping[str, Any], key: Key, model: type[BaseModel], data: Any) -> str:
    if "tag" in context:
        return _literal(context["expected_tags"], context["tag"])
    kinds = [tag for member in _models(_at(key, model, data)) for tag in _tags(member)]
    return f"is missing (allowed: {', '.join(kinds)})"


def written_key(loc: Key, data: Any) -> Key:
    """Return the part of pydantic's location that the user wrote: without union tags, and nothing below a shorthand."""
    key: list[str | int] = []
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(data, Mapping):
            if part in data:
                key.append(part)
                data = data[part]
            elif last:
                key.append(part)
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            key.append(part)
            data = data[part]
        else:
            break
    return tuple(key)


def allowed_keys(key: Key, model: type[BaseModel], data: Any) -> list[str]:
    """Return the keys that the mapping at `key` may hold; empty when any name is allowed."""
    models = _models(_at(key, model, data))
    for part in key:
        data = data[part]
    chosen = [m for m in models if isinstance(data, Mapping) and data.get("kind") in _tags(m)]
    names = (name for m in chosen or models for name in _names(m))
    return list(dict.fromkeys(names))


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind and get_origin(kind.annotation) is Literal else ()


def _at(key: Key, model: type[BaseModel], data: Any) -> Any:
    """Return the annotation of the value at `key`."""
    annotation: Any = model
    for part in key:
        annotation = _below(annotation, part, data)
        data = data[part]
    return annotation


def _below(annotation: Any, part: str | int, data: Any) -> Any:
    for model in _models(annotation):
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
    plain = next((a for a in _members(annotation) if get_origin(a) in (tuple, dict)), None)
    arguments = [a for a in get_args(plain) if a is not Ellipsis]
    return arguments[-1] if arguments else Any


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, without Annotated and None."""
    if isinstance(annotation, type) and issubclass(annotation, Registered):
        return _members(annotation.annotation())
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [m for a in get_args(annotation) for m in _members(a)]
    return [] if annotation is NoneType else [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)]
