"""What tasks say that they touch: ranges of memory, by which their order is found."""

from __future__ import annotations

from typing import NamedTuple


class Region(NamedTuple):
    """A range low..high of something identified by `key`; ranges of one key may overlap.

    `lane` >= 0 means those lanes of a block that one task alone writes: different ones never overlap.
    """

    key: tuple[object, ...]
    low: int = 0
    high: int = 1
    lane: int = -1

    def overlaps(self, other: Region) -> bool:
        """Whether both can mean the same memory; the keys are taken as equal."""
        lanes = self.lane < 0 or other.lane < 0 or self.lane == other.lane
        return lanes and self.low < other.high and other.low < self.high
