"""`Keywords`: the arguments of a class as data, what is usual where one is missing, and others refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.fields import shown
from znnpy.interop.described import Described

DEEPEST = 16  # lists within lists


@dataclass(frozen=True)
class Keywords(Described):
    """Arguments by name, with what is usual for those that were not given; `where` names file and class."""

    @classmethod
    def of(cls, given: Mapping[str, Any], usual: Mapping[str, Any], where: str) -> Keywords:
        """Return arguments as plain values; ModelFileError for those that the class does not have."""
        for key, value in given.items():
            if key not in usual:
                raise ModelFileError(
                    f"{where}: {str(key)[:60]}: {shown(value)} is not supported; known are {', '.join(usual)}"
                )
        return cls({**usual, **{key: plain(value, where) for key, value in given.items()}}, where)

    def sizes(self, key: str) -> Any:
        """Return a positive whole number, or a list of them, one for each axis."""
        return self.integers(key) if isinstance(self.values.get(key), list) else self.integer(key)

    def each(self, key: str) -> list[Any]:
        """Return a list of sizes, each one a positive whole number or a list of them."""
        return [self._size(key, value) for value in self.listed(key)]

    def repeated(self, key: str, times: int) -> list[int]:
        """Return so many positive whole numbers: a list, or one that stands for all."""
        found = self.sizes(key)
        many = found if isinstance(found, list) else [found] * times
        if len(many) != times:
            raise self.wrong(key, f"must hold {times} numbers")
        return many

    def named(self, key: str) -> tuple[str, Keywords] | None:
        """Return a name and its arguments of NAME or [NAME, {arguments}]; None where there is none, or ""."""
        found = self.values.get(key)
        if found in (None, ""):
            return None
        name, more = found if isinstance(found, list) and len(found) == 2 else (found, {})
        if not isinstance(name, str) or not isinstance(more, dict):
            raise self.wrong(key, "must be a name, or a name and a mapping")
        return name, Keywords(more, f"{self.where}: {key}: {name[:40]}")

    def dimensions(self, key: str = "spatial_dims") -> int:
        """Return 2 or 3."""
        found = self.integer(key)
        if found not in (2, 3):
            raise self.wrong(key, "must be 2 or 3")
        return found

    def refuse(self, key: str, usual: Any, why: str = "is not supported") -> None:
        """Raise ModelFileError unless an argument is what is usual."""
        if self.values.get(key) != usual:
            raise self.wrong(key, why)

    def _size(self, key: str, value: Any) -> Any:
        many = value if isinstance(value, list) else [value]
        if not many or not all(type(n) is int and 1 <= n < 1 << 12 for n in many):
            raise self.wrong(key, "must hold whole numbers above 0, or lists of them")
        return value


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return numbers, texts, lists (of tuples, too) and mappings as they are; ModelFileError for other values."""
    if depth > DEEPEST:
        raise ModelFileError(f"{where}: values lie more than {DEEPEST} levels deep")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner, where, depth + 1) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner, where, depth + 1) for inner in value]
    raise ModelFileError(
        f"{where}: a value of type {type(value).__name__} is no argument that can be read"
    )
