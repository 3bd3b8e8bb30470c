"""The parallel executor: every task exactly once, no dependency broken, no deadlock, no GIL."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduled_kernels import count, folds, halve, judge, two_copies, wait_for
from shares import examples
from znnpy_kernels.scheduling import control_block as at
from znnpy_kernels.scheduling.light_tasks import release

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler import Executor, SchedulerError, SerialExecutor, available_cores
from znnpy.scheduler import executor as executors

PATIENCE = 300.0
GRAPHS = int(os.environ.get("ZNNPY_GRAPHS", "40"))  # random ones for each number of workers


def pipelined(executor: Executor | SerialExecutor, steps: int) -> None:
    """Two steps in flight: a phase is released again when its own copy has completed."""
    for step in range(steps):
        if step >= 2:
            assert executor.wait(step % 2, step // 2, timeout=PATIENCE)
        executor.release(step % 2)
    for group in (0, 1):
        assert executor.wait(group, steps // 2, timeout=PATIENCE)


def counters(size: int, word: np.ndarray, *, band_spread: bool = False) -> TaskGraph:
    """`size` independent tasks that add one to a word."""
    builder = GraphBuilder()
    words = count.arguments(word=word.ctypes.data)
    for task in range(size):
        cost = 1e-6 * (1 + task % 7 if band_spread else 1)
        builder.task(count.address, words, Named(str(task)), cost=cost, phase=0, group=0)
    return builder.build()


def test_smoke() -> None:
    word = np.zeros(1, np.int64)
    with Executor(counters(3, word), workers=2) as executor:
        assert executor.completed(0) == 0
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        assert executor.completed(0) == 1
    assert word[0] == 3


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_stampede_on_the_injector(workers: int) -> None:
    word = np.zeros(1, np.int64)
    with Executor(counters(5000, word, band_spread=True), workers=workers) as executor:
        for repetition in range(1, 6):
            executor.release(0)
            assert executor.wait(0, repetition, timeout=PATIENCE)
            assert word[0] == 5000 * repetition


@examples(40)
@given(
    st.integers(0, 10_000), st.integers(1, 8), st.integers(0, 1000), st.sampled_from([0, 50_000])
)
def test_random_graphs_pipelined(graph: int, workers: int, steals: int, spin_ns: int) -> None:
    logged = two_copies(graph)
    with Executor(logged.graph, workers=workers, seed=steals, spin_ns=spin_ns) as executor:
        pipelined(executor, 6)
    judge(logged, runs=3)


@pytest.mark.slow
@pytest.mark.parametrize("workers", range(1, 9))
def test_stress_random_graphs(workers: int) -> None:
    for seed in range(GRAPHS):
        logged = two_copies(seed * 8 + workers, size=60, steps=8)
        with Executor(logged.graph, workers=workers, seed=seed, spin_ns=seed % 3) as executor:
            pipelined(executor, 8)
        judge(logged, runs=4)


def same_bits(seed: int, workers: int, steps: int) -> None:
    """What many workers leave is what the serial executor leaves, under whatever policy."""
    folded = folds(seed)
    found = []
    for many in (False, True):
        folded.start()
        with (
            Executor(folded.graph, workers=workers, seed=seed, spin_ns=seed % 3 * 1000)
            if many
            else SerialExecutor(folded.graph)
        ) as executor:
            pipelined(executor, steps)
        found.append(folded.values.tobytes())
    assert found[0] == found[1], f"graph {seed} on {workers} workers"


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_the_same_bits_as_the_serial_executor(workers: int) -> None:
    for seed in range(12):
        same_bits(seed, workers, 6)


@pytest.mark.parametrize("workers", [3, 5, 8])
def test_near_victims_come_first_and_all_are_robbed(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of several caches, one of which has a single worker: every task once, the same bits."""
    near = [(0, workers - 1)] * (workers - 1) + [(workers - 1, workers)]
    monkeypatch.setattr(executors, "own_cores", lambda count: list(range(count)))
    monkeypatch.setattr(executors, "keep_to", lambda core: None)
    monkeypatch.setattr(executors, "neighbours", lambda cores, caches: near[: len(cores)])
    word = np.zeros(1, np.int64)
    with Executor(counters(5000, word, band_spread=True), workers=workers) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        assert word[0] == 5000
    for seed in range(12):
        same_bits(seed, workers, 6)


@pytest.mark.slow
@pytest.mark.parametrize("workers", range(1, 9))
def test_stress_the_same_bits(workers: int) -> None:
    for seed in range(GRAPHS):
        same_bits(8 * seed + workers, workers, 6)


