"""The parallel executor: starts native threads, releases phases and waits for groups of tasks.

Threads stay in the compiled worker loop (`znnpy_kernels.scheduling.worker`) without the GIL. README.md of this
folder has the protocol.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling import control_block as at
from znnpy_kernels.scheduling import worker as native
from znnpy_kernels.scheduling.light_tasks import release

from znnpy.closing import Closing
from znnpy.graph import TaskGraph
from znnpy.scheduler.control_block import ControlBlock
from znnpy.scheduler.core_count import available_cores, keep_to, own_cores
from znnpy.scheduler.errors import SchedulerError
from znnpy.scheduler.recording import SEARCH, WorkerRecording, ring_in_order
from znnpy.scheduler.serial import check_group, check_phase, token_too_early
from znnpy.scheduler.topology import by_caches, last_level_caches, neighbours

SLICE_NS = 50_000_000
"""Longest stay of `wait` in compiled code (50 ms): Python handles Ctrl-C only in between."""

SPIN_NS = 1_000_000
"""How long an idle worker looks for work before it sleeps: longer than most waits within a step."""

CROWDED_SPIN_NS = 50_000
"""The same where workers share cores: about the cost of a wake-up."""


class Executor(Closing):
    """Runs a task graph on `workers` native threads, which start at once and sleep when idle.

    seed: picks the victims of thieves; results never depend on it. record: how many events to keep for each worker.
    spin_ns: how long an idle worker looks for work before it sleeps (default: SPIN_NS). `release` and `wait` may be
    called from any thread; two threads that wait for one group may wake up to 50 ms late. Threads do not survive
    `os.fork`: in the child the executor can only be closed. beside: threads that share the cores with the workers.
    """

    def __init__(
        self,
        graph: TaskGraph,
        workers: int = 2,
        seed: int = 0,
        record: int = 0,
        spin_ns: int | None = None,
        beside: int = 0,
    ) -> None:
        if workers < 1:
            raise SchedulerError(f"an executor needs at least 1 worker, not {workers}")
        self.graph = graph
        self.workers = workers
        if spin_ns is None:
            # Where workers share cores, a spinning one takes the time of one that has a task.
            spin_ns = SPIN_NS if workers + beside <= available_cores() else CROWDED_SPIN_NS
        self._options = {"seed": seed, "record": record, "spin_ns": spin_ns}
        self._release_lock = threading.Lock()
        self._block: ControlBlock | None = None
        self._process = os.getpid()
        # Now, so that no worker compiles while others wait, and Ctrl-C in `release` finds nothing to compile.
        for function in (native.work, release, native.wait, native.stop, native.prepare):
            function.compile()
        # Looked up once: callers come between updates, when Python runs from cold caches.
        self._release, self._wait = release.compile(), native.wait.compile()
        self._start()
        # Weakly, or no executor that was forgotten could be freed before the exit.
        _open_executors.add(self)

    @property
    def control(self) -> NDArray[np.int64]:
        """The control block, by which compiled code releases phases (`bring_light`); as long as it is not reset."""
        return self._running().words

    def release(self, phase: int) -> None:
        """Release a phase: give each of its sources the token that it waits for from outside."""
        check_phase(self.graph, phase)
        # Before the lock, which may be held for ever in the child of a fork.
        self._running()
        with self._release_lock:
            self._release(self._running().address, phase)

    def released(self, phase: int) -> int:
        """Return how often the phase was released since the start or the last reset, even after an interrupt."""
        return int(self._releases[phase]) if phase < len(self._releases) else 0

    def wait(self, group: int, count: int, timeout: float | None = None) -> bool:
        """Wait until the group has completed `count` times; return False if the timeout (seconds) ends first.

        The GIL is free meanwhile, and Ctrl-C is seen within 50 ms.
        """
        check_group(self.graph, group)
        # Seconds to nanoseconds, of the clock that compiled code reads as well.
        limit = None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        while True:
            block = self._running()
            budget = SLICE_NS if limit is None else limit - time.monotonic_ns()
            # In slices: no signal handler of Python runs while the thread is in compiled code.
            outcome = self._wait(block.address, group, count, max(0, min(SLICE_NS, budget)))
            if outcome == native.REACHED:
                return True
            if outcome == native.FAILED:
                raise token_too_early(self.graph, int(block.words[at.TOO_EARLY // 8]) - 1)
            # Asked after the look, so that a timeout of 0 looks once.
            if limit is not None and time.monotonic_ns() >= limit:
                return False

    def completed(self, group: int) -> int:
        """Return how often all tasks of the group have run since the start or the last reset."""
        check_group(self.graph, group)
        return int(native.completed(self._running().address, group))

    def reset(self) -> None:
        """Stop, set every counter to its first value, drop all waiting tasks, and start again.

        Tasks that are running finish first; those that wait in a deque are dropped. After a Ctrl-C meanwhile the
        executor is closed.
        """
        self._running()
        # The lock keeps releases out: one that was under way would write into a block whose workers have left.
        with self._release_lock:
            self._stop()
            self._start()

    def close(self) -> None:
        """Let running tasks finish, and end the threads. May be called again."""
        # In the child of a fork there are no threads to wait for, and the lock may be held by a thread that is
        # not there.
        if self._process == os.getpid():
            with self._release_lock:
                self._stop()
        self._block = None

    def recording(self) -> list[WorkerRecording]:
        """Return what each worker did since the start or the last reset.

        Complete for tasks whose group was waited for; later ones may still be being written.
        """
        return [self._recording(self._running(), worker) for worker in range(self.workers)]

    def _running(self) -> ControlBlock:
        if self._block is None:
            raise SchedulerError("this executor is closed")
        if self._process != os.getpid():
            raise SchedulerError(
                "worker threads do not survive a fork: make the model in the child process, or start "
                "child processes by spawn"
            )
        return self._block

    def _recording(self, block: ControlBlock, worker: int) -> WorkerRecording:
        queue, rows = block.queue(worker), self._options["record"]
        executed, searched = int(queue[at.EXECUTED // 8]), int(queue[at.SEARCHES // 8])
        return WorkerRecording(
            ring_in_order(block.ring(worker, rows), executed),
            executed,
            int(queue[at.STEALS // 8]),
            int(queue[at.FAILED_STEALS // 8]),
            int(queue[at.PARKS // 8]),
            int(queue[at.PARKED_NS // 8]),
            ring_in_order(block.ring(worker, rows, at.SEARCH_RING), searched, SEARCH),
            searched,
        )

    def _start(self) -> None:
        # A new block rather than the old one set back: every counter, deque and ring is as at first by
        # construction.
        # None unless every core has its worker: see `own_cores`.
        cores, caches = own_cores(self.workers), last_level_caches()
        cores = cores and by_caches(cores, caches)
        near = neighbours(cores, caches) if cores else ()
        block = ControlBlock(self.graph, self.workers, near=near, **self._options)
        native.prepare(block.address)
        # A view of memory, whose items are numbers of Python; it outlives the executor.
        self._releases = block.releases.data
        self._left = [threading.Event() for _ in range(self.workers)]
        try:
            for worker, left in enumerate(self._left):
                thread = threading.Thread(
                    target=_live,
                    args=(block, self.graph, worker, cores and cores[worker], left),
                    name=f"znnpy worker {worker}",
                    # Daemons, so an executor that nobody closed does not keep the interpreter from ending;
                    # `_close_all` ends it.
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:
                    raise SchedulerError(
                        f"the system lets no more than {worker} of {self.workers} worker threads "
                        "start; ask for fewer"
                    ) from None
            # Only now: until all have started the executor counts as closed, to whoever calls it after a Ctrl-C.
            self._block = block
        except BaseException:
            self._block = None
            # Those that have started leave by themselves. They need not be waited for: nothing was released, so
            # they run no task, and they keep the block that they look at.
            native.stop(block.address)
            raise

    def _stop(self) -> None:
        """End the threads; a Ctrl-C meanwhile is raised once all have left native code."""
        interrupt: KeyboardInterrupt | None = None
        # Again after each Ctrl-C, whatever it ended, as to stop twice does no harm. It is raised only at the end:
        # until all workers have left, their memory may not be freed, and nobody may take them for alive.
        while self._block is not None:
            try:
                native.stop(self._block.address)
                # Threads are not joined, as a join may be interrupted half-way; the event says that native code
                # has been left.
                for left in self._left:
                    left.wait()
                self._block = None
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


def _live(
    block: ControlBlock, graph: TaskGraph, worker: int, core: int | None, left: threading.Event
) -> None:
    """Run a worker in this thread; its references keep the memory alive as long as native code runs."""
    try:
        if core is not None:
            # From within the thread: affinity is a thread's own.
            keep_to(core)
        native.work(block.address, worker)
    finally:
        left.set()


_open_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close executors at exit: threads are daemons, so one left open cannot keep the interpreter from ending."""
    # A copy: closing an executor may free others, which leave the set.
    for executor in list(_open_executors):
        executor.close()
