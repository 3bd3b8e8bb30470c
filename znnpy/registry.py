"""Registries: the entries of one kind by name, to which other packages add their own."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from znnpy.aliases import canonical, serve
from znnpy.errors import ZnnpyError


class Named(Protocol):
    """Protocol of an entry: it has a name."""

    @property
    def name(self) -> str:
        """Name of the entry, by which users choose it."""


Entry = TypeVar("Entry", bound=Named)


class Registry(dict[str, Entry]):
    """All entries of one kind by name, in the order in which they were added.

    `add` takes entries of other packages, at any time: readers look entries up when they need them.
    `key`: of a config, whose values the names are; an entry's `aliases`, if it has some, mean it there as well.
    """

    def __init__(self, what: str, entries: Iterable[Entry] = (), key: str = "") -> None:
        super().__init__()
        self.what, self.key = what, key
        if key:
            serve(key, self)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> Entry:
        """Add an entry and return it; raises ZnnpyError if another has its name or an alias of it."""
        if (meant := canonical(self.key, entry.name)) != entry.name:
            raise ZnnpyError(
                f"{entry.name!r} is an alias of {self.what} {meant!r}; choose another name"
            )
        if entry.name in self and self[entry.name] is not entry:
            raise ZnnpyError(f"there is a {self.what} {entry.name!r} already; choose another name")
        for alias in getattr(entry, "aliases", ()):
            if alias in self or canonical(self.key, alias) not in (alias, entry.name):
                raise ZnnpyError(
                    f"{alias!r}, an alias of {self.what} {entry.name!r}, means another; choose another alias"
                )
        self[entry.name] = entry
        return entry


def resolved(named: Any) -> Any:
    """Return the object that "module:name" stands for, imported now; anything but text unchanged.

    An entry can so name what is slow to import. Raises ZnnpyError if there is no such module or name.
    """
    if not isinstance(named, str):
        return named
    try:
        return pkgutil.resolve_name(named)
    except (ImportError, AttributeError, ValueError) as error:
        raise ZnnpyError(f"{named!r} names nothing: {error}") from error
