"""`lazily`: a module that is loaded when something of it is first asked for, where many processes ask for nothing.

Beside an import for type checkers, by which import contracts see it, too:

    if TYPE_CHECKING:
        from znnpy.engine import emit
    else:
        emit = lazily("znnpy.engine.emit")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Later:
    """Stands for a module; any threads may use it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # Kept nowhere: what replaces a name in the module, as tests do, is seen here, too.
        return getattr(import_module(self._name), name)


def lazily(name: str) -> Any:
    """Return what stands for the module of this whole name; ImportError, once it is used, where there is none."""
    return _Later(name)
