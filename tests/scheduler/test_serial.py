"""The serial executor: a fixed order, lazy tasks, and errors that say what is missing."""

import time

import numpy as np
import pytest
from scheduled_kernels import stamp

from znnpy.graph import GraphBuilder, Named
from znnpy.scheduler import SchedulerError, SerialExecutor


class Log:
    """Tasks that write down their order."""

    def __init__(self) -> None:
        self.clock, self.log = np.zeros(1, np.int64), np.zeros(100, np.int64)
        self.builder = GraphBuilder()

    def task(self, cost: float, *, phase: int = -1, group: int = -1, spins: int = 0) -> int:
        number = len(self.builder._tasks)
        words = stamp.arguments(
            clock=self.clock.ctypes.data,
            log=self.log.ctypes.data,
            task=number,
            spins=spins,
            yields=0,
        )
        return self.builder.task(
            stamp.address, words, Named(f"t{number}"), cost=cost, phase=phase, group=group
        )

    def order(self) -> list[int]:
        return [int(entry) - 1 for entry in self.log[: self.clock[0]] if entry > 0]


def test_most_urgent_first_then_lower_numbers() -> None:
    log = Log()
    for cost in (1.0, 3.0, 2.0, 3.0, 1.0):
        log.task(cost, phase=0, group=0)
    with SerialExecutor(log.builder.build()) as executor:
        executor.release(0)
        assert log.order() == []
        assert executor.wait(0, 1)
        assert executor.completed(0) == 1
    assert log.order() == [1, 3, 2, 0, 4]


def test_what_a_group_does_not_need_is_left_for_later() -> None:
    log = Log()
    log.task(5.0, phase=0, group=0)
    lazy = log.task(1.0, phase=0, group=1)
    with SerialExecutor(log.builder.build()) as executor:
        executor.release(0)
        assert executor.wait(0, 1)
        assert lazy not in log.order()
        assert executor.wait(1, 1)
        assert executor.wait(1, 1)
    assert log.order() == [0, lazy]


def test_a_wait_that_cannot_end_names_what_is_missing() -> None:
    log = Log()
    first, second = log.task(1.0, phase=0), log.task(1.0, phase=1)
    both = log.task(1.0, group=0)
    log.builder.precede(first, both)
    log.builder.precede(second, both)
    with SerialExecutor(log.builder.build()) as executor:
        executor.release(0)
        with pytest.raises(SchedulerError, match=r"t2 \(1 of 2 missing\).*phase"):
            executor.wait(0, 1)
        executor.release(1)
        assert executor.wait(0, 1)


def test_time_out_between_tasks() -> None:
    log = Log()
    for _ in range(40):
        log.task(1.0, phase=0, group=0, spins=10_000)
    with SerialExecutor(log.builder.build()) as executor:
        executor.release(0)
        assert not executor.wait(0, 1, timeout=0)
        assert executor.wait(0, 1)
    assert log.order() == list(range(40))


def test_recordings_by_own_time_leave_out_what_others_took() -> None:
    log = Log()
    for _ in range(3):
        log.task(1.0, phase=0, group=0, spins=1000)
    with SerialExecutor(log.builder.build(), record=3, own_time=True) as executor:
        executor.release(0)
        begin = time.thread_time_ns()
        executor.wait(0, 1)
        end = time.thread_time_ns()
        events = executor.recording()[0].events
    times = [it for event in events for it in (event["start_ns"], event["end_ns"])]
    assert [begin, *times, end] == sorted([begin, *times, end])


def test_recording_and_reset() -> None:
    log = Log()
    for _ in range(3):
        log.task(1.0, phase=0, group=0)
    with SerialExecutor(log.builder.build(), record=2) as executor:
        executor.release(0)
        assert executor.wait(0, 1)
        (recording,) = executor.recording()
        assert recording.executed == 3
        assert recording.events["task"].tolist() == [1, 2]
        executor.reset()
        assert executor.completed(0) == 0
        assert executor.recording()[0].executed == 0
