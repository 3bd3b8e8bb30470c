"""`Arena`: one block of memory that holds every buffer; can also only count, so that the size is known in advance."""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.memory.numa import interleave
from znnpy.engine.memory.regions import Buffer, Filled, Name, Use
from znnpy.scheduler.topology import numa_nodes

LINE = 64  # bytes: a cache line, and the widest vector (AVX-512), so that loads may be aligned
FIRST, APART, LAST = 0x7FF1 << 48, 1 << 37, 0x7FF8 << 48
"""Between which numbers, and how many bytes from each other, buffers lie that are only told apart.

As float64 these are NaNs that no arithmetic makes: so no word of a task that is no address is one of them.
"""
TOUCHED = 16 << 20  # bytes of pages that are made at once
# Of <linux/mman.h>, since Linux 5.14; Python's own call would keep the interpreter.
_POPULATE_WRITE = 23
SLACK = 64  # floats behind each buffer, four of the widest vectors: loads may read past the last voxel, stores never do


@dataclass(frozen=True)
class Sharing:
    """Where the buffers that share memory lie: byte offsets within one replica, and which buffers overlap.

    `bytes`: size of a replica; there are `replicas`, one behind the other. `neighbours`: buffers that overlap each
    buffer. `busiest`: the buffers needed at the moment of peak memory. `again`: those that are dropped after the
    forward pass and recomputed for the backward pass.
    """

    offsets: Mapping[Name, int]
    bytes: int
    neighbours: Mapping[Name, Sequence[Name]]
    busiest: Sequence[Name]
    replicas: int = 1
    again: Sequence[Name] = ()

    def offset(self, name: Name) -> int:
        """Return the byte offset of a buffer, of any replica."""
        return name.replica * self.bytes + self.offsets[name.of(0)]

    def beside(self, name: Name) -> list[Name]:
        """Return the buffers that a buffer overlaps, all of its own replica."""
        return [other.of(name.replica) for other in self.neighbours.get(name.of(0), ())]


class Shared(NamedTuple):
    """A buffer that may share memory with others: its bytes and what they are for."""

    bytes: int
    use: Use