def test_serial_executor_agrees_with_the_judge() -> None:
    for seed in range(20):
        logged = two_copies(seed)
        with SerialExecutor(logged.graph) as executor:
            pipelined(executor, 6)
        judge(logged, runs=3)


def test_the_judge_notices_a_broken_dependency() -> None:
    logged = two_copies(3)
    with SerialExecutor(logged.graph) as executor:
        pipelined(executor, 6)
    logged.log[: logged.clock[0]] = logged.log[: logged.clock[0]][::-1]
    with pytest.raises(AssertionError):
        judge(logged, runs=3)


def no_starvation_graph(word: np.ndarray, met: np.ndarray) -> TaskGraph:
    """A root, then one task that ends only when 200 others have run, all told by one worker."""
    builder = GraphBuilder()
    add = count.arguments(word=word.ctypes.data)
    root = builder.task(count.address, add, Named("root"), cost=1e-6, phase=0, group=0)
    blocker = wait_for.arguments(word=word.ctypes.data, wanted=201, met=met.ctypes.data)
    tasks = [builder.task(wait_for.address, blocker, Named("b"), cost=1e-3, group=0)]
    for _ in range(200):
        tasks.append(builder.task(count.address, add, Named("c"), cost=1e-6, group=0))
    for task in tasks:
        builder.precede(root, task)
    return builder.build()


def test_no_starvation_behind_a_blocked_worker() -> None:
    word, met = np.zeros(1, np.int64), np.zeros(1, np.int64)
    with Executor(no_starvation_graph(word, met), workers=2, spin_ns=0) as executor:
        time.sleep(0.1)  # both park, so that the second one must be woken by the first one's push
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
    assert (word[0], met[0]) == (201, 1)


def test_python_runs_while_a_task_runs_and_while_wait_waits() -> None:
    word, met = np.zeros(1, np.int64), np.zeros(1, np.int64)
    builder = GraphBuilder()
    words = wait_for.arguments(word=word.ctypes.data, wanted=50_000, met=met.ctypes.data)
    builder.task(wait_for.address, words, Named("w"), cost=1.0, phase=0, group=0)

    def count_in_python() -> None:
        for number in range(50_001):
            word[0] = number

    with Executor(builder.build(), workers=1) as executor:
        executor.release(0)
        counting = threading.Thread(target=count_in_python)
        counting.start()
        assert executor.wait(0, 1, timeout=PATIENCE)
        counting.join()
    assert met[0] == 1, "the counting thread did not run while compiled code ran"


def test_idle_workers_park() -> None:
    """A park is counted when the worker is woken, so work is released until all have been."""
    word = np.zeros(1, np.int64)
    pause = threading.Event()
    with Executor(counters(8, word), workers=2, spin_ns=0) as executor:
        for round_ in range(1, 2001):
            executor.release(0)
            assert executor.wait(0, round_, timeout=PATIENCE)
            parks = [worker.parks for worker in executor.recording()]
            if all(parks):
                break
            pause.wait(0.005)
        assert all(parks), f"parks of the workers: {parks}"


def test_wait_gives_up_in_time() -> None:
    word = np.zeros(1, np.int64)
    with Executor(counters(1, word), workers=1) as executor:
        assert not executor.wait(0, 1, timeout=0.01)
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        assert not executor.wait(0, 2, timeout=0)


def test_recording_holds_every_task_once_and_slices_never_overlap() -> None:
    logged = two_copies(5)
    with Executor(logged.graph, workers=3, record=1000) as executor:
        pipelined(executor, 6)
        recordings = executor.recording()
    ran = np.concatenate([recording.events["task"] for recording in recordings])
    assert np.bincount(ran, minlength=logged.graph.size).tolist() == [3] * logged.graph.size
    for recording in recordings:
        events = recording.events
        assert len(events) == recording.executed
        assert (events["end_ns"] >= events["start_ns"]).all()
        assert (events["start_ns"][1:] >= events["end_ns"][:-1]).all()
        assert set(events["stolen"]) <= {0, 1, 2}
        assert (events["stolen"] == 1).sum() == recording.steals
    judge(logged, runs=3)


def test_recorded_searches_lie_between_tasks_and_count_what_failed() -> None:
    logged = two_copies(5)
    with Executor(logged.graph, workers=3, record=1000, spin_ns=0) as executor:
        pipelined(executor, 6)
        recordings = executor.recording()
    assert any(len(recording.searches) for recording in recordings)
    for recording in recordings:
        searches, events = recording.searches, recording.events
        assert len(searches) == recording.searched
        assert (searches["end_ns"] >= searches["start_ns"]).all()
        assert (searches["start_ns"][1:] >= searches["end_ns"][:-1]).all()
        slept = searches[searches["park_ns"] > 0]
        assert (slept["park_ns"] >= slept["start_ns"]).all()
        assert len(slept) <= recording.parks
        assert searches["failed"].sum() <= recording.failed_steals
        for event in events:
            before = searches["end_ns"] <= event["start_ns"]
            assert (before | (searches["start_ns"] >= event["end_ns"])).all()


