"""The kernels and other functions that are compiled by themselves, by `module:name`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from znnpy_kernels.machine import source_hash


class Declared(Protocol):
    """A kernel, or another function that is compiled by itself."""

    name: str
    function: Callable[..., Any]


Made = TypeVar("Made", bound=Declared)
# By name: later declarations of one name replace it, as a module that is loaded anew does.
_DECLARED: dict[str, Declared] = {}


def declare(made: Made) -> Made:
    """Enter a function that is compiled by itself; ValueError if it is one of a family and its name is taken."""
    name = full_name(made)
    if made.function.__closure__ and name in _DECLARED:
        raise ValueError(
            f"kernel {name} is declared twice: each of a family needs a name of its own"
        )
    _DECLARED[name] = made
    return made


def full_name(made: Declared) -> str:
    """Return `module:name` of a function that is compiled by itself."""
    return f"{made.__module__}:{made.name}"


def others(made: Declared) -> list[str]:
    """Return further modules whose import declares one of a family: those of the helpers that it is made with."""
    cells = [cell.cell_contents for cell in made.function.__closure__ or ()]
    given = {str(cell.__module__) for cell in cells if hasattr(cell, "py_func")}
    return sorted(given - {made.__module__})


def named(name: str) -> Any:
    """Return the function declared as `module:name`; None if there is none."""
    return _DECLARED.get(name)


def every() -> list[Any]:
    """Return all of this package in the order of names; imports all its modules."""
    for path in source_hash.sources():
        importlib.import_module(
            f"{source_hash.PACKAGE}.{source_hash.module_name(path)}".rstrip(".")
        )
    # Tests declare kernels of their own, which are no part of the package.
    here = f"{source_hash.PACKAGE}."
    return [made for name, made in sorted(_DECLARED.items()) if name.startswith(here)]
