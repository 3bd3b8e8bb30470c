"""What an operator reads and makes: a feature map of a network that is being sketched, and how a program sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from znnpy.network.types import Triple


@dataclass(frozen=True)
class Term:
    """What a program computes on the way to a norm (`written_out.py`): an operation of other terms.

    `kind` x is the feature map of a node; others have `terms`, and a number, axes of the program's tensor or an array.
    """

    kind: str
    terms: tuple[Term, ...] = ()
    node: str = ""
    number: float = 0.0
    axes: tuple[int, ...] = ()
    array: NDArray[np.float32] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Value:
    """The feature map of a node. `channels` and `size` (z, y, x) are its own.

    `seen`: the shape that the program gives it, batch and channels first, which may be other than the feature map's:
    of a flat net (2-D) without z, of means over space one voxel (`spread`), or rearranged by a reshape.
    `turned`: which axis of these each axis of the program's tensor is, where it is transposed. `term`: what it is
    instead, where it is a part of a norm that is written out.
    """

    node: str
    channels: int
    size: Triple
    seen: tuple[int, ...]
    spread: bool = False
    turned: tuple[int, ...] | None = None
    term: Term | None = None

    @property
    def batch(self) -> int:
        """Samples."""
        return self.seen[0] if self.seen else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the program's tensor."""
        return self.seen if self.turned is None else tuple(self.seen[axis] for axis in self.turned)

    @property
    def dimensions(self) -> int:
        """Axes of space that the program knows: 3, or 2 of a flat net."""
        return len(self.seen) - 2

    @property
    def plain(self) -> bool:
        """Whether the program sees samples, channels and space as they are, space as one voxel if it is a mean."""
        if self.turned is not None or self.term is not None:
            return False
        space = (1, 1, 1) if self.spread else self.size
        rest = self.seen[2:]
        flat = len(rest) == 2 and space[0] == 1 and rest == space[1:]
        return self.seen[1:2] == (self.channels,) and (rest == space or flat)

    @property
    def elements(self) -> int:
        """Numbers that the program sees."""
        return prod(self.seen)

    def seen_as(self, shape: tuple[int, ...]) -> Value:
        """Return the same feature map as another shape of as many numbers in the same order."""
        return replace(self, seen=shape)
