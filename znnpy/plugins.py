"""Loads plug-ins: modules of other packages that add entries to registries when they are imported.

An installed package names its module in its entry points, group `znnpy.plugins`; modules that are not
installed are named by ZNNPY_PLUGINS, with commas between them. Nothing else is ever loaded: no config, run
or volume can name one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from znnpy.errors import ZnnpyError

GROUP = "znnpy.plugins"
VARIABLE = "ZNNPY_PLUGINS"
_loaded: set[str] = set()


def load() -> None:
    """Import all plug-ins that this process has not imported yet; raises ZnnpyError if one cannot be imported.

    The command does so before it parses its arguments, and `znnpy` when its names are first used.
    """
    for module, where in _named():
        if module in _loaded:
            continue
        _loaded.add(module)  # first: a plug-in may use `znnpy` itself
        try:
            import_module(module)
        except Exception as error:
            _loaded.discard(module)
            raise ZnnpyError(
                f"the plug-in {module}, named by {where}, cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error


def _named() -> Iterator[tuple[str, str]]:
    """Yield modules and who names them: installed packages first, sorted by name, then ZNNPY_PLUGINS."""
    yield from _installed(tuple((path, _changed(path)) for path in sys.path))
    for name in os.environ.get(VARIABLE, "").split(","):
        if name.strip():
            yield name.strip(), VARIABLE


@lru_cache(maxsize=1)  # each look opens files of all packages, and a process may run many commands
def _installed(_places: tuple[tuple[str, int], ...]) -> Sequence[tuple[str, str]]:
    """Return what installed packages name; `_places`: the folders that they lie in, and when these changed."""
    if not any(_may_name(path) for path, _ in _places):
        return ()
    from importlib.metadata import entry_points  # slow to import, and reads what all packages name

    points = sorted(entry_points(group=GROUP), key=lambda point: (point.module, point.name))
    packages = [point.dist.name if point.dist else "a package" for point in points]
    return [
        (point.module, f"{package} (entry points {GROUP})")
        for point, package in zip(points, packages, strict=True)
    ]


def _may_name(path: str) -> bool:
    """Return whether a package in a folder may name a module: the group is in its list, or the path is no folder."""
    try:
        with os.scandir(path or os.curdir) as found:
            lists = [it.path for it in found if it.name.lower().endswith(("-info", ".egg"))]
    except FileNotFoundError:
        return False
    except OSError:
        return True  # an archive, as zip files that modules are loaded from
    return any(map(_names_group, lists))


def _names_group(folder: str) -> bool:
    if folder.lower().endswith(".egg"):
        return True
    try:
        with open(f"{folder}/entry_points.txt", "rb", buffering=0) as file:  # noqa: PTH123
            return GROUP.encode() in file.readall()
    except OSError:
        return False


def _changed(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
