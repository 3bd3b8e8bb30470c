"""Numbers all valid patch positions of several scenes, and finds a patch's boxes in volumes under flips."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from znnpy.data.volume import Triple

Flips = tuple[bool, bool, bool]
NO_FLIPS: Flips = (False, False, False)
Range = tuple[Triple, Triple]
"""lower <= (z, y, x) < upper: positions, or voxels."""


@dataclass(frozen=True)
class Places:
    """Valid positions of all scenes: the `ranges` of each, and `ends`, the running total of their numbers."""

    ranges: tuple[Range, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> Places:
        """Return the places of some ranges."""
        return cls(tuple(ranges), tuple(itertools.accumulate(number_of(*r) for r in ranges)))

    def at(self, place: int) -> tuple[int, Triple]:
        """Return scene and position of place 0 .. ends[-1] - 1, x fastest."""
        scene = bisect_right(self.ends, place)
        (z, y, x), (_, bottom, right) = self.ranges[scene]
        rest = place - (self.ends[scene - 1] if scene else 0)
        rest, column = divmod(rest, right - x)
        plane, row = divmod(rest, bottom - y)
        return scene, (z + plane, y + row, x + column)


@dataclass(frozen=True)
class Box:
    """The box of a patch within the first input's patch, z, y, x."""

    lower: Triple
    extent: Triple

    def placed(self, position: Triple, frame: Triple, flips: Flips) -> Triple:
        """Return its lower corner in a volume, before the turn is undone by flipping what was read."""
        z, y, x = (
            p + (whole - low - size if flip else low)
            for p, whole, low, size, flip in zip(
                position, frame, self.lower, self.extent, flips, strict=True
            )
        )
        return (z, y, x)

    def covered(self, positions: Range, frame: Triple, flips: Flips) -> Range:
        """Return all voxels that it covers at some positions, of which there is at least one."""
        lower, upper = positions
        last = self.placed(minus(upper, (1, 1, 1)), frame, flips)
        return self.placed(lower, frame, flips), plus(last, self.extent)


def box_in(frame: Triple, extent: Triple, offset: Triple | None) -> Box:
    """Return a box at an offset in a frame; without an offset, in the middle."""
    if offset is None:
        z, y, x = ((whole - size) // 2 for whole, size in zip(frame, extent, strict=True))
        offset = (z, y, x)
    return Box(offset, extent)


def number_of(lower: Triple, upper: Triple) -> int:
    """Return the number of positions of a range."""
    z, y, x = (max(0, b - a) for a, b in zip(lower, upper, strict=True))
    return z * y * x


def hull(a: Range, b: Range) -> Range:
    """Return the smallest range that holds both."""
    z, y, x = (min(pair) for pair in zip(a[0], b[0], strict=True))
    bottom, height, width = (max(pair) for pair in zip(a[1], b[1], strict=True))
    return (z, y, x), (bottom, height, width)


def plus(a: Triple, b: Triple) -> Triple:
    """Return the sum of two triples, axis by axis."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def minus(a: Triple, b: Triple) -> Triple:
    """Return the difference of two triples, axis by axis."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])
