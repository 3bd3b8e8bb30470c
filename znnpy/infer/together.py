"""Several patches of one prediction at once, by whoever else computes: what is asked of them, and which patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from znnpy.engine.model import Model
from znnpy.network.types import Triple

Floats = npt.NDArray[np.float32]
Item = TypeVar("Item")
AHEAD = 2  # patches for each that computes, which are read before any is waited for


class Together(Protocol):
    """Computes `size` patches at once, each as the model that it was made for does."""

    @property
    def size(self) -> int:
        """How many patches a call takes."""

    def __call__(self, images: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return output values (patch, channel, z, y, x) by node for inputs of so many patches."""


Helpers = Callable[[Model, Triple, Mapping[str, Any]], AbstractContextManager[Together]]
"""Makes others ready to compute patches of a shape (z, y, x) as a model with that plan does."""


def groups(items: Iterable[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in groups of `size`, the last one smaller if need be."""
    every = list(items)
    for first in range(0, len(every), size):
        yield every[first : first + size]