def test_nothing_is_written_down_without_a_ring() -> None:
    word = np.zeros(1, np.int64)
    with Executor(counters(10, word), workers=2, spin_ns=0) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        for recording in executor.recording():
            assert len(recording.searches) == recording.searched == len(recording.events) == 0


def test_workers_that_share_cores_look_for_work_less_long() -> None:
    word, cores = np.zeros(1, np.int64), available_cores()
    for workers, spin in ((cores, executors.SPIN_NS), (cores + 1, executors.CROWDED_SPIN_NS)):
        with Executor(counters(1, word), workers=workers) as executor:
            assert executor._options["spin_ns"] == spin
    with Executor(counters(1, word), workers=cores, beside=1) as executor:
        assert executor._options["spin_ns"] == executors.CROWDED_SPIN_NS


def test_one_thread_at_a_time_brings_tokens() -> None:
    """The communication thread does so in compiled code, without Python's lock."""
    word = np.zeros(1, np.int64)
    with Executor(counters(3, word), workers=1) as executor:
        control = executor.control
        # As if another thread were in the midst of it.
        control[at.RELEASING // 8] = 1
        thread = threading.Thread(target=release, args=(int(control.ctypes.data), 0))
        thread.start()
        time.sleep(0.05)
        assert word[0] == 0
        control[at.RELEASING // 8] = 0
        thread.join()
        assert executor.wait(0, 1, timeout=PATIENCE)
        assert control[at.RELEASING // 8] == 0
    assert word[0] == 3


def test_the_ring_keeps_the_last_events() -> None:
    word = np.zeros(1, np.int64)
    with Executor(counters(11, word), workers=1, record=4) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        (recording,) = executor.recording()
    assert recording.executed == 11
    assert len(recording.events) == 4
    assert (np.diff(recording.events["start_ns"]) >= 0).all()  # equal where the clock is coarse


def test_reset_drops_what_is_left_and_starts_again() -> None:
    logged = two_copies(7)
    with Executor(logged.graph, workers=2) as executor:
        executor.release(0)
        executor.reset()
        assert executor.completed(0) == 0
        logged.clock[0] = 0
        pipelined(executor, 6)
    judge(logged, runs=3)


def test_a_token_that_comes_too_early_is_an_error_by_name() -> None:
    word, met = np.zeros(1, np.int64), np.zeros(2, np.int64)
    builder = GraphBuilder()
    add = count.arguments(word=met.ctypes.data + 8)
    blocked = wait_for.arguments(word=word.ctypes.data, wanted=1, met=met.ctypes.data)
    builder.task(wait_for.address, blocked, Named("slow"), cost=2.0, phase=1)
    builder.task(count.address, add, Named("eager"), cost=1.0, phase=0, group=0)
    graph = builder.build()
    with Executor(graph, workers=1) as executor:
        executor.release(1)
        executor.release(0)
        executor.release(0)
        with pytest.raises(SchedulerError, match="eager"):
            executor.wait(0, 2, timeout=PATIENCE)
        word[0] = 1
    word[0] = 1
    with SerialExecutor(graph) as serial:
        serial.release(0)
        serial.release(0)
        with pytest.raises(SchedulerError, match="eager"):
            serial.wait(0, 1)
        serial.reset()
        serial.release(0)
        assert serial.wait(0, 1)


def test_wrong_use_is_refused() -> None:
    graph = counters(1, np.zeros(1, np.int64))
    with pytest.raises(SchedulerError, match="at least 1 worker"):
        Executor(graph, workers=0)
    executor = Executor(graph, workers=1)
    with pytest.raises(SchedulerError, match="1 phases"):
        executor.release(1)
    with pytest.raises(SchedulerError, match="1 groups"):
        executor.wait(-1, 1)
    executor.close()
    executor.close()
    with pytest.raises(SchedulerError, match="closed"):
        executor.release(0)


@pytest.mark.parametrize("kind", [Executor, SerialExecutor])
def test_denormals_are_flushed_in_tasks_and_kept_outside(
    kind: type[Executor] | type[SerialExecutor],
) -> None:
    inside, outside = np.full((2, 4), 1.5e-38, np.float32)
    words = halve.arguments(values=inside.ctypes.data, count=4)
    builder = GraphBuilder()
    builder.task(halve.address, words, Named("h"), cost=1.0, phase=0, group=0)
    with kind(builder.build()) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
    halve.run(values=outside, count=4)
    assert (inside == 0).all()
    assert (outside > 0).all()


# A shell's background job ignores Ctrl-C from its start, and so would the child of a test in it.
UNCLOSED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from scheduled_kernels import count
from znnpy.graph import GraphBuilder, Named
from znnpy.scheduler import Executor
word = np.zeros(1, np.int64)
builder = GraphBuilder()
builder.task(count.address, [word.ctypes.data], Named("c"), cost=1.0, phase=0, group=0)
executor = Executor(builder.build(), workers=2)
executor.release(0)
print("waiting", flush=True)
executor.wait(0, {count})
"""


def start_python(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_an_executor_left_open_does_not_keep_the_process() -> None:
    child = start_python(UNCLOSED.format(count=1))
    _, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, errors) == (0, b"")


FORKED_IN_A_RELEASE = """
import os, sys
from znnpy.scheduler import SchedulerError
executor._release_lock.acquire()  # as another thread may hold it
child = os.fork()
if child == 0:
    signal.alarm(200)
    try:
        executor.release(0)
    except SchedulerError:
        executor.close()
        os._exit(0)
    os._exit(1)
executor._release_lock.release()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_child_of_a_fork_in_the_midst_of_a_release_is_told_so() -> None:
    child = start_python(UNCLOSED.format(count=1) + FORKED_IN_A_RELEASE)
    _, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, errors) == (0, b"")


@pytest.mark.slow
def test_a_forked_child_ends() -> None:
    forked = "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nsys.exit(os.wait()[1])\n"
    child = start_python(UNCLOSED.format(count=1) + forked)
    _, errors = child.communicate(timeout=PATIENCE)
    assert (child.returncode, errors) == (0, b"")


def test_ctrl_c_ends_a_wait() -> None:
    child = start_python(UNCLOSED.format(count=2))
    assert child.stdout is not None
    assert child.stdout.readline() == b"waiting\n"
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=PATIENCE)
    assert b"KeyboardInterrupt" in errors
    assert child.returncode in (-signal.SIGINT, 1, 130)


def test_argument_blocks_stay_at_their_address() -> None:
    word = np.zeros(1, np.int64)
    graph = counters(1, word)
    other = np.zeros(1, np.int64)
    with Executor(graph, workers=1) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=PATIENCE)
        graph.arguments(0)[0] = other.ctypes.data
        executor.release(0)
        assert executor.wait(0, 2, timeout=PATIENCE)
    assert (word[0], other[0]) == (1, 1)
    assert ctypes.c_int64.from_address(graph.argument_address(0)).value == other.ctypes.data


