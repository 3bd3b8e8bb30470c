"""What the scheduler costs: dispatch, deque operations, wake-up, and speed-up by size of task.

    python scripts/bench_scheduler.py [--workers 2] [--repeat 7] [--json FILE]

Dispatch is measured on a layered graph whose tasks do nothing and have four successors each. The
speed-up of tasks of 1 to 1000 microseconds is that of the best of several runs, one and several
workers in turn; beside it stands what plain threads without any scheduler reach on the same work,
since only a quiet machine can show more. Bars: a task with four successors on one worker takes at
most 120 ns; tasks of 5 and 20 microseconds run 1.9 and 1.95 times as fast on two workers.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from stopwatch import seconds
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling import control_block as at
from znnpy_kernels.scheduling.deque import push, steal, take

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler import Executor

SUCCESSORS = 4
SIZES_US = (1, 2, 5, 20, 100, 1000)
BARS = {5: 1.9, 20: 1.95}  # speed-up on two workers, by microseconds of a task


AT = words("rounds state")


@kernel(AT)
def turn(args: Any, worker: int) -> None:
    """Compute for a while in registers: xorshift numbers."""
    state = args[AT.state]
    for _ in range(args[AT.rounds]):
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
    args[AT.state] = state


@native("void(int64,int64)")
def push_many(queue: int, count: int) -> None:
    """Push entries; the ring has room for all."""
    for entry in range(count):
        push(queue, 0, entry)


@native("void(int64,int64)")
def take_many(queue: int, count: int) -> None:
    """Take them back as the owner."""
    for _ in range(count):
        take(queue, 0)


@native("void(int64,int64)")
def steal_many(queue: int, count: int) -> None:
    """Take them as a thief that nobody disturbs."""
    for _ in range(count):
        steal(queue, 0)


def main() -> None:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    results = {
        "nanoseconds": overheads(chosen.repeat),
        "workers": chosen.workers,
        "speed_up": [speed_up(size, chosen.workers, chosen.repeat) for size in SIZES_US],
    }
    show(results)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


def overheads(repeat: int) -> dict[str, float]:
    """Nanoseconds of each of the scheduler's operations, the best of `repeat` runs."""
    empty = layered(200, 200, 0)
    return {
        "task with 4 successors, 1 worker": best_run(empty, 1, repeat),
        "the same, recorded": best_run(empty, 1, repeat, record=1 << 16),
        "the same, 2 workers": best_run(empty, 2, repeat),
        **deque_operations(repeat),
        "release to wait, workers parked": round_trip(repeat),
    }


def layered(layers: int, width: int, rounds: int) -> TaskGraph:
    """Layers of equal tasks, each followed by four of the next layer."""
    builder = GraphBuilder()
    for task in range(layers * width):
        builder.task(
            turn.address,
            turn.arguments(rounds=rounds, state=task + 1),
            Named(str(task), "turn"),
            cost=1e-9 * max(1, rounds),
            phase=0 if task < width else -1,
            group=0,
        )
    for task in range((layers - 1) * width):
        below = task - task % width + width
        for offset in range(SUCCESSORS):
            builder.precede(task, below + (task + offset) % width)
    return builder.build()


def best_run(graph: TaskGraph, workers: int, repeat: int, record: int = 0) -> float:
    """Nanoseconds per task."""
    with Executor(graph, workers=workers, record=record) as executor:
        return min(one_run(executor, graph) for _ in range(repeat))


def one_run(executor: Executor, graph: TaskGraph) -> float:
    """Nanoseconds per task of one run."""
    count = executor.completed(0) + 1

    def run() -> None:
        executor.release(0)
        executor.wait(0, count)

    return seconds(run) * 1e9 / graph.size


def deque_operations(repeat: int, count: int = 1024) -> dict[str, float]:
    """Nanoseconds for one entry into or out of a deque that only one thread uses."""
    words = np.zeros(at.QUEUE_BYTES // 8 + 16, np.int64)
    slots = np.zeros(count, np.int32)
    queue = words[-(words.ctypes.data // 8) % 16 :]
    queue[at.SLOTS // 8], queue[at.MASKS // 8] = slots.ctypes.data, count - 1
    times: dict[str, list[float]] = {"push": [], "pop": [], "steal": []}
    for _ in range(100 * repeat):
        for name, function in (("pop", take_many), ("steal", steal_many)):
            times["push"].append(timed(push_many, queue.ctypes.data, count))
            times[name].append(timed(function, queue.ctypes.data, count))
    return {name: min(found) for name, found in times.items()}


def timed(function: Any, queue: int, count: int) -> float:
    """Nanoseconds of one of `count` operations."""
    return seconds(function.compile(), queue, count) * 1e9 / count


def round_trip(repeat: int) -> float:
    """Nanoseconds from release to the end of wait for one empty task, all workers asleep."""
    graph = layered(1, SUCCESSORS, 0)
    with Executor(graph, workers=2) as executor:
        times = []
        for _ in range(10 * repeat):
            time.sleep(0.002)
            times.append(one_run(executor, graph) * graph.size)
    return float(np.median(times))


def speed_up(size_us: float, workers: int, repeat: int) -> dict[str, float]:
    """One worker's time per task over several workers', and the same for bare threads."""
    rounds = int(size_us * 1000 / nanoseconds_a_round())
    tasks = 5000 if size_us < 100 else 1000
    graph = layered(tasks // 100, 100, rounds)
    one, many, bare_one, bare_many = [], [], [], []
    with Executor(graph, workers=1) as single, Executor(graph, workers=workers) as several:
        for _ in range(repeat):
            one.append(one_run(single, graph))
            many.append(one_run(several, graph))
            bare_one.append(bare_threads(1, rounds * tasks))
            bare_many.append(bare_threads(workers, rounds * tasks // workers))
    return {
        "task_us": min(one) / 1000,
        "speed_up": min(one) / min(many),
        "threads_alone": min(bare_one) / min(bare_many),
    }


def nanoseconds_a_round(rounds: int = 1_000_000) -> float:
    """Duration of one round of `turn`, the best of five."""
    return min(bare_threads(1, rounds) for _ in range(5)) / rounds


def bare_threads(threads: int, rounds: int) -> float:
    """Nanoseconds that threads which each compute so many rounds take together."""
    turn.run(rounds=1, state=1)
    group = [
        threading.Thread(target=turn.run, kwargs={"rounds": rounds, "state": 1 + number})
        for number in range(threads)
    ]

    def run() -> None:
        for thread in group:
            thread.start()
        for thread in group:
            thread.join()

    return seconds(run) * 1e9


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    for name, value in results["nanoseconds"].items():
        print(f"{name:34s} {value:9.1f} ns")
    print(f"\n{'task':>10s} {'speed-up on ' + str(results['workers']):>15s} {'threads alone':>15s}")
    for row in results["speed_up"]:
        bar = BARS.get(round(row["task_us"]))
        print(
            f"{row['task_us']:7.1f} us {row['speed_up']:15.2f} {row['threads_alone']:15.2f}"
            f"{f'   bar {bar}' if bar else ''}"
        )


if __name__ == "__main__":
    main()
