"""Writes a config out: resolved YAML, the JSON schema, and which changes a resumed run refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from znnpy.config.models import Config
from znnpy.config.problems import Key, dotted
from znnpy.config.reader import plain_scalar
from znnpy.config.schedule_section import ends_with_iterations
from znnpy.fields import shown

_FREE = {
    ("network", "name"),
    ("training", "iterations"),
    ("training", "validation", "patience"),
    ("data", "in_memory"),
    ("data", "test"),
}
# May change from one start of a run to the next, and change what is learned from there on.
_LOGGED = {
    ("training", "learning_rate"),
    ("training", "base_batch"),
    ("training", "schedule"),
    ("augment",),
}
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the config, for editors; every field has a description."""
    schema = Config.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def plain(config: Config) -> dict[str, Any]:
    """Return the config as plain values: defaults filled in, paths as text, keys without a value left out."""
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


def dump(config: Config) -> str:
    """Return the resolved config as YAML; loading it gives an equal config."""
    return "\n".join(_block(plain(config), 0)) + "\n"


def _block(value: dict[str, Any], indent: int) -> list[str]:
    lines = []
    for key, inside in value.items():
        start = " " * indent + _text(key) + ":"
        if isinstance(inside, dict) and inside:
            lines += [start, *_block(inside, indent + 2)]
        elif isinstance(inside, list) and any(isinstance(item, dict) for item in inside):
            items = (" " * (indent + 2) + "- " + _flow(item) for item in inside)
            lines += [start, *items]
        else:
            lines.append(f"{start} {_flow(inside)}")
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """Return a text for YAML, quoted unless it is a plain word that reads back as text."""
    if _PLAIN.fullmatch(text):
        try:
            if plain_scalar(text) == text:
                return text
        except ValueError:
            pass  # .inf and its like are text only in quotes
    return '"' + "".join(map(_letter, text)) + '"'


def _letter(letter: str) -> str:
    """Return one letter of a double-quoted YAML string; YAML has no surrogate pairs, which JSON would write."""
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def changes_that_matter(old: Config, new: Config) -> list[str]:
    """Return the dotted keys that a run cannot go on with when they change.

    Free to change: everything in `run`, `inference` and `distributed`, the network's name, `data.test`,
    `data.in_memory`, `training.iterations`, `training.validation.patience`, and `changes_of_training`.
    """
    return [
        dotted(key)
        for key in _changed(old, new)
        if key[0] not in ("run", "inference", "distributed") and not _below(key, _FREE | _LOGGED)
    ]


def changes_of_training(old: Config, new: Config) -> list[str]:
    """Return the dotted keys with which a run goes on another way when they change.

    They are of the learning rate, its schedule and augmentation, and `training.iterations` if the schedule ends with
    them.
    """
    logged = set(_LOGGED)
    if any(ends_with_iterations(config.training.schedule) for config in (old, new)):
        logged.add(("training", "iterations"))
    return [dotted(key) for key in _changed(old, new) if _below(key, logged)]


def described(
    keys: Sequence[str], old: Config, new: Config, words: tuple[str, str] = ("was", "now")
) -> list[str]:
    """Return changed keys as text with the old and the new value of each, and these words before them."""
    before, after = _flat(plain(old)), _flat(plain(new))
    values = {dotted(key): (before.get(key), after.get(key)) for key in before | after}
    first, second = words
    return [
        f"{key} ({first} {shown(values[key][0])}, {second} {shown(values[key][1])})" for key in keys
    ]


def described_changes(old: Config, new: Config) -> list[str]:
    """Return `changes_that_matter` as text with the old and the new value of each."""
    return described(changes_that_matter(old, new), old, new)


def differing(one: Config, other: Config, words: tuple[str, str]) -> list[str]:
    """Return all keys that two configs differ in, as `described`."""
    return described([dotted(key) for key in _changed(one, other)], one, other, words)


def _changed(old: Config, new: Config) -> list[Key]:
    before, after = _flat(plain(old)), _flat(plain(new))
    return [key for key in before | after if before.get(key) != after.get(key)]


def _below(key: Key, others: set[tuple[str, ...]]) -> bool:
    return any(key[: len(other)] == other for other in others)


def _flat(value: Any, key: Key = ()) -> dict[Key, Any]:
    """Return leaves by key; a list of plain numbers is one leaf, and so is the order of nodes or edges."""
    if isinstance(value, dict) and value:
        flat = {
            k: v for name, inside in value.items() for k, v in _flat(inside, (*key, name)).items()
        }
        order = {(*key, "(order)"): list(value)} if key in _ORDERED else {}
        return flat | order
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return {k: v for i, item in enumerate(value) for k, v in _flat(item, (*key, i)).items()}
    return {key: value}


_ORDERED = {("network", "edges")}
