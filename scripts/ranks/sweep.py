"""One rank that adds up messages of many sizes: by trees of several colors, and by MPI's own allreduce.

    mpiexec -n 4 python sweep.py --sizes 65536 4194304 --colors 1 2 4

Rank 0 prints JSON: seconds of one sum of each size, by MPI_Allreduce alone in the main thread, by the
strategies `allreduce` (Iallreduce in the communication thread) and `multicolor` as graphs of tasks on one worker.
All sums are checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from znnpy.distributed.buckets import in_turn
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import STRATEGIES, Strategy, strategy
from znnpy.distributed.world import World
from znnpy.engine.communication.outbox import Outbox, marked
from znnpy.engine.communication.reductions import add_by_library, all_reduce
from znnpy.engine.layers.gradient_accumulation import Total
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.dependencies import connect, last_group
from znnpy.engine.tasks.step import Step
from znnpy.scheduler import Executor

PIECE = 1 << 14  # floats: what a message is made of
IN_A_RUN = 8  # sums, one after another: the largest number of them whose result is exact for 8 ranks, and more


class Rooms:
    """Memory for tasks, by name; what sums over ranks ask of a build."""

    def __init__(self) -> None:
        self.arrays: dict[Name, np.ndarray] = {}

    def common(self, name: Name, floats: int) -> Buffer:
        """A buffer of so many floats."""
        array = self.arrays.setdefault(name, np.zeros(floats + 16, np.float32))
        return Buffer(name, -(-array.ctypes.data // 64) * 64)

    def values(self, buffer: Buffer, floats: int) -> np.ndarray:
        """What lies in it."""
        array = self.arrays[buffer.name]
        first = (buffer.address - array.ctypes.data) // 4
        return array[first : first + floats]


def summed(world: World, by: Strategy, size: int, repeats: int) -> list[float]:
    """Seconds of each of some sums over all ranks of so many bytes."""
    floats, rooms, step = size // 4, Rooms(), Step()
    outbox = Outbox(world.rank, world.messenger.address)
    buffer = rooms.common(Name(Use("summed")), floats)
    ends = tuple(min(end, floats) for end in range(PIECE, floats + PIECE, PIECE))
    outbox.begin()
    ranks = Ranks.of(world.size, world.size)
    for color, bundle in in_turn(by, [[Total("all", ends, buffer=buffer)]], ranks):
        if by.fixed:
            all_reduce(step, rooms, outbox, ranks, color, bundle)
        else:
            add_by_library(step, rooms, outbox, bundle)
    values = rooms.values(buffer, floats)

    def filled() -> None:
        values[:] = world.rank + 1

    graph = connect([marked(step.tasks, by, workers=1)], {buffer}).build()
    with Executor(graph, workers=1, beside=2 * world.size - 1) as executor:
        world.messenger.attach(outbox.transfers, executor.release, control=executor.control)
        count = 0

        def once() -> None:
            nonlocal count
            count += 1
            executor.release(0)
            executor.wait(last_group(0), count)

        times = timed(once, filled, lambda: world.exchange(None), repeats)
        world.exchange(None)
        world.messenger.detach(outbox.transfers)
    assert np.all(values == _right(world.size)), f"{by.name}: {values}"
    return times


def by_mpi(size: int, repeats: int) -> list[float]:
    """The same by one blocking call, while nobody else uses MPI."""
    comm, values = MPI.COMM_WORLD, np.zeros(size // 4, np.float32)

    def filled() -> None:
        values[:] = comm.rank + 1

    times = timed(lambda: comm.Allreduce(MPI.IN_PLACE, values), filled, comm.Barrier, repeats)
    assert np.all(values == _right(comm.size))
    return times


def timed(
    once: Callable[[], None], before: Callable[[], None], meet: Callable[[], object], repeats: int
) -> list[float]:
    """Seconds of a call, for each run of calls but the first.

    Ranks leave `meet` one after another, some of them milliseconds later: only the first sum of a run waits for that.
    """
    times = []
    for _ in range(repeats + 1):
        before()
        meet()
        start = time.perf_counter()
        for _ in range(IN_A_RUN):
            once()
        times.append((time.perf_counter() - start) / IN_A_RUN)
    return times[1:]


def _right(ranks: int) -> int:
    """What every rank has at last, if each began with its number and one: sums of sums."""
    return ranks * (ranks + 1) // 2 * ranks ** (IN_A_RUN - 1)


def main() -> None:
    """Measure every size by all; the slowest rank counts."""
    options = _options()
    ways: dict[str, Strategy] = {"allreduce": STRATEGIES["allreduce"]}
    chunk = options.chunk and options.chunk << 10
    ways |= {f"multicolor {k}": strategy("multicolor", k, chunk) for k in options.colors}
    found = {size: {"MPI": by_mpi(size, options.repeats)} for size in options.sizes}
    with World.open() as world:
        for size in options.sizes:
            for name, by in ways.items():
                found[size][name] = summed(world, by, size, options.repeats)
        every = world.exchange([{str(size): times for size, times in found.items()}])
        if world.rank == 0:
            slowest = {
                size: {
                    way: statistics.median(
                        map(max, zip(*(e[0][size][way] for e in every), strict=True))
                    )
                    for way in times
                }
                for size, times in every[0][0].items()
            }
            print(json.dumps(slowest))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1 << k for k in range(12, 25, 2)])
    parser.add_argument("--colors", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--chunk", type=int, help="KiB of a message (default: the strategy's)")
    parser.add_argument("--repeats", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