class InterruptedOnce(threading.Event):
    """What says that a worker has left, of which the first wait is ended by Ctrl-C."""

    def __init__(self, left: threading.Event) -> None:
        super().__init__()
        self.left, self.interrupts = left, 1

    def is_set(self) -> bool:
        return not self.interrupts and self.left.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return self.left.wait(timeout)


def is_closed(executor: Executor) -> None:
    """It says so, and closing it once more does not wait for threads that there are not."""
    with pytest.raises(SchedulerError, match="closed"):
        executor.wait(0, 1, timeout=0.1)
    with pytest.raises(SchedulerError, match="closed"):
        executor.release(0)
    closing = threading.Thread(target=executor.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_ctrl_c_while_workers_leave_for_a_reset_closes_the_executor() -> None:
    executor = Executor(counters(3, np.zeros(1, np.int64)), workers=2)
    left = executor._left
    executor._left = [InterruptedOnce(left[0]), left[1]]
    with pytest.raises(KeyboardInterrupt):
        executor.reset()
    assert all(event.is_set() for event in left)
    is_closed(executor)


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_while_workers_start_for_a_reset_closes_the_executor(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    executor = Executor(counters(3, np.zeros(1, np.int64)), workers=3)
    real, started = threading.Thread.start, list[threading.Thread]()

    def start(thread: threading.Thread) -> None:
        interrupted = thread.name == "znnpy worker 1"
        if begun or not interrupted:
            started.append(thread)
            real(thread)
        if interrupted:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            executor.reset()
    for thread in started:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    is_closed(executor)


def test_threads_that_the_system_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    word, real, started = np.zeros(1, np.int64), threading.Thread.start, list[threading.Thread]()

    def start(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(SchedulerError, match="no more than 3 of 8 worker threads"):
        Executor(counters(3, word), workers=8)
    for thread in started:
        thread.join(PATIENCE)
        assert not thread.is_alive()
