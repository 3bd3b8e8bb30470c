"""Configs of bundles as data: literals and references (`@`). Expressions (`$`) and macros (`%`) are never followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.described import Described

SEPARATORS = ("::", "#")  # between the parts of an id; the second in older bundles
DEEPEST = 24
MOST = 20_000  # values, references followed
_CONTROL = ("_target_", "_disabled_", "_requires_", "_mode_", "_desc_")


class UnreadError(ModelFileError):
    """A value that is no data: an expression, a macro, or a reference that leads nowhere."""


@dataclass
class Bundle:
    """A config; `where` names the file. Values are asked for by their ids, parts separated by ::."""

    values: Mapping[str, Any]
    where: str
    left: int = MOST

    @classmethod
    def of_file(cls, path: Path) -> Bundle:
        """Return the config of a JSON or YAML file."""
        said = Described.of_file(path) if path.suffix == ".json" else Described.of_yaml(path)
        return cls(said.values, said.where)

    def first(self, *ids: str) -> str | None:
        """Return the first of these ids that the config has."""
        return next((key for key in ids if self._found(key) is not None), None)

    def data(self, key: str) -> Any:
        """Return a value with all references followed; UnreadError names what is no data."""
        return self._followed(self._raw(key), key, 0)

    def target(self, key: str) -> str:
        """Return the class that an entry names (`_target_`)."""
        raw = self.raw(key)
        if not isinstance(raw, Mapping) or not isinstance(raw.get("_target_"), str):
            raise UnreadError(f"{self.where}: {key} names no class (_target_)")
        if raw.get("_mode_", "default") != "default":
            raise UnreadError(
                f"{self.where}: {key}: _mode_ {str(raw['_mode_'])[:40]} is not supported"
            )
        return str(self._followed(raw["_target_"], f"{key}::_target_", 0))

    def arguments(self, key: str, only: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the arguments of an entry as data: all, or those of some names alone."""
        raw = self.raw(key)
        names = [name for name in raw if name not in _CONTROL and (only is None or name in only)]
        return {name: self._followed(raw[name], f"{key}::{name}", 1) for name in names}

    def raw(self, key: str) -> Any:
        """Return a value as it stands; where that is a reference by itself, what it names."""
        found = self._raw(key)
        for _ in range(DEEPEST):
            if not (isinstance(found, str) and found.startswith("@")):
                return found
            found = self._raw(found[1:])
        raise UnreadError(f"{self.where}: {key} refers to itself")

    def items(self, key: str) -> list[str]:
        """Return the ids of the entries of a list."""
        found = self.raw(key)
        if not isinstance(found, list):
            raise UnreadError(f"{self.where}: {key} is no list: {_shown(found)}")
        return [f"{key}::{number}" for number in range(len(found))]

    def _raw(self, key: str) -> Any:
        found = self._found(key)
        if found is None:
            raise UnreadError(f"{self.where}: has no {key[:80]}")
        return found

    def _found(self, key: str) -> Any:
        value: Any = self.values
        for part in key.replace(SEPARATORS[1], SEPARATORS[0]).split(SEPARATORS[0]):
            if isinstance(value, str) and value.startswith("@"):
                value = self.raw(value[1:])
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value

    def _followed(self, value: Any, key: str, depth: int) -> Any:
        self.left -= 1
        if depth > DEEPEST or self.left < 0:
            raise UnreadError(f"{self.where}: {key[:120]} refers to itself, or holds too much")
        if isinstance(value, str):
            if value.startswith(("$", "%")):
                what = "an expression" if value[0] == "$" else "a macro"
                raise UnreadError(
                    f"{self.where}: {key[:120]}: {_shown(value)} is {what}, which is not run: write its value there"
                )
            return (
                self._followed(self._raw(value[1:]), key, depth + 1)
                if value.startswith("@")
                else value
            )
        if isinstance(value, Mapping):
            return {n: self._followed(v, f"{key}::{n}", depth + 1) for n, v in value.items()}
        if isinstance(value, list):
            return [self._followed(v, f"{key}::{n}", depth + 1) for n, v in enumerate(value)]
        return value


def transform_name(target: str) -> str:
    """Return the name of a transform without what says that it takes a dict: Spacingd and SpacingDict are one."""
    name = target.rpartition(".")[2]
    suffix = next((ending for ending in ("Dict", "D", "d") if name.endswith(ending)), "")
    return name.removesuffix(suffix)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
