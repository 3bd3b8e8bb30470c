"""Counts the releases of a phase so that a Ctrl-C at any moment leaves the count right.

Python runs signal handlers only between calls of C functions, so the call and its count are one call of C.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any


class Releases:
    """Counts the calls of a compiled function."""

    def __init__(self) -> None:
        self._numbers = count(1)
        # One entry: the last number is all that is asked for, and nothing grows with the number of releases.
        self._last: deque[tuple[Any, int]] = deque([(None, 0)], maxlen=1)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the function and count the call, in one call of C within which no signal handler runs."""
        # `map` and `zip` run within `extend`: the function is called and its number drawn before Python code,
        # and so a signal handler, can run again.
        self._last.extend(zip(map(function, *zip(arguments)), self._numbers, strict=False))

    @property
    def number(self) -> int:
        """The number of calls so far."""
        return self._last[0][1]
