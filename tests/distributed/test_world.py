"""What ranks tell each other: values of all, in order, while messages are late."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from launched import launched

from znnpy.distributed.background_threads import (
    SCHED_SETATTR,
    TURN,
    SchedulingAttributes,
    be_punctual,
    take_short_turns,
)
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.serialization import all_unpacked, joined, packed, split, unpacked
from znnpy.distributed.world import World

TELL = """
import sys
from znnpy.distributed.transfers import Delays
from znnpy.distributed.world import World

with World.open(Delays(int(sys.argv[1]), 0.002)) as world:
    first = world.begin_exchange([world.rank, 0.1 + world.rank])
    second = world.exchange(bytes([world.rank]) * (200_000 * world.rank))
    assert first.result() == [[rank, 0.1 + rank] for rank in range(world.size)]
    assert second == [bytes([rank]) * (200_000 * rank) for rank in range(world.size)]
    assert world.broadcast({"from": world.rank}) == {"from": 0}
    for number in range(100):
        assert world.exchange(number) == [number] * world.size
    print("rank", world.rank, "of", world.size, flush=True)
"""

POST = """
import sys, threading
import numpy as np
from znnpy_kernels.scheduling.mailbox import post
from znnpy.distributed.transfers import Delays, Span, Transfer, Way
from znnpy.distributed.world import World

with World.open(Delays(int(sys.argv[1]), 0.001)) as world:
    messenger, other = world.messenger, 1 - world.rank
    mine, theirs = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    halves = [Span(mine.ctypes.data + 2400, 1600), Span(mine.ctypes.data, 2400)]
    sums = [np.zeros(4, np.float32) for _ in range(3)]
    transfers = [
        Transfer(Way.SEND, other, 7, tuple(halves), 0),
        Transfer(Way.RECEIVE, other, 7, (Span(theirs.ctypes.data, 4000),), 1),
        *(Transfer(Way.SUM, -1, 0, (Span(it.ctypes.data, 16),), 2 + n) for n, it in enumerate(sums)),
    ]
    complete = [threading.Semaphore(0) for _ in transfers]
    messenger.attach(transfers, lambda phase: complete[phase].release())
    for step in range(20):
        mine[:] = np.arange(1000) + 10000 * world.rank + step
        for number, total in enumerate(sums):
            total[:] = number + world.rank + step
        order = np.random.default_rng([step, world.rank]).permutation(len(transfers))
        for number in order.tolist():
            post.call(mailbox=messenger.address, number=number)
        for event in complete:
            event.acquire()
        expected = np.roll(np.arange(1000), 400) + 10000 * other + step
        assert (theirs == expected).all(), (theirs, expected)
        assert all((it == 2 * (n + step) + 1).all() for n, it in enumerate(sums)), sums
    passages = list(messenger.passages)
    assert len(passages) == 20 * len(transfers)
    assert all(it.posted <= it.started <= it.arrived for it in passages)
    messenger.detach(transfers)
    print("passed", flush=True)
"""

LATE = """
import threading, time
import numpy as np
from znnpy_kernels.scheduling.mailbox import post
from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.distributed.world import World

