"""Messages that compiled code starts and completes, with functions in MPI's place that say what is complete when."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from served import Library, Serving
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import add_acq_rel
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.scheduling.backoff import EAGER_LOOKS, OWN_LOOKS, REST, TURN, rest
from znnpy_kernels.scheduling.control_block import (
    AWAKE,
    HEADER_BYTES,
    PARKED,
    QUEUE_BYTES,
    QUEUES,
    SEARCHING,
    SLEEPERS,
    STATE,
    WORKERS,
)
from znnpy_kernels.scheduling.mailbox import wake
from znnpy_kernels.scheduling.messages import GRAPH, LOG, MOST

from znnpy.graph import GraphBuilder, Named
from znnpy.scheduler import Executor

COUNT = words("word")
SYSTEM = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 5)
SLEEP = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 3)


@kernel(COUNT)
def count(args, worker):
    """Add one to a word."""
    add_acq_rel(args[COUNT.word], 1)


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


def test_all_that_is_posted_starts_in_one_look():
    """More than are taken at once: their posts may have ended the nap before, and would end no other."""
    library, count = Library(), 2 * MOST + 3
    assert Serving(library, count, range(count)).rest(*range(count), seconds=-1.0) == ([], [])
    assert library.started == [*range(100, 100 + count)]


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


LOOK = words("place word")


@kernel(LOOK)
def look(args, worker):
    """Copy a word."""
    longs(args[LOOK.word])[0] = longs(args[LOOK.place])[0]


def test_a_worker_says_that_it_looks_for_tasks_until_it_has_one():
    builder, seen = GraphBuilder(), np.full(1, -1)
    given = look.arguments(place=0, word=seen.ctypes.data)
    builder.task(look.address, given, Named("look"), cost=1.0, phase=0, group=0)
    graph = builder.build()
    with Executor(graph, workers=1, spin_ns=int(3600e9)) as executor:
        control = executor.control
        state = int(control[QUEUES // 8] - control.ctypes.data + STATE)
        graph.arguments(0)[LOOK.place] = control.ctypes.data + state
        end = time.monotonic() + 60
        while control[state // 8] != SEARCHING:
            assert time.monotonic() < end
        executor.release(0)
        assert executor.wait(0, 1)
    assert seen.tolist() == [AWAKE]


def two_workers(state):
    """A control block of which one worker has a task and the other this state."""
    control = np.zeros((HEADER_BYTES + 2 * QUEUE_BYTES) // 8, np.int64)
    control[[WORKERS // 8, SLEEPERS // 8]] = 2, state == PARKED
    control[QUEUES // 8] = control.ctypes.data + HEADER_BYTES
    control[(HEADER_BYTES + QUEUE_BYTES + STATE) // 8] = state
    return control


@pytest.mark.parametrize(
    ("state", "eager", "posts", "naps"),
    [
        (PARKED, True, [0], 0),
        (SEARCHING, True, [0], 0),
        (AWAKE, True, [0], 1),
        (PARKED, False, [0], 1),
        (SEARCHING, True, [], 0),
    ],
)
def test_it_asks_without_naps_while_a_worker_has_no_task(state, eager, posts, naps):
    hour, library, control = int(3600e9), Library(), two_workers(state)
    address = int(control.ctypes.data)
    serving = Serving(library, 1, [0], address, nap=hour, eager=hour if eager else 0)
    # It wakes it at the first look: a nap ends by that, and without one it is seen at the next look.
    library.wakes = serving.mailbox
    serving.rest(*posts, seconds=3600)
    assert serving.block[REST.naps] == naps


@pytest.mark.parametrize(
    ("state", "control", "part"), [(AWAKE, True, 2), (PARKED, True, 8), (AWAKE, False, 8)]
)
def test_while_all_workers_have_tasks_it_looks_less_often(state, control, part):
    """Where nothing has happened for long, that a busy machine may delay it is little beside."""
    idle, block, library = 1000, two_workers(state), Library()
    served = Serving(library, 1, [0], int(block.ctypes.data) if control else 0)
    naps = []

    def wait(semaphore, clock, until):
        seconds, nanos = (ctypes.c_int64.from_address(until + 8 * word).value for word in (0, 1))
        naps.append(seconds + nanos / 1e9 - time.monotonic())
        wake(served.mailbox)
        return 1

    called = SLEEP(wait)
    served._fill(
        served.block,
        REST,
        wait=ctypes.cast(called, ctypes.c_void_p).value,
        longest=int(3600e9),
        active=time.monotonic_ns() - idle * 10**9,
        until=1 << 62,
    )
    served.graph[GRAPH.patience] = 2
    rest(served.mailbox, served.block.ctypes.data)
    assert naps == [pytest.approx(idle / part, abs=50)]


@pytest.mark.parametrize(
    ("number", "runtime", "period", "given"),
    [
        (314, 100_000, 0, 2),
        (0, 100_000, 0, 0),  # not Linux
        (314, 0, 0, 0),  # before 6.12, or a real-time thread
        (314, 100_000, 7, 0),  # a thread with deadlines
    ],
)
def test_between_its_looks_others_have_the_core(number, runtime, period, given):
    """Its turns become longer by a nanosecond, and as long as they were; all else is as the system says."""
    hour, library, control = int(3600e9), Library(), two_workers(SEARCHING)
    serving = Serving(library, 1, [0], int(control.ctypes.data), nap=hour, eager=hour)
    library.wakes = serving.mailbox
    calls, turn = [], np.zeros(len(TURN), np.int64)

    def system(asked, thread, place, size, rest):
        told = turn.tolist() if asked == number else None
        calls.append((asked, thread, place, told, len(library.asked)))
        if asked == number + 1:
            assert size == turn.nbytes
            turn[:] = 48, 5, 6, runtime + bool(runtime and len(calls) > 1), 8, period
        return 0

    called = SYSTEM(system)
    address = ctypes.cast(called, ctypes.c_void_p).value
    serving._fill(serving.block, REST, system=address, set_turn=number, turn=turn)
    serving.rest(0, seconds=3600)
    looks = [OWN_LOOKS * turn + 1 for turn in range(1, EAGER_LOOKS // OWN_LOOKS + 1)]
    assert [asked for asked, *_ in calls] == ([number + 1] + [number] * bool(given)) * (
        len(looks) * bool(number)
    )
    changed = [(told, look) for asked, _, _, told, look in calls if asked == number]
    assert (
        changed
        == [
            ([48, 5, 6, longer, 8, 0], look)
            for longer, look in zip((runtime + 1, runtime), looks, strict=True)
        ][:given]
    )
    assert {(thread, place) for _, thread, place, _, _ in calls} <= {(0, turn.ctypes.data)}
