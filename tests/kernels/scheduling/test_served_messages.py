"""Messages that compiled code starts and completes, with functions in MPI's place that say what is complete when."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import add_acq_rel
from znnpy_kernels.scheduling import mailbox as native
from znnpy_kernels.scheduling.backoff import REST, rest
from znnpy_kernels.scheduling.control_block import HEADER_BYTES, SLEEPERS
from znnpy_kernels.scheduling.messages import ENTRY, GRAPH, LOG, MOST

from znnpy.graph import GraphBuilder, Named
from znnpy.scheduler import Executor

WORD = ctypes.POINTER(ctypes.c_int64)
INTS = ctypes.POINTER(ctypes.c_int)
START = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
TEST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, INTS, INTS, ctypes.c_int64)
PROBE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 3, INTS, ctypes.c_int64)
COUNT = words("word")
SLOTS = 64


@kernel(COUNT)
def count(args, worker):
    """Add one to a word."""
    add_acq_rel(args[COUNT.word], 1)


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
        space = np.zeros((native.SLOTS + native.LINE) // 8 + 2 * SLOTS, np.int64)
        self.mailbox = space.ctypes.data + -space.ctypes.data % native.LINE
        native.prepare(self.mailbox)
        ctypes.c_int64.from_address(self.mailbox + native.MASK).value = SLOTS - 1
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


@pytest.mark.parametrize("wide", [4, 8])
def test_what_is_prepared_starts_and_completes_here(wide):
    library = Library([[], [102, 100], [], [101]], wide)
    serving = Serving(library, 4, ready=[0, 1, 2])
    assert serving.rest(0, 1, 2) == ([], [2, 0])
    assert library.started == [100, 101, 102]
    assert serving.rest() == ([], [1])
    # What is complete is not asked for again, and the rest keeps its order.
    assert library.asked == [[100, 101, 102]] * 2 + [[101]] * 2
    assert serving.log[[LOG.passed, LOG.bytes]].tolist() == [3, 3000]
    numbers, posted, started, arrived = serving.entries[:3].T
    assert numbers.tolist() == [2, 0, 1]
    assert ((posted > 0) & (posted <= started) & (started <= arrived)).all()
    assert serving.log[LOG.seconds] == (arrived - posted).sum()


def test_posts_of_what_is_not_prepared_are_left_to_python():
    library = Library()
    serving = Serving(library, 4, ready=[3])
    assert serving.rest(2, 3, 0) == ([2, 0], [])
    assert library.started == [103]


def test_the_log_keeps_the_last_ones():
    library = Library([[100 + number] for number in range(6)])
    serving = Serving(library, 6, ready=range(6))
    for number in range(6):
        assert serving.rest(number) == ([], [number])
    assert serving.entries[:, 0].tolist() == [4, 5, 2, 3]


@pytest.mark.parametrize("where", ["start_error", "test_error"])
def test_an_error_of_the_library_ends_the_rest(where):
    serving = Serving(Library(**{where: 7}), 1, ready=[0], nap=int(3600e9))
    serving.rest(0)
    assert serving.block[REST.error] == 7


def _counted(phases):
    """A graph with a task in each phase, which adds to a word of its own."""
    builder, found = GraphBuilder(), np.zeros(phases, np.int64)
    for phase in range(phases):
        word = count.arguments(word=found.ctypes.data + 8 * phase)
        builder.task(count.address, word, Named("counted"), cost=1.0, phase=phase, group=phase)
    return builder.build(), found


def test_complete_messages_release_their_phase():
    graph, found = _counted(3)
    with Executor(graph, workers=1) as executor:
        library = Library([[101], [100, 102]])
        serving = Serving(library, 3, range(3), int(executor.control.ctypes.data))
        assert serving.rest(0, 1, 2, seconds=0.05) == ([], [])
        for phase in range(3):
            assert executor.wait(phase, 1)
    assert found.tolist() == [1, 1, 1]
    assert serving.graph[GRAPH.under_way] == 0


@pytest.mark.parametrize(
    ("sleepers", "eager", "posts", "naps"),
    [(1, True, [0], 0), (0, True, [0], 1), (1, False, [0], 1), (1, True, [], 1)],
)
def test_it_asks_without_naps_while_workers_sleep_for_what_is_under_way(
    sleepers, eager, posts, naps
):
    control = np.zeros(HEADER_BYTES // 8, np.int64)
    control[SLEEPERS // 8] = sleepers
    hour, library = int(3600e9), Library()
    address = int(control.ctypes.data)
    serving = Serving(library, 1, [0], address, nap=hour, eager=hour if eager else 0)
    # It wakes it at the first look: a nap ends by that, and without one it is seen at the next look.
    library.wakes = serving.mailbox
    serving.rest(*posts, seconds=3600)
    assert serving.block[REST.naps] == naps
