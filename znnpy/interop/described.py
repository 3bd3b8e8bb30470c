"""JSON and YAML of other programs, read value by value: what is missing or of another type is named by its key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from znnpy.config.reader import read_file
from znnpy.data.process_memory import readable
from znnpy.errors import ConfigError, ModelFileError, reason
from znnpy.fields import shown

MOST = 16 << 20  # bytes of a file; plans have some 100 KiB


@dataclass(frozen=True)
class Described:
    """An object of a JSON file; `where` names file and key."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of_file(cls, path: Path) -> Described:
        """Return the object that a file holds."""
        try:
            with path.open("rb") as file:
                text = file.read(MOST + 1)
            found = json.loads(text) if len(text) <= MOST else None
        except (OSError, ValueError, RecursionError) as error:
            raise ModelFileError(f"{path} cannot be read: {reason(error)[:200]}") from error
        if not isinstance(found, dict):
            raise ModelFileError(f"{path} is no JSON object of at most {readable(MOST)}")
        return cls(found, str(path))

    @classmethod
    def of_yaml(cls, path: Path) -> Described:
        """Return the mapping that a YAML file holds; tags, and what else is more than data, are errors."""
        try:
            document = read_file(path)
        except ConfigError as error:
            raise ModelFileError(str(error)) from error
        for problem in document.problems:
            raise ModelFileError(str(problem))
        if not isinstance(document.data, dict):
            raise ModelFileError(f"{path} is no YAML mapping")
        return cls(document.data, str(path))

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def wrong(self, key: str, needs: str) -> ModelFileError:
        """Return the error that a key is not what it should be."""
        return ModelFileError(f"{self.where}: {key} {needs}; found {shown(self.values.get(key))}")

    def inside(self, key: str) -> Described:
        """Return an object within it."""
        found = self.values.get(key)
        if not isinstance(found, dict):
            raise self.wrong(key, "must be an object")
        return Described(found, f"{self.where}: {key}")

    def text(self, key: str) -> str:
        """Return a text."""
        found = self.values.get(key)
        if not isinstance(found, str):
            raise self.wrong(key, "must be a text")
        return found

    def number(self, key: str) -> float:
        """Return a finite number."""
        return self._number(key, self.values.get(key))

    def numbers(self, key: str) -> list[float]:
        """Return a list of finite numbers."""
        return [self._number(key, value) for value in self.listed(key)]

    def integer(self, key: str) -> int:
        """Return a positive whole number."""
        return self._integer(key, self.values.get(key))

    def integers(self, key: str) -> list[int]:
        """Return a list of positive whole numbers."""
        return [self._integer(key, value) for value in self.listed(key)]

    def listed(self, key: str) -> Sequence[Any]:
        """Return a list."""
        found = self.values.get(key)
        if not isinstance(found, list):
            raise self.wrong(key, "must be a list")
        return found

    def truth(self, key: str, usual: bool = False) -> bool:
        """Return true or false; what is usual where the key is missing."""
        found = self.values.get(key, usual)
        if not isinstance(found, bool):
            raise self.wrong(key, "must be true or false")
        return found

    def only(self, known: Sequence[str]) -> None:
        """Raise ModelFileError for keys that are not known, and not null."""
        for key in self.values:
            if key not in known and key in self:
                raise ModelFileError(
                    f"{self.where}: {key}: {shown(self.values[key])} is not supported; known are {', '.join(known)}"
                )

    def _number(self, key: str, value: Any) -> float:
        if type(value) not in (int, float) or not abs(value) < 1e300:
            raise self.wrong(key, "must be finite numbers")
        return float(value)

    def _integer(self, key: str, value: Any) -> int:
        if type(value) is not int or not 1 <= value < 1 << 20:
            raise self.wrong(key, "must be whole numbers above 0")
        return value
