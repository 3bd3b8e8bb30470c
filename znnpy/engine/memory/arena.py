"""One block of memory for everything that tasks touch, so that its size is known before it is taken."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.memory.regions import Buffer, Filled, Name, Use

LINE = 64  # bytes: a cache line and the widest vector, so that aligned loads may be used
SLACK = 64  # floats behind each buffer: vector loads may read past the last voxel, never write


@dataclass(frozen=True)
class Sharing:
    """Where shared buffers of one set of images lie: byte offsets in `bytes` of memory, and who overlaps whom.

    `busiest` are those of the moment at which most bytes are needed, `again` those that are dropped after the
    forward pass and made once more for the backward pass. There are `replicas` such sets, one
    behind the other.
    """

    offsets: Mapping[Name, int]
    bytes: int
    neighbours: Mapping[Name, Sequence[Name]]
    busiest: Sequence[Name]
    replicas: int = 1
    again: Sequence[Name] = ()

    def offset(self, name: Name) -> int:
        """Where a buffer of any set lies."""
        return name.replica * self.bytes + self.offsets[name.of(0)]

    def beside(self, name: Name) -> list[Name]:
        """Whom a buffer of any set overlaps: others of the same set."""
        return [other.of(name.replica) for other in self.neighbours.get(name.of(0), ())]


class Shared(NamedTuple):
    """A buffer that others may share memory with: its bytes and what they are for."""

    bytes: int
    use: Use


class Arena:
    """Hands out addresses one after the other; with no memory behind it, only counts.

    Build once with `Arena()` to learn `bytes`, then again with `Arena.of(bytes)`: the same requests
    in the same order give the same offsets. Memory starts at zero and belongs to the arena. Buffers
    asked for by `share` lie apart too, unless a plan says where: then they lie before all others,
    and whoever uses one finds there what another left.
    """

    def __init__(
        self, memory: NDArray[np.uint8] | None = None, sharing: Sharing | None = None
    ) -> None:
        self._memory = memory
        self._base = 0 if memory is None else int(memory.ctypes.data)
        self._sharing = sharing
        self.bytes = sharing.bytes * sharing.replicas if sharing else 0
        self.most_scratch = 0  # floats that a worker was asked for at most
        self.uses: Counter[str] = Counter()  # bytes of kept buffers by what they are for
        self.shared: dict[Name, Shared] = {}

    @classmethod
    def of(cls, size: int, sharing: Sharing | None = None) -> Arena:
        """An arena with `size` zeroed bytes behind it, aligned to a cache line."""
        return cls(aligned_bytes(size), sharing)

    def again(self, replica: int) -> Sequence[Name]:
        """Buffers of a set of images that are made once more for the backward pass."""
        return [name.of(replica) for name in self._sharing.again] if self._sharing else ()

    @property
    def counting(self) -> bool:
        """Whether addresses are only being counted."""
        return self._memory is None

    def reserve(self, floats: int, use: Use) -> int:
        """Address of room for that many float32, aligned to 64 bytes, slack behind it."""
        return self.take(buffer_bytes(floats), use, self.uses)

    def take(self, size: int, use: Use, uses: Counter[str]) -> int:
        """The same for so many bytes, counted in `uses`."""
        uses[use.told] += size
        return self._take(size)

    def share(self, name: Name, floats: int) -> int:
        """The same for a buffer that is only used from its first task in a step to its last."""
        self.shared[name] = Shared(buffer_bytes(floats), name.use)
        if self._sharing:
            return self._base + self._sharing.offset(name)
        return self._take(buffer_bytes(floats))

    def buffer(
        self, name: Name, floats: int, *, shared: bool = False, filled: Filled = Filled.STEP
    ) -> Buffer:
        """A buffer that all sets of images have in common; see `reserve` and `share`."""
        address = self.share(name, floats) if shared else self.reserve(floats, name.use)
        return Buffer(name, address, floats, filled)

    def view(self, address: int, shape: tuple[int, ...], dtype: str = "f4") -> NDArray[np.generic]:
        """A NumPy view of reserved memory."""
        if self._memory is None:
            raise MemoryError("a counting arena has no memory to look at")
        start = address - self._base
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._memory[start : start + size].view(dtype).reshape(shape)

    def _take(self, size: int) -> int:
        address = self._base + self.bytes
        self.bytes += size
        if self._memory is not None and self.bytes > self._memory.size:
            raise MemoryError("the arena was sized for other buffers than it is asked for")
        return address


@dataclass(frozen=True)
class Replica:
    """One set of images in an arena: its buffers have names of their own. `uses`: as those of the arena."""

    arena: Arena
    number: int = 0
    uses: Counter[str] = field(default_factory=Counter)

    def buffer(
        self, name: Name, floats: int, *, shared: bool = False, filled: Filled = Filled.STEP
    ) -> Buffer:
        """A buffer of this set alone; see `Arena.reserve` and `Arena.share`."""
        own = name.of(self.number)
        if shared:
            return Buffer(own, self.arena.share(own, floats), floats, filled)
        return Buffer(
            own, self.arena.take(buffer_bytes(floats), name.use, self.uses), floats, filled
        )


Memory = Arena | Replica
"""Where buffers are had: for all sets of images, or for one."""


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a cache line."""
    raw = np.frombuffer(_zeros(size + LINE), np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


def _zeros(size: int) -> mmap.mmap:
    """Fresh memory, in large pages where the system has them: they are touched, and found, faster."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def buffer_bytes(floats: int) -> int:
    """Bytes that a buffer of so many float32 takes."""
    return -(-(floats + SLACK) * 4 // LINE) * LINE
