"""An MPI of functions that say what is complete when, and the rest that serves messages by it."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

import numpy as np
from znnpy_kernels.scheduling import mailbox as native
from znnpy_kernels.scheduling.backoff import REST, rest
from znnpy_kernels.scheduling.messages import ENTRY, GRAPH, LOG, MOST

WORD = ctypes.POINTER(ctypes.c_int64)
INTS = ctypes.POINTER(ctypes.c_int)
START = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
TEST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, INTS, INTS, ctypes.c_int64)
PROBE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 3, INTS, ctypes.c_int64)


@dataclass
class Library:
    """An MPI: which handles were started; `rounds` of handles that are complete, one a question; its errors.

    `wakes`: a mailbox that it wakes when it is asked for a message.
    """

    rounds: list[list[int]] = field(default_factory=list)
    wide: int = 8
    start_error: int = 0
    test_error: int = 0
    started: list[int] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)
    wakes: int = 0

    def handle(self, address):
        kind = ctypes.c_int64 if self.wide == 8 else ctypes.c_int32
        return kind.from_address(address).value

    def start(self, address):
        self.started.append(self.handle(address))
        return self.start_error

    def test(self, pending, requests, found, places, statuses):
        asked = [self.handle(requests + self.wide * place) for place in range(pending)]
        self.asked.append(asked)
        complete = self.rounds.pop(0) if self.rounds else []
        found[0] = len(complete)
        for index, handle in enumerate(complete):
            places[index] = asked.index(handle)
        return self.test_error

    def probe(self, source, tag, comm, flag, status):
        flag[0] = 0
        if self.wakes:
            native.wake(self.wakes)
        return 0


class Serving:
    """A rest that serves messages with the handles 100, 101, ... and phases 0, 1, ..."""

    def __init__(self, library, messages, ready=(), control=0, nap=1000, eager=0):
        slots = 1 << (messages - 1).bit_length()
        space = np.zeros((native.SLOTS + native.LINE) // 8 + 2 * slots, np.int64)
        self.mailbox = space.ctypes.data + -space.ctypes.data % native.LINE
        native.prepare(self.mailbox)
        ctypes.c_int64.from_address(self.mailbox + native.MASK).value = slots - 1
        kind = np.int64 if library.wide == 8 else np.int32
        self.handles = np.zeros(messages, np.int64)
        self.handles.view(kind)[:: 8 // library.wide] = 100 + np.arange(messages)
        self.ready, self.phases = np.zeros(messages, np.int64), np.arange(messages)
        self.ready[list(ready)] = 1
        self.sizes, self.left, self.done = 1000 * np.arange(messages), *np.zeros((2, messages), int)
        self.entries, self.log = np.zeros((4, ENTRY), np.int64), np.zeros(len(LOG), np.int64)
        self.graph, self.block = np.zeros(len(GRAPH), np.int64), np.zeros(len(REST), np.int64)
        rooms = [np.zeros(messages, np.int64) for _ in range(4)]
        posted = np.zeros(MOST, np.int64)
        functions = START(library.start), TEST(library.test), PROBE(library.probe)
        start, test, probe = (ctypes.cast(it, ctypes.c_void_p).value for it in functions)
        self.kept = space, rooms, posted, functions
        self._fill(self.log, LOG, mask=3, entries=self.entries)
        self._fill(
            self.graph,
            GRAPH,
            control=control,
            handle_bytes=library.wide,
            start=start,
            handles=self.handles,
            ready=self.ready,
            phases=self.phases,
            sizes=self.sizes,
            started=rooms[0],
            numbers=rooms[1],
            requests=rooms[2],
            indices=rooms[3],
            left_numbers=self.left,
            done_numbers=self.done,
            log=self.log,
            patience=8,
        )
        self._fill(
            self.block,
            REST,
            shortest=nap,
            longest=nap,
            patience=8,
            eager=eager,
            test=test,
            probe=probe,
            graph=self.graph,
            posted=posted,
        )

    def _fill(self, block, at, **values):
        for name, value in values.items():
            block[getattr(at, name)] = (
                getattr(value, "ctypes", None) and value.ctypes.data
            ) or value

    def rest(self, *posts, seconds=60.0):
        """Post messages and rest; return what was left to Python and what is done for Python."""
        for number in posts:
            native.post.call(mailbox=self.mailbox, number=number)
        now = time.monotonic_ns()
        self.block[[REST.active, REST.until]] = now, now + int(seconds * 1e9)
        rest(self.mailbox, self.block.ctypes.data)
        found = [
            numbers[: self.graph[word]].tolist()
            for word, numbers in ((GRAPH.left, self.left), (GRAPH.done, self.done))
        ]
        self.graph[[GRAPH.left, GRAPH.done]] = 0
        return tuple(found)
