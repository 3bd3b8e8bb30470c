"""What tasks say that they touch: ranges of memory, by which their order is found."""

from __future__ import annotations

from typing import NamedTuple


class Region(NamedTuple):
    """A range low..high of something identified by `key`; ranges of one key may overlap.

    `strand` >= 0 means some of that memory, such as single lanes, single tiles, or the voxels of one
    lattice: different strands never overlap.
    """

    key: tuple[object, ...]
    low: int = 0
    high: int = 1
    strand: int = -1

    def overlaps(self, other: Region) -> bool:
        """Whether both can mean the same memory; the keys are taken as equal."""
        meet = self.strand < 0 or other.strand < 0 or self.strand == other.strand
        return meet and self.low < other.high and other.low < self.high