with World.open() as world:
    messenger, looks = world.messenger, 0
    own = messenger._look

    def look():
        global looks
        looks += 1
        own()

    messenger._look = look
    room, complete = np.zeros(100_000, np.float32), threading.Semaphore(0)
    way = (Way.SEND, Way.RECEIVE)[world.rank]
    span = Span(room.ctypes.data, room.nbytes)
    transfers = [Transfer(way, 1 - world.rank, 0, (span,), 0)]
    messenger.attach(transfers, lambda phase: complete.release())
    address = messenger.address
    world.exchange(None)
    before = looks
    if world.rank == 0:
        room[:] = 1
        time.sleep(0.3)
    post.call(mailbox=address, number=0)
    complete.acquire()
    assert room.all()
    assert looks - before < 30, looks - before
    messenger.detach(transfers)
    print("came", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_hear_each_other(ranks: int) -> None:
    assert launched(ranks, TELL, 1) == [f"rank {rank} of {ranks}" for rank in range(ranks)]


@pytest.mark.slow
def test_posted_messages_arrive_whole_and_release_their_phase() -> None:
    assert launched(2, POST, 2) == ["passed"] * 2


@pytest.mark.slow
def test_no_interpreter_runs_while_a_message_is_waited_for() -> None:
    assert launched(2, LATE) == ["came"] * 2


def test_who_is_alone_hears_itself() -> None:
    with World() as world:
        assert (world.rank, world.size) == (0, 1)
        assert world.exchange(3.5) == [3.5]
        assert world.broadcast("x") == "x"
        with pytest.raises(DistributedError, match="one rank only"):
            _ = world.messenger


def test_values_keep_their_bits() -> None:
    for value in (0.1 + 0.2, [1e-320, -0.0], {"a": [None, True]}, b"\x00\xff", b""):
        assert repr(unpacked(packed(value))) == repr(value)
    for values in ([0.1 + 0.2, [None, -0.0]], [b"\x00,]", 1], []):
        assert repr(all_unpacked([packed(value) for value in values])) == repr(values)
    parts = [b"", b"abc", packed(1)]
    assert split(joined(parts)) == parts


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no slack of timers")
def test_naps_of_a_punctual_thread_have_a_microsecond_of_slack() -> None:
    found: list[int] = []

    def look() -> None:
        be_punctual()
        found.append(ctypes.CDLL(None).prctl(30))  # PR_GET_TIMERSLACK

    before = ctypes.CDLL(None).prctl(30)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    # Of that thread alone.
    assert (found, ctypes.CDLL(None).prctl(30)) == ([1000], before)


@pytest.mark.skipif(platform.machine() not in SCHED_SETATTR, reason="no number of the call")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other turns")
def test_short_turns_change_neither_policy_nor_nice() -> None:
    def own() -> SchedulingAttributes:
        it = SchedulingAttributes()
        size = ctypes.sizeof(it)
        ctypes.CDLL(None).syscall(
            ctypes.c_long(SCHED_SETATTR[platform.machine()] + 1), 0, ctypes.byref(it), size, 0
        )
        return it

    found: list[SchedulingAttributes] = []

    def look() -> None:
        take_short_turns()
        found.append(own())

    before = own()
    number = ctypes.c_long(SCHED_SETATTR[platform.machine()])
    if ctypes.CDLL(None).syscall(number, 0, ctypes.byref(before), 0):
        pytest.skip("this system lets nobody set it")
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert (found[0].policy, found[0].nice) == (before.policy, before.nice)
    # Linux before 6.12 has turns of one length, and tells none.
    assert found[0].runtime == (TURN if before.runtime else 0)
    assert own().runtime == before.runtime


def test_turns_stay_as_they_are_where_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refused(number: ctypes.c_long, *_: object) -> int:
        asked.append(number.value)
        return -1  # as ENOSYS and EPERM are told

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(syscall=refused))
    for machine in ("x86_64", "aarch64", "riscv64"):
        monkeypatch.setattr(platform, "machine", lambda own=machine: own)
        take_short_turns()
    assert asked == [314, 274]


def test_mpi_is_loaded_only_where_ranks_are() -> None:
    found = (
        "import json, sys, znnpy.distributed.world, znnpy; print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert not [name for name in json.loads(run.stdout) if name.startswith("mpi4py")]


class Silent:
    """A messenger of two ranks that delivers nothing."""

    rank, size = 0, 2

    def listen(self, *_: object) -> None:
        """Nothing comes."""

    def start(self) -> None:
        """Nothing goes."""

    def call(self, *_: object) -> None:
        """Nothing goes."""


def test_what_comes_after_a_failure_changes_nothing_of_it() -> None:
    world = World(Silent())  # type: ignore[arg-type]
    pending = world.begin_exchange(1)
    world.fail(DistributedError("rank 1 has failed"))
    world._distribute([packed(1), packed(2)])
    with pytest.raises(DistributedError, match="rank 1 has failed"):
        pending.result()
