"""Lays a task graph out in memory as the control block that the compiled worker loop reads and writes.

The offsets are those of `znnpy_kernels.scheduling.control_block`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.native import SEMAPHORE_WORDS
from znnpy_kernels.scheduling import control_block as at

from znnpy.graph import BANDS, TaskGraph

Ints = NDArray[np.int64]

# Compiled code and the graph have their own constants, since kernels may not import `znnpy`: both must agree.
assert at.BANDS == BANDS
# Semaphores lie between words of others: their size is the C library's.
assert at.SEMAPHORE + 8 * SEMAPHORE_WORDS <= at.EXECUTED
assert at.DONE_SEMAPHORE + 8 * SEMAPHORE_WORDS <= at.GROUP_BYTES


class ControlBlock:
    """One block of memory with everything that workers share, as offsets from its start.

    `worker.prepare(address)` turns the offsets into addresses, once. The memory belongs to this
    object; kernel addresses and argument blocks are the graph's. `near`: by worker, first and end of those that it
    robs first.
    """

    def __init__(
        self,
        graph: TaskGraph,
        workers: int,
        *,
        seed: int,
        record: int,
        spin_ns: int,
        near: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._parts: list[tuple[int, NDArray[np.generic]]] = []
        # The header comes first, at offset 0; all other parts are put behind it in the order of these calls.
        self._end = at.HEADER_BYTES
        header = self._header(graph, workers, record, spin_ns)
        header[at.TASKS // 8] = self._put(self._tasks(graph))
        header[at.PHASES // 8] = self._phases(graph)
        header[at.GROUPS // 8] = self._put(group_table(graph))
        header[at.QUEUES // 8] = self.queues = self._queues(graph, workers, seed, record, near)
        # Last, as the offsets of the other parts are words of it.
        self._parts.append((0, header))
        self.words = self._assemble()
        self.address = int(self.words.ctypes.data)  # on a 128-byte line

    @property
    def releases(self) -> Ints:
        """How often each phase was released, as a view."""
        first = (int(self.words[at.PHASES // 8]) - self.address) // 8
        return self.words[first:][self._counts]

    def queue(self, index: int) -> Ints:
        """Return the words of a worker's queue as a view; the injector's has the index `workers`."""
        first = (self.queues + index * at.QUEUE_BYTES) // 8
        return self.words[first : first + at.QUEUE_BYTES // 8]

    def ring(self, index: int, rows: int, word: int = at.RING) -> Ints:
        """Return a worker's ring buffer as a view, one row an entry; `word` is RING (tasks) or SEARCH_RING."""
        first = (int(self.queue(index)[word // 8]) - self.address) // 8
        return self.words[first : first + 4 * rows].reshape(rows, 4)

    def _put(self, content: NDArray[np.generic]) -> int:
        offset = self._end
        self._parts.append((offset, content))
        # Each part begins on a line of its own, so that workers who write one do not touch another.
        self._end += -(-content.nbytes // at.LINE) * at.LINE
        return offset

    def _assemble(self) -> Ints:
        # NumPy aligns to less: take a line more, and begin at the first whole line.
        space = np.zeros((self._end + at.LINE) // 8, np.int64)
        first = -(space.ctypes.data // 8) % (at.LINE // 8)
        words = space[first : first + self._end // 8]
        octets = words.view(np.uint8)
        for offset, content in self._parts:
            octets[offset : offset + content.nbytes] = content.reshape(-1).view(np.uint8)
        return words

    def _header(self, graph: TaskGraph, workers: int, record: int, spin_ns: int) -> Ints:
        header = np.zeros(at.HEADER_BYTES // 8, np.int64)
        header[at.WORKERS // 8] = workers
        header[at.TASK_COUNT // 8] = graph.size
        header[at.GROUP_COUNT // 8] = graph.groups
        header[at.PHASE_COUNT // 8] = graph.phases
        header[at.RING_ROWS // 8] = record
        header[at.SPIN_NS // 8] = spin_ns
        return header

    def _tasks(self, graph: TaskGraph) -> Ints:
        successors = self._put(entries(graph, graph.successors))
        table = np.zeros((graph.size, at.TASK_BYTES // 8), np.int64)
        table[:, at.COUNTER // 8] = graph.initial
        table[:, at.JOINS // 8] = graph.joins
        table[:, at.KERNEL // 8] = graph.addresses
        table[:, at.ARGUMENTS // 8] = graph.words.ctypes.data + 8 * graph.offsets
        table[:, at.FIRST // 8] = successors + 4 * graph.successor_starts[:-1]
        table[:, at.LAST // 8] = successors + 4 * graph.successor_starts[1:]
        # Members that another member waits for do not count: their group word is -1.
        table[:, at.GROUP // 8] = np.where(counted(graph), graph.group, -1)
        table[:, at.LIGHT // 8] = graph.light
        return table

    def _phases(self, graph: TaskGraph) -> int:
        # In the order of task numbers, so that a release makes tasks ready in a fixed order.
        sources = [np.flatnonzero(graph.phase == phase) for phase in range(graph.phases)]
        ends = np.cumsum([0, *map(len, sources)])
        every = np.concatenate([np.zeros(0, np.int64), *sources])
        # One address more than phases: a phase's sources end where the next one's begin.
        places = self._put(entries(graph, every)) + 4 * ends
        self._counts = slice(len(ends), len(ends) + graph.phases)
        return self._put(np.concatenate([places, np.zeros(graph.phases, np.int64)]))

    def _queues(
        self,
        graph: TaskGraph,
        workers: int,
        seed: int,
        record: int,
        near: Sequence[tuple[int, int]],
    ) -> int:
        rows = np.zeros((workers + 1, at.QUEUE_BYTES // 8), np.int64)
        lengths = np.bincount(graph.band, minlength=at.BANDS)
        # A power of two with room for all tasks of the band: a task is in one deque at a time, so the deque
        # never grows (README, *Deques*). One slot at least, even for a band without tasks.
        capacities = [1 << max(0, int(length) - 1).bit_length() for length in lengths]
        # From 1: xorshift never leaves 0. Below 2^62, so that int64 holds it without a sign.
        randoms = np.random.default_rng(seed).integers(1, 1 << 62, workers + 1)
        for row, (low, end) in zip(rows, near, strict=False):
            row[at.NEAR // 8], row[at.NEAR_END // 8] = low, end
        for index, row in enumerate(rows):
            row[at.RANDOM // 8] = randoms[index]
            for ring in (at.RING, at.SEARCH_RING):
                row[ring // 8] = self._put(np.zeros((record, at.EVENT_BYTES // 8), np.int64))
            for band, capacity in enumerate(capacities):
                row[at.SLOTS // 8 + band] = self._put(np.zeros(capacity, np.int32))
                row[at.MASKS // 8 + band] = capacity - 1
        return self._put(rows)


def entries(graph: TaskGraph, tasks: Ints) -> NDArray[np.int32]:
    """Return tasks as deques and successor lists hold them: the number in the high bits, the band in the low ones."""
    return (tasks << at.BAND_BITS | graph.band[tasks]).astype(np.int32)


def counted(graph: TaskGraph) -> NDArray[np.bool_]:
    """Return which group members count on completion: those that no other member waits for.

    The others have run by then; the fewer tasks write a shared counter, the better.
    """
    before, after = graph.edges(carried=False)
    inner = before[graph.group[before] == graph.group[after]]
    last = graph.group >= 0
    last[inner] = False
    return last


def group_table(graph: TaskGraph) -> Ints:
    """Return one row for each group: members still missing, all members, completions."""
    table = np.zeros((graph.groups, at.GROUP_BYTES // 8), np.int64)
    members = np.bincount(graph.group[counted(graph)], minlength=graph.groups)
    table[:, at.MISSING // 8] = table[:, at.MEMBERS // 8] = members
    return table