class Arena:
    """Hands out addresses one after the other; without memory behind it, only counts.

    Build once with `Arena()` to learn `bytes`, then again with `Arena.of(bytes)`: the same requests in the same order
    give the same offsets. Memory starts at zero and belongs to the arena. With a `sharing`, buffers of `share` lie
    where it says, before all others, and contain what another buffer left there; without, they lie apart. `apart`: so
    far that an address, and those around it, tell which buffer was taken (`moved`). `taken`: buffers with their
    addresses, as they were asked for; names of those of `share` alone. `offsets`: bytes before each of
    those that lie one behind the other, in the order of `taken` where no buffers share memory.
    """

    def __init__(
        self,
        memory: NDArray[np.uint8] | None = None,
        sharing: Sharing | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._memory, self.apart = memory, apart
        self.taken: list[tuple[Name | None, int]] = []
        self.offsets: list[int] = []
        self._base = 0 if memory is None else int(memory.ctypes.data)
        self._sharing = sharing
        # Shared buffers come first, so those that are reserved one after the other begin behind
        # them.
        self.bytes = sharing.bytes * sharing.replicas if sharing else 0
        self.most_scratch = 0  # floats: the largest scratch of a worker that was asked for
        self.uses: Counter[str] = Counter()  # bytes of buffers that share no memory, by use
        self.shared: dict[Name, Shared] = {}

    @classmethod
    def of(cls, size: int, sharing: Sharing | None = None, *, large_pages: bool = True) -> Arena:
        """Return an arena with `size` zeroed bytes behind it, aligned to a cache line.

        Parameters and all else that stays lie on the NUMA nodes in turn; feature maps, where workers touch them first.
        `large_pages`: as `aligned_bytes`.
        """
        memory = aligned_bytes(size, large_pages=large_pages)
        interleave(memory[sharing.bytes * sharing.replicas if sharing else 0 :], numa_nodes())
        return cls(memory, sharing)

    def touch(self) -> None:
        """Have the system make all pages now, which takes less time than one by one, as they are touched.

        For memory of a single NUMA node, all of which is used soon. Any thread may call it, beside others that use the
        memory. Where the system cannot, pages are made as they are touched.
        """
        if self._memory is None or len(numa_nodes()) > 1:
            return
        page, call = mmap.PAGESIZE, ctypes.CDLL(None).madvise
        first = -(-self._base // page) * page
        end = (self._base + self._memory.size) // page * page
        # In parts: while one is made no other thread can ask for memory.
        for low in range(first, end, TOUCHED):
            size = min(TOUCHED, end - low)
            if call(ctypes.c_void_p(low), ctypes.c_size_t(size), _POPULATE_WRITE):
                return

    def again(self, replica: int) -> Sequence[Name]:
        """Return the buffers of a replica that are recomputed for the backward pass."""
        return [name.of(replica) for name in self._sharing.again] if self._sharing else ()

    @property
    def counting(self) -> bool:
        """Whether addresses are only being counted."""
        return self._memory is None and not self.apart

    @property
    def tells(self) -> bool:
        """Whether there are no more buffers, and none larger, than addresses tell apart."""
        return FIRST + len(self.taken) * APART <= LAST and self.bytes < APART // 2

    def reserve(self, floats: int, use: Use) -> int:
        """Reserve room for that many float32, aligned to 64 bytes; return its address."""
        return self.take(buffer_bytes(floats), use, self.uses)

    def take(self, size: int, use: Use, uses: Counter[str]) -> int:
        """Reserve `size` bytes, counted in `uses`; return their address."""
        uses[use.told] += size
        return self._note(None, self._take(size))

    def place(self, name: Name) -> int:
        """Return the address of a buffer that shares memory with others."""
        assert self._sharing
        return self._base + self._sharing.offset(name)

    def share(self, name: Name, floats: int) -> int:
        """Reserve room for a buffer that may share memory with others; return its address."""
        self.shared[name] = Shared(buffer_bytes(floats), name.use)
        placed = self._sharing and not self.apart
        return self._note(name, self.place(name) if placed else self._take(buffer_bytes(floats)))

    def buffer(
        self, name: Name, floats: int, *, shared: bool = False, filled: Filled = Filled.STEP
    ) -> Buffer:
        """Return a new buffer that all replicas have in common; see `reserve` and `share`."""
        address = self.share(name, floats) if shared else self.reserve(floats, name.use)
        return Buffer(name, address, floats, filled)

    def view(self, address: int, shape: tuple[int, ...], dtype: str = "f4") -> NDArray[np.generic]:
        """Return a NumPy view of reserved memory; MemoryError if the arena only counts."""
        if self._memory is None:
            raise MemoryError("a counting arena has no memory to look at")
        start = address - self._base
        size = prod(shape) * np.dtype(dtype).itemsize
        return self._memory[start : start + size].view(dtype).reshape(shape)

    def _note(self, name: Name | None, address: int) -> int:
        self.taken.append((name, address))
        return address

    def _take(self, size: int) -> int:
        address = self._base + self.bytes
        if self.apart:
            address = FIRST + len(self.taken) * APART + APART // 2
        self.offsets.append(self.bytes)
        self.bytes += size
        # The counting build and this one have asked for different buffers: better an error than
        # memory of others.
        if self._memory is not None and self.bytes > self._memory.size:
            raise MemoryError("the arena was sized for other buffers than it is asked for")
        return address


@dataclass(frozen=True)
class Replica:
    """The buffers of one microbatch in flight, with names of their own in the arena. `uses`: as the arena's."""

    arena: Arena
    number: int = 0
    uses: Counter[str] = field(default_factory=Counter)

    def buffer(
        self, name: Name, floats: int, *, shared: bool = False, filled: Filled = Filled.STEP
    ) -> Buffer:
        """Return a new buffer of this replica alone; see `Arena.reserve` and `Arena.share`."""
        own = name.of(self.number)
        if shared:
            return Buffer(own, self.arena.share(own, floats), floats, filled)
        return Buffer(
            own, self.arena.take(buffer_bytes(floats), name.use, self.uses), floats, filled
        )


Memory = Arena | Replica
"""Where a buffer is reserved: in the arena for all replicas, or in one of them."""


def aligned_bytes(size: int, *, large_pages: bool = True) -> NDArray[np.uint8]:
    """Return zeroed memory that begins at a cache line.

    `large_pages`: where the system has them: fewer page faults and TLB misses of what runs for long. Where memory is in
    pieces the system makes room for them first, which takes longer than a short prediction gains.
    """
    # A line more, since pages of a mapping are aligned but NumPy promises nothing.
    raw = np.frombuffer(_zeros(size + LINE, large_pages), np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


def _zeros(size: int, large_pages: bool) -> mmap.mmap:
    """Return fresh memory."""
    # Anonymous pages are zero, and take memory only once they are touched.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if large_pages and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # an operating system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def told(address: int) -> tuple[int, int]:
    """Return the number of the buffer that an address of an arena tells apart, and the bytes from its start."""
    number, inside = divmod(address - FIRST, APART)
    return number, inside - APART // 2


def moved(words: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Move addresses among argument words from where an arena tells buffers apart to their `places`, by number."""
    at = np.flatnonzero((words >= FIRST) & (words < FIRST + len(places) * APART))
    numbers, inside = np.divmod(words[at] - FIRST, APART)
    words[at] = places[numbers] + inside - APART // 2


def buffer_bytes(floats: int) -> int:
    """Return the bytes that a buffer of so many float32 takes, slack and alignment included."""
    return -(-(floats + SLACK) * 4 // LINE) * LINE
