"""Buffers and regions (ranges of buffers) that tasks declare to read or write; the order of tasks follows from these.

Buffers are compared by identity: two tasks touch the same memory only if they hold the same `Buffer`, so a misspelt
name cannot make another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from threading import RLock
from typing import NamedTuple

from znnpy.layers.types import BorderName, Sides
from znnpy.network.types import Triple

WHOLE = 1 << 40
"""The open end of a range: larger than any count of any buffer."""


_TURN = RLock()
_FORESEEN: dict[tuple[str, str], Use] = {}
_USES: dict[tuple[str, str], Use | None] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """The use of a buffer, in words; reports of memory add up those with the same `together`.

    Compared by identity: emitters hold the ones that they need.
    """

    what: str
    together: str = ""

    def __new__(cls, what: str, together: str = "") -> Use:
        """Return a new use, or the one that was foreseen."""
        words = what, together
        with _TURN:
            if found := _FORESEEN.pop(words, None):
                return found
            made = object.__new__(cls)
            _USES[words] = None if words in _USES else made
            return made

    @property
    def told(self) -> str:
        """The words under which reports count it."""
        return self.together or self.what


def use_of(what: str, together: str) -> Use | None:
    """Return the use of these words; None if there is none, or more than one."""
    return _USES.get((what, together))


def foreseen(what: str, together: str) -> Use | None:
    """Return `use_of`, or the use that an emitter will hold which is loaded later."""
    words = what, together
    with _TURN:
        if words not in _USES:
            _FORESEEN[words] = Use(what, together)
        return _USES[words]


# What takes a few kilobytes is told together, so that reports show what matters.
SMALL = "small buffers"


class Filled(Enum):
    """Who fills a buffer before tasks of a step read it."""

    STEP = "tasks of the same step"
    EARLIER = "tasks of an earlier step, or of another graph"
    OUTSIDE = "nobody among the tasks"


class Name(NamedTuple):
    """A buffer's name: what it is for, the node, edge or parameter it belongs to, and which of several.

    `replica`: the microbatch in flight to which it belongs; 0 also for what all have in common.
    """

    use: Use
    owner: str = ""
    which: tuple[int | BorderName | Triple | Sides | Enum, ...] = ()
    replica: int = 0

    def of(self, replica: int) -> Name:
        """Return the name of the same buffer in another replica."""
        return self._replace(replica=replica)

    def __str__(self) -> str:
        return f"{self.use.what} of {self.owner}" if self.owner else self.use.what


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Memory that tasks touch: `floats` float32 at `address`; compared by identity.

    It may have sections, such as the samples of a tensor; regions of different sections never overlap.
    """

    name: Name
    address: int = 0
    floats: int = 0
    filled: Filled = Filled.STEP

    def region(
        self, low: int = 0, high: int = WHOLE, *, section: int = 0, strand: int = -1
    ) -> Region:
        """Return the range low..high of a section, in units on which all its users agree (planes, pieces, leaves)."""
        # Units are the users' own: a region means nothing to any other buffer.
        return Region(self, low, high, section, strand)


@dataclass(frozen=True, eq=False, slots=True)
class BufferPart(Buffer):
    """A part of another buffer: `count` units of its regions from `first` on; regions are the other buffer's."""

    whole: Buffer = field(kw_only=True)
    first: int = 0
    count: int = 0

    def region(
        self, low: int = 0, high: int = WHOLE, *, section: int = 0, strand: int = -1
    ) -> Region:
        """Return the range low..high of the part, as a region of the whole."""
        first, end = self.first, self.first + min(high, self.count)
        return self.whole.region(first + low, end, section=section, strand=strand)


Key = tuple[Buffer, int]
"""A buffer and the number of a section: regions of different keys never overlap."""


class Region(NamedTuple):
    """A range low..high of a section of a buffer; ranges of one section may overlap.

    `strand` >= 0 is an interleaved part of the range, such as a lane, a tile or the voxels of one phase: different
    strands never overlap. -1: all of the range.
    """

    buffer: Buffer
    low: int = 0
    high: int = WHOLE
    section: int = 0
    strand: int = -1

    @property
    def key(self) -> Key:
        """The buffer and section that it is a range of."""
        return self.buffer, self.section

    def as_strand(self, strand: int) -> Region:
        """Return this strand of it; -1: all of the range."""
        # Not `_replace`, which takes three times as long: large networks have millions of regions.
        return Region(self.buffer, self.low, self.high, self.section, strand)

    def overlaps(self, other: Region) -> bool:
        """Return whether both can touch the same memory, given that their keys are equal."""
        # Strands only tell regions apart if both have one: -1 stands for all of them.
        meet = self.strand < 0 or other.strand < 0 or self.strand == other.strand
        return meet and self.low < other.high and other.low < self.high


def joined(regions: Iterable[Region]) -> list[Region]:
    """Return regions with each joined to the one before it of the same section and strand where they touch."""
    found = list[Region]()
    places = dict[tuple[Buffer, int, int], int]()
    for region in regions:
        buffer, low, high, section, strand = region
        place = places.setdefault((buffer, section, strand), len(found))
        if place < len(found):
            _, first, last, _, _ = found[place]
            if low <= last and first <= high:
                both = min(low, first), max(high, last)
                found[place] = Region(buffer, *both, section, strand)
                continue
            places[buffer, section, strand] = len(found)
        found.append(region)
    return found
