"""Compares strategies of convergent sums (fixed tree, ZNN's pointer exchange, lock) in simulated time.

Every contribution is made by a task of its own, whose worker then adds it to its sum. Fixed tree: the worker that
finishes the second of two terms adds them and goes on to the next inner node. ZNN's exchange of pointers: a worker
that finds something in the slot adds it and tries again. Lock: one worker at a time adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

Process = Generator[float, float, None]
"""Yields how long it will be busy or wait, and is sent the time when that has passed."""
# A share of 0.2 each way: large enough that workers fall out of step.
JITTER = 0.2
"""Half the spread of the time that a contribution takes, as a share: without it all would come at once."""


@dataclass
class FanIn:
    """`sums` sums of `contributions` each; seconds to make a contribution, and of one addition."""

    sums: int
    contributions: int
    making: float
    adding: float
    waited: float = 0.0
    """Seconds that workers have waited for each other, summed over them."""
    _arrived: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    _full: set[int] = field(default_factory=set)
    _free: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def tree(self, number: int, leaf: int, now: float) -> Process:
        """Add by a fixed tree: node n of a binary heap adds nodes 2n and 2n + 1; leaves come behind the inner nodes."""
        # Leaves are the nodes from `contributions` on, so a leaf's parent is half its number.
        node = (leaf + self.contributions) // 2
        while node > 0:
            self._arrived[number, node] += 1
            # The first of two terms leaves; the second adds, and carries the sum up.
            if self._arrived[number, node] == 1:
                return
            yield self.adding
            node //= 2

    def exchange(self, number: int, leaf: int, now: float) -> Process:
        """Take what the slot holds, add it, leave the sum; the last worker copies it to its place."""
        while True:
            if number in self._full:
                self._full.remove(number)
                yield self.adding
            # Asked again: another may have filled the slot while this one added.
            if number not in self._full:
                self._full.add(number)
                break
        self._arrived[number, 0] += 1
        if self._arrived[number, 0] == self.contributions:
            yield self.adding

    def lock(self, number: int, leaf: int, now: float) -> Process:
        """Wait for the workers that came before, then add."""
        begin = max(now, self._free[number])
        # Reserved at once: whoever comes next waits behind.
        self._free[number] = begin + self.adding
        self.waited += begin - now
        yield begin + self.adding - now


# `tree` first: its additions are the measure for the others (`profile/sum_strategies.py`).
STRATEGIES: dict[str, Callable[[FanIn, int, int, float], Process]] = {
    "tree": FanIn.tree,
    "exchange": FanIn.exchange,
    "lock": FanIn.lock,
}


def simulate_sums(strategy: str, fan_in: FanIn, workers: int, seed: int = 0) -> float:
    """Return the seconds until all sums are complete; contributions of one sum are made one after the other.

    `fan_in` is used up. The same arguments give the same result.
    """
    rng = np.random.default_rng(seed)
    order = [(n, leaf) for n in range(fan_in.sums) for leaf in range(fan_in.contributions)]
    spread = 1 + JITTER * (2 * rng.random(len(order)) - 1)
    left = iter(
        # Costs are drawn once, in the order of contributions, so that all strategies have the same.
        [(*key, fan_in.making * float(times)) for key, times in zip(order, spread, strict=True)]
    )
    processes = [_work(fan_in, STRATEGIES[strategy], left) for _ in range(workers)]
    queue = [(0.0, worker) for worker in range(workers)]
    for process in processes:
        # To the first `yield`: a generator cannot be sent a time before.
        next(process)
    heapify(queue)
    now = 0.0
    while queue:
        now, worker = heappop(queue)
        try:
            heappush(queue, (now + processes[worker].send(now), worker))
        # A worker without contributions leaves the queue.
        except StopIteration:
            continue
    return now


def _work(
    fan_in: FanIn,
    strategy: Callable[[FanIn, int, int, float], Process],
    left: Iterator[tuple[int, int, float]],
) -> Process:
    """Simulate a worker: make a contribution, add it, take the next."""
    yield 0.0
    for number, leaf, seconds in left:
        now = yield seconds
        yield from strategy(fan_in, number, leaf, now)
