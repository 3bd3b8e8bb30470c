"""What tasks say that they touch: ranges of buffers, by which their order is found.

A buffer is known by itself: who wants to touch the same memory must hold the same buffer, so that
no misspelt name makes another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from znnpy.layers.types import BorderName, Sides
from znnpy.network.types import Triple

WHOLE = 1 << 40
"""An end of ranges: more than any buffer has of whatever they count."""


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """What buffers are for, in words; reports of memory count those `together` that say the same there.

    Each is itself alone: emitters hold those that they need.
    """

    what: str
    together: str = ""

    @property
    def told(self) -> str:
        """What reports say."""
        return self.together or self.what


SMALL = "small buffers"


class Filled(Enum):
    """By whom a buffer is filled before tasks of a step read it."""

    STEP = "tasks of the same step"
    EARLIER = "tasks of an earlier step, or of another graph"
    OUTSIDE = "nobody among the tasks"


class Name(NamedTuple):
    """A buffer's name: what it is for, the node, edge or parameter whose it is, and which of those.

    `replica`: the set of images to which it belongs; 0 also for what all sets have in common.
    """

    use: Use
    owner: str = ""
    which: tuple[int | BorderName | Triple | Sides | Enum, ...] = ()
    replica: int = 0

    def of(self, replica: int) -> Name:
        """The buffer of the same name in another set."""
        return self._replace(replica=replica)

    def __str__(self) -> str:
        return f"{self.use.what} of {self.owner}" if self.owner else self.use.what


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Memory that tasks touch, `floats` float32 at `address`; every one is itself alone.

    It may have sections, such as the blocks of a tensor: their regions never overlap.
    """

    name: Name
    address: int = 0
    floats: int = 0
    filled: Filled = Filled.STEP

    def region(
        self, low: int = 0, high: int = WHOLE, *, section: int = 0, strand: int = -1
    ) -> Region:
        """The range low..high of a section, in whatever all its users count."""
        return Region(self, low, high, section, strand)


Key = tuple[Buffer, int]
"""A buffer and the number of a section: regions of different keys never overlap."""


class Region(NamedTuple):
    """A range low..high of a section of a buffer; ranges of one section may overlap.

    `strand` >= 0 means some of that memory, such as single lanes, single tiles, or the voxels of one
    lattice: different strands never overlap.
    """

    buffer: Buffer
    low: int = 0
    high: int = WHOLE
    section: int = 0
    strand: int = -1

    @property
    def key(self) -> Key:
        """What it is a range of."""
        return self.buffer, self.section

    def overlaps(self, other: Region) -> bool:
        """Whether both can mean the same memory; the keys are taken as equal."""
        meet = self.strand < 0 or other.strand < 0 or self.strand == other.strand
        return meet and self.low < other.high and other.low < self.high
