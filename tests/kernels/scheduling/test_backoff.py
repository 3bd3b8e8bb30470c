"""How the communication thread waits, with functions in MPI's place that count how often they are asked."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from znnpy_kernels.scheduling import mailbox as native
from znnpy_kernels.scheduling.backoff import REST, rest

from znnpy.distributed.backoff import clock_wait

INTS = ctypes.POINTER(ctypes.c_int)
TEST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), INTS, INTS, ctypes.c_int64
)
PROBE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *[ctypes.c_int64] * 3,
    INTS,
    ctypes.c_int64,
)
STATUSES, STATUS, SOURCE, TAG, COMM = 4712, 4711, -2, -1, 99
SECOND = 1_000_000_000
WAIT = [0]


@pytest.fixture(autouse=True, params=["any clock", "the wall clock"])
def _wait(request: pytest.FixtureRequest) -> None:
    """Naps by the C library's newer wait, and by the one that all have."""
    WAIT[0] = clock_wait() if request.param == "any clock" else 0


@dataclass
class Asked:
    """An MPI that has something after so many questions, and what it was asked."""

    complete_after: float = np.inf
    message_after: float = np.inf
    error: int = 0
    tested: list[list[int]] = field(default_factory=list)
    probed: list[tuple[int, ...]] = field(default_factory=list)

    def test(self, count, requests, found, places, statuses):
        assert statuses == STATUSES
        self.tested.append(requests[:count])
        found[0] = len(self.tested) > self.complete_after
        places[0] = count - 1
        return self.error

    def probe(self, source, tag, comm, flag, status):
        assert status == STATUS
        self.probed.append((source, tag, comm))
        flag[0] = len(self.probed) > self.message_after
        return self.error


def rested(mpi, requests=(), nap=1000, seconds=60.0, wake=False, soon=0.0, late=False):
    """How many naps a rest takes, and places of complete requests that it ends with.

    It has `seconds`, or ends `soon` after it has asked for the first time: to be loaded takes longer. A `wake` comes
    before it, a `late` one once it has looked.
    """
    space = np.zeros(native.SLOTS // 8 + native.LINE // 8, np.int64)
    mailbox = space.ctypes.data + -space.ctypes.data % native.LINE
    native.prepare(mailbox)
    if wake:
        native.wake(mailbox)

    def probed(*words):
        if soon and not mpi.probed:
            block[REST.until] = time.monotonic_ns() + int(soon * SECOND)
        if late and not mpi.probed:
            native.wake(mailbox)
        return mpi.probe(*words)

    block, test, probe = np.zeros(len(REST), np.int64), TEST(mpi.test), PROBE(probed)
    handles, now = np.array(requests, np.int64), time.monotonic_ns()
    places = np.zeros(len(handles), np.int32)
    values = {
        "wait": WAIT[0],
        "active": now,
        "shortest": nap,
        "longest": nap,
        "patience": 8,
        "until": now + int(seconds * SECOND),
        "test": ctypes.cast(test, ctypes.c_void_p).value,
        "requests": handles.ctypes.data,
        "pending": len(handles),
        "indices": places.ctypes.data,
        "statuses": STATUSES,
        "probe": ctypes.cast(probe, ctypes.c_void_p).value,
        "source": SOURCE,
        "tag": TAG,
        "comm": COMM,
        "status": STATUS,
    }
    for name, value in values.items():
        block[getattr(REST, name)] = value
    rest(mailbox, block.ctypes.data)
    assert block[REST.error] == mpi.error
    return int(block[REST.naps]), places[: block[REST.found]].tolist()


def test_it_asks_after_each_nap_until_a_request_is_complete():
    mpi = Asked(complete_after=2)
    assert rested(mpi, requests=[5, -6, 1 << 40]) == (2, [2])
    assert mpi.tested == [[5, -6, 1 << 40]] * 3
    assert mpi.probed == [(SOURCE, TAG, COMM)] * 2


def test_a_message_to_look_for_ends_it():
    mpi = Asked(message_after=4)
    assert rested(mpi) == (4, [])
    assert not mpi.tested


@pytest.mark.parametrize("requests", [[], [1]])
def test_an_error_of_mpi_ends_it(requests):
    assert rested(Asked(error=3), requests) == (0, [])


def test_a_wake_ends_it_before_a_nap_and_in_the_middle_of_one():
    mpi = Asked()
    assert rested(mpi, [1], nap=3600 * SECOND, wake=True) == (0, [])
    assert len(mpi.tested) == 1
    assert rested(mpi, [1], nap=3600 * SECOND, late=True) == (1, [])
    assert len(mpi.tested) == 3


def test_it_ends_when_it_is_time():
    assert rested(Asked(), [1], nap=3600 * SECOND, seconds=3600, soon=0.05) == (1, [])
    assert rested(Asked(), [1], seconds=-1) == (0, [])


def test_after_a_longer_nap_it_asks_more_often_so_that_small_buffers_move():
    mpi = Asked(complete_after=8)
    assert rested(mpi, [1], nap=250_000) == (3, [0])
    assert len(mpi.probed) == 8
