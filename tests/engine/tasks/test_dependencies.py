"""Order of tasks from what they touch: within a step, and from one step to the next."""

import numpy as np
from declared_tasks import buffer, declared

from znnpy.engine.memory.regions import Filled
from znnpy.engine.tasks.dependencies import DependencyTracker, connect

A = buffer("a")


def edges(graph):
    found = set()
    for task in range(graph.size):
        begin, end = graph.successor_starts[task : task + 2]
        for at in range(begin, end):
            found.add((task, int(graph.successors[at]), bool(graph.carried[at])))
    return found


def test_read_after_write_and_write_after_read():
    tracker = DependencyTracker()
    tracker.declare([], [A.region(0, 4)])
    tracker.declare([A.region(0, 2)], [])
    tracker.declare([A.region(2, 4)], [])
    tracker.declare([], [A.region(1, 2)])
    assert tracker.predecessors == [[], [0], [0], [1]]


def test_what_others_imply_is_left_out():
    tracker = DependencyTracker()
    for _ in range(4):
        tracker.declare([A.region()], [A.region()])
    assert tracker.predecessors == [[], [0], [1], [2]]


def test_strands_of_one_block_may_be_written_at_once():
    tracker = DependencyTracker()
    for strand in range(3):
        tracker.declare([], [A.region(0, 4, strand=strand)])
    tracker.declare([A.region(0, 4)], [])
    assert tracker.predecessors == [[], [], [], [2, 1, 0]]


def test_steps_follow_each_other_only_where_they_must():
    filters, given = (buffer("w", Filled.EARLIER).region(), buffer("x", Filled.OUTSIDE).region())
    step = [
        declared("forward", reads=[filters], writes="y"),
        declared("other", reads=[given], writes="z"),
        declared("gradient", reads="yz", writes="g"),
        declared("update", reads="g", writes=[filters]),
    ]
    graph = connect([step, step]).build()
    assert edges(graph) == {
        (0, 2, False), (1, 2, False), (2, 3, False),
        (4, 6, False), (5, 6, False), (6, 7, False),
        (3, 4, False), (2, 5, False),  # the odd step waits for the even one's filters and readers
        (7, 0, True), (6, 1, True),  # and the next even step for the odd one's
    }  # fmt: skip
    assert graph.phase.tolist() == [0, 0, -1, -1, 1, 1, -1, -1]
    assert graph.group.tolist() == [-1, -1, -1, 1, -1, -1, -1, 3]


def test_every_pair_that_touches_the_same_memory_is_ordered():
    rng = np.random.default_rng(5)
    tracker, touched = DependencyTracker(), []
    for _ in range(120):
        low = int(rng.integers(0, 12))
        region = buffer("b").region(
            low, low + int(rng.integers(1, 4)), section=int(rng.integers(3))
        )
        writes = bool(rng.integers(2))
        tracker.declare([] if writes else [region], [region] if writes else [])
        touched.append((region, writes))
    reach = [set() for _ in touched]
    for moment, before in enumerate(tracker.predecessors):
        for other in before:
            reach[moment] |= reach[other] | {other}
    for later, (region, writes) in enumerate(touched):
        for earlier, (other, wrote) in enumerate(touched[:later]):
            if region.key == other.key and region.overlaps(other) and (writes or wrote):
                assert earlier in reach[later]
