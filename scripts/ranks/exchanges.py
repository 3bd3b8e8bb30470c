"""One rank that tells all others a few numbers, again and again, as every update does.

    mpiexec -n 8 python exchanges.py --count 300

Rank 0 prints JSON: seconds of one exchange after the other, and of processor time that the communication thread
takes for one, on rank 0 and on the rank that takes most.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from math import ceil, log2

import numpy as np

# Seconds of the thread for a round, a message out and one in: 40 microseconds with 2, 3 and 5 ranks on an idle machine;
# since messages that have gone or come at once need no second look, as much less as was measured in turns.
WORK = 26e-6
TOLD = [None, 12345, 67890123, 0.123456789]  # as `CommonStop.agreed` tells


def main() -> None:
    """Measure."""
    from znnpy.distributed.world import World

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    count = parser.parse_args().count
    with World.open() as world:
        # As with tasks, whose mailbox makes waits compiled code.
        assert world.messenger.address
        for _ in range(20):
            world.exchange(TOLD)
        (thread,) = (it for it in threading.enumerate() if it.name == "znnpy messages")
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        start, spent = time.perf_counter(), time.clock_gettime(clock)
        for _ in range(count):
            world.exchange(TOLD)
        spent = (time.clock_gettime(clock) - spent) / count
        wall = (time.perf_counter() - start) / count
        every = world.exchange(spent)
        if world.rank == 0:
            print(json.dumps({"exchange": wall, "rank 0": every[0], "most": max(every)}))


def rounds(ranks: int, latency: float, repeats: int = 100) -> float:
    """Simulated seconds of the messages of an exchange, on average: the last of all ranks counts.

    In round k each rank tells another one, 2^k away, all that it knows (Thakur et al. 2005), and goes on when it has
    heard as much: at its next look. Between looks it naps as the communication thread does.
    """
    from znnpy.distributed.waits import PATIENCE, SHORTEST_SLEEP

    # Of a sleep beyond its time, as seen on Linux with the thread's slack.
    late, rng, found = 16e-6, np.random.default_rng(0), 0.0
    for _ in range(repeats):
        times = rng.uniform(0, SHORTEST_SLEEP, ranks)
        for number in range(ceil(log2(ranks))):
            came = np.roll(times, 1 << number) + latency
            nap = np.maximum(SHORTEST_SLEEP, (came - times) / PATIENCE) + late
            waits = np.maximum(came - times, 0.0)
            times += np.ceil(waits / nap) * nap + WORK
        found += float(times.max()) / repeats
    return found


def in_python(ranks: int) -> float:
    """Seconds that rank 0's Python takes for the values of so many ranks, without MPI, the best of some."""
    from znnpy.distributed.gathering import Gathering
    from znnpy.distributed.serialization import all_unpacked, joined, packed

    own, best = packed(TOLD), np.inf
    distances = [1 << number for number in range((ranks - 1).bit_length())]
    told = [(far, joined([own] * min(far, ranks - far))) for far in distances]
    for _ in range(100):
        it = Gathering(0, ranks, lambda rank, data: None)
        start = time.perf_counter()
        it.begin(own, all_unpacked)
        for source, data in told:
            it.hear(source, data)
        best = min(best, time.perf_counter() - start)
    return float(best)


if __name__ == "__main__":
    main()
