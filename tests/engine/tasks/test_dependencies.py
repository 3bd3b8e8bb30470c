"""Order of tasks from what they touch: within a step, and from one step to the next."""

from itertools import pairwise

import numpy as np
import pytest
from declared_tasks import buffer, declared

from znnpy.engine.memory.regions import Filled
from znnpy.engine.tasks import dependencies
from znnpy.engine.tasks.dependencies import Accesses, connect

A = buffer("a")


def predecessors(*tasks):
    """By task, what it waits for, of tasks given as (reads, writes)."""
    ends, found = Accesses.of([[declared("t", *task) for task in tasks]]).predecessors()
    return [found[low:high].tolist() for low, high in pairwise(ends.tolist())]


def edges(graph):
    found = set()
    for task in range(graph.size):
        begin, end = graph.successor_starts[task : task + 2]
        for at in range(begin, end):
            found.add((task, int(graph.successors[at]), bool(graph.carried[at])))
    return found


def test_read_after_write_and_write_after_read():
    found = predecessors(
        ([], [A.region(0, 4)]),
        ([A.region(0, 2)], []),
        ([A.region(2, 4)], []),
        ([], [A.region(1, 2)]),
    )
    assert found == [[], [0], [0], [1]]


def test_what_others_imply_is_left_out():
    assert predecessors(*[([A.region()], [A.region()])] * 4) == [[], [0], [1], [2]]


def test_strands_of_one_block_may_be_written_at_once():
    strands = [([], [A.region(0, 4, strand=strand)]) for strand in range(3)]
    assert predecessors(*strands, ([A.region(0, 4)], [])) == [[], [], [], [2, 1, 0]]


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


@pytest.mark.parametrize("rows", [1 << 14, 64, 128])
def test_every_pair_that_touches_the_same_memory_is_ordered(rows, monkeypatch):
    """Also where one looks back at fewer tasks than there are: then there are edges too many, and none too few."""
    monkeypatch.setattr(dependencies, "MOST_ROWS", rows)
    rng = np.random.default_rng(5)
    touched = []
    for _ in range(420):
        low, section, strand = (int(rng.integers(*ends)) for ends in ((0, 12), (0, 3), (-1, 2)))
        region = buffer("b").region(
            low, low + int(rng.integers(1, 4)), section=section, strand=strand
        )
        touched.append((region, bool(rng.integers(2))))
    found = predecessors(*(([], [it]) if writes else ([it], []) for it, writes in touched))
    reach = [set() for _ in touched]
    for moment, before in enumerate(found):
        for other in before:
            reach[moment] |= reach[other] | {other}
        near = [other for other in before if other >= moment // 64 * 64 - rows + 64]
        assert not any(other in reach[its] for other in near for its in near)
    for later, (region, writes) in enumerate(touched):
        for earlier, (other, wrote) in enumerate(touched[:later]):
            meets = region.key == other.key and region.overlaps(other) and (writes or wrote)
            assert not meets or earlier in reach[later]


def test_more_edges_than_expected_are_found_in_turns():
    many = 300
    readers = [([A.region()], []) for _ in range(many)]
    writers = [([], [A.region(n, n + 1)]) for n in range(many)]
    found = predecessors(([], [A.region()]), *readers, *writers)
    assert found[1 : many + 1] == [[0]] * many
    assert found[many + 1 :] == [list(range(many, 0, -1))] * many


@pytest.mark.parametrize("seed", range(6))
def test_gates_keep_the_order_with_fewer_edges(seed):
    """Of all pairs of tasks, over several rounds of an even and an odd step."""
    rng = np.random.default_rng(seed)
    name, step = [f"{seed}{letter}" for letter in "abcd"], []
    for stage in range(8):
        source, target = (buffer(name[at % 4]) for at in (stage - 1, stage))
        for task in range(int(rng.integers(3, 8))):
            reads = [source.region()] if stage else []
            step.append(declared(f"{stage}", reads, [target.region(strand=task)]))
    fewer, all_ = (connect([step, step], many=many).build() for many in (True, False))
    assert all_.size == 2 * len(step) < fewer.size
    assert len(fewer.successors) < 0.8 * len(all_.successors)
    assert (reached(fewer, all_.size) == reached(all_, all_.size)).all()
    # What ends a step, or is waited for, as before; gates between steps end theirs.
    assert fewer.group[: all_.size].tolist() == all_.group.tolist()
    before, after = fewer.edges(carried=False)
    inside = set(before[fewer.step[before] == fewer.step[after]].tolist())
    for task in range(all_.size, fewer.size):
        assert fewer.tasks[task].waits
        assert (fewer.group[task] < 0) == (task in inside)


def reached(graph, tasks, rounds=3):
    """Whether task j of round s runs after task i of round r, for all pairs of the first tasks."""
    size = graph.size
    after = np.zeros((rounds, size, rounds, size), bool)
    for carried in (False, True):
        one, other = graph.edges(carried=carried)
        for number in range(rounds - carried):
            after[number, one, number + carried, other] = True
    after = after.reshape(rounds * size, rounds * size)
    for _ in range(12):
        after |= (after.astype(np.float32) @ after.astype(np.float32)) > 0
    after = after.reshape(rounds, size, rounds, size)
    return after[:, :tasks, :, :tasks]
