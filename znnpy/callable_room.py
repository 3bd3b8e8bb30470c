"""Makes a room callable whose name is that of a public function too: `znnpy.train` is both."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(room: str, home: str) -> None:
    """Make the package `room` call the function of its name in the module `home`, loaded when first called."""

    class Room(ModuleType):
        """A package that is a function, too."""

        def __call__(self, *given: Any, **named: Any) -> Any:
            """Call the function."""
            from znnpy.plugins import load

            function = getattr(import_module(home), room.rpartition(".")[2])
            load()
            return function(*given, **named)

    sys.modules[room].__class__ = Room
