"""How often something was done, right whenever Ctrl-C comes: Python hears of signals between its calls alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any


class Releases:
    """Counts calls of a compiled function."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._last: deque[tuple[Any, int]] = deque([(None, 0)], maxlen=1)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it and count that: one call of Python's own, within which no signal handler runs."""
        once = ((argument,) for argument in arguments)
        self._last.extend(zip(map(function, *once), self._numbers, strict=False))

    @property
    def number(self) -> int:
        """Of the last call, counted from 1; 0 before the first."""
        return self._last[0][1]
