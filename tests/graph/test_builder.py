"""Building task graphs: counters, edges, argument blocks, and the graphs that are refused."""

from itertools import pairwise

import numpy as np
import pytest

from znnpy.graph import BANDS, GraphBuilder, GraphError, Joint, Named
from znnpy.graph.builder import ALONE


def add(builder: GraphBuilder, name: str, **options: float) -> int:
    cost = options.pop("cost", 1.0)
    numbers = {key: int(value) for key, value in options.items()}
    return builder.task(0, [], Named(name, "test"), cost=cost, **numbers)


def diamond() -> tuple[GraphBuilder, list[int]]:
    builder = GraphBuilder()
    tasks = [add(builder, "a", phase=0), add(builder, "b"), add(builder, "c"), add(builder, "d")]
    for before, after in ((0, 1), (0, 2), (1, 3), (2, 3)):
        builder.precede(tasks[before], tasks[after])
    return builder, tasks


def test_joins_count_predecessors_and_the_phase() -> None:
    graph = diamond()[0].build()
    assert graph.joins.tolist() == [1, 1, 1, 2]
    assert graph.initial.tolist() == [1, 1, 1, 2]
    assert sorted(graph.successors[: graph.successor_starts[1]]) == [1, 2]


def test_carried_edges_are_present_at_first() -> None:
    builder, (first, *_, last) = diamond()
    builder.precede(last, first, carried=True)
    graph = builder.build()
    assert graph.joins.tolist() == [2, 1, 1, 2]
    assert graph.initial.tolist() == [1, 1, 1, 2]
    before, after = graph.edges(carried=True)
    assert (before.tolist(), after.tolist()) == ([last], [first])


@pytest.mark.parametrize("order", [(False, True), (True, False), (False, False)])
def test_double_edges_are_merged_and_the_stricter_stays(order: tuple[bool, bool]) -> None:
    builder = GraphBuilder()
    a, b = add(builder, "a", phase=0), add(builder, "b")
    for carried in order:
        builder.precede(a, b, carried=carried)
    graph = builder.build()
    assert graph.joins.tolist() == graph.initial.tolist() == [1, 1]
    assert not graph.carried.any()


def test_a_cycle_is_refused_by_name() -> None:
    builder, (a, b, _, d) = diamond()
    builder.precede(d, a)
    with pytest.raises(GraphError, match=r"cycle: .*d.*carried") as refusal:
        builder.build()
    text = str(refusal.value)
    assert "a -> " in text
    assert "-> d" in text
    assert ("b" in text.split("cycle:")[1].split(".")[0]) != (
        "c" in text.split("cycle:")[1].split(".")[0]
    )
    assert (a, b) == (0, 1)


def test_a_long_cycle_is_named_by_its_ends() -> None:
    builder = GraphBuilder()
    tasks = [add(builder, f"t{n}", phase=0) for n in range(20)]
    for before, after in pairwise([*tasks, tasks[0]]):
        builder.precede(before, after)
    with pytest.raises(GraphError) as refusal:
        builder.build()
    names = str(refusal.value).split("cycle: ")[1].split(". ")[0].split(" -> ")
    assert len(names) == 14
    assert names[6] == "(8 more)"
    assert names[0] == names[-1]


def test_a_self_edge_is_a_cycle_unless_carried() -> None:
    builder = GraphBuilder()
    a = add(builder, "alone", phase=0)
    builder.precede(a, a, carried=True)
    assert builder.build().initial.tolist() == [1]
    builder.precede(a, a)
    with pytest.raises(GraphError, match="alone -> alone"):
        builder.build()


def test_a_task_that_nothing_starts_is_refused() -> None:
    builder = GraphBuilder()
    a, b = add(builder, "first", phase=0), add(builder, "orphan")
    builder.precede(a, b, carried=True)
    with pytest.raises(GraphError, match=r"orphan.*phase"):
        builder.build()


def test_edges_between_unknown_tasks_are_refused() -> None:
    builder = GraphBuilder()
    add(builder, "a", phase=0)
    with pytest.raises(GraphError, match="no task 1"):
        builder.precede(0, 1)


def test_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(GraphError, match="critical-path"):
        diamond()[0].build(policy="fastest")


def test_argument_blocks_are_aligned_and_writable() -> None:
    builder = GraphBuilder()
    lengths = [0, 1, 8, 9, 30]
    for length in lengths:
        builder.task(0, list(range(length)), Named("t"), cost=1.0, phase=0)
    graph = builder.build()
    for task, length in enumerate(lengths):
        assert graph.argument_address(task) % 64 == 0
        assert graph.arguments(task).tolist() == list(range(length))
    graph.arguments(3)[8] = -1
    assert graph.arguments(3)[8] == -1
    assert graph.arguments(4).tolist() == list(range(30))
    assert graph.words.flags.c_contiguous


def test_an_empty_graph_builds() -> None:
    graph = GraphBuilder().build()
    assert (graph.size, graph.groups, graph.phases, graph.span) == (0, 0, 0, 0.0)
    assert graph.critical_path() == []


def test_what_a_caller_waits_for_comes_before_longer_paths() -> None:
    builder = GraphBuilder()
    root = add(builder, "root", phase=0)
    leaves = [add(builder, "long", cost=9.0), add(builder, "loss", cost=1.0, awaited=True)]
    for leaf in leaves:
        builder.precede(root, leaf)
    for graph in (builder.build(), GraphBuilder.of(builder.build()).build("fifo")):
        told = graph.successors[graph.successor_starts[root] : graph.successor_starts[root + 1]]
        assert told.tolist() == leaves  # the newest is taken first
        assert graph.band[leaves[1]] == 0


@pytest.mark.parametrize("policy", ["critical-path", "distance", "fifo"])
def test_what_only_makes_others_wait_comes_before_longer_paths(policy: str) -> None:
    builder = GraphBuilder()
    root, long = add(builder, "root", phase=0), add(builder, "long", cost=9.0)
    gate = builder.task(0, [], Named("gate", waits=True), cost=0.0)
    for task in (gate, long):
        builder.precede(root, task)
    graph = builder.build(policy)
    told = graph.successors[graph.successor_starts[root] : graph.successor_starts[root + 1]]
    assert told.tolist() == [long, gate]  # the newest is taken first


@pytest.mark.parametrize("carried", [False, True])
def test_a_gate_before_what_others_wait_for_is_as_urgent(carried: bool) -> None:
    builder = GraphBuilder()
    before = [add(builder, f"before {number}", phase=0) for number in range(4)]
    after = [add(builder, f"after {number}", phase=1, urgent=number == 3) for number in range(4)]
    add(builder, "long", phase=0, cost=9.0)
    joint = Joint(np.array(before), np.array(after))
    builder.between(joint, Named("gate", waits=True), 0, carried=carried)
    graph = builder.build()
    # Of the next step's tasks only when that has begun.
    assert graph.urgent[-1] != carried
    assert (graph.band[-1] == 0) != carried


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("count", [ALONE - 1, ALONE, 100])
def test_many_are_told_by_several_gates(carried: bool, count: int) -> None:
    """Each of those before still precedes each of those after, and no task tells many."""
    builder = GraphBuilder()
    before = [add(builder, f"before {number}", phase=0) for number in range(30)]
    after = [add(builder, f"after {number}", step=int(carried), phase=int(carried))
             for number in range(count)]  # fmt: skip
    # Whoever waits for the group waits for the gates that nothing of their step waits for.
    joint, what = Joint(np.array(before), np.array(after)), Named("gate", waits=True)
    builder.between(joint, what, 0, 2 if carried else -1, carried=carried)
    graph = builder.build()
    told = np.diff(graph.successor_starts)
    assert told.max() < ALONE
    edges = [*zip(*graph.edges(carried=False), strict=True)]
    edges += zip(*graph.edges(carried=True), strict=True)
    reached = {task: {task} for task in after}
    for _ in range(3):
        for one, other in edges:
            reached.setdefault(one, set()).update(reached.get(other, ()))
    assert all(reached[task] >= set(after) for task in before)
    gates = np.arange(len(before) + len(after), graph.size)
    inside = np.isin(gates, graph.edges(carried=False)[0])
    assert (graph.group[gates] == np.where(carried & ~inside, 2, -1)).all()


def test_the_newest_told_successor_is_the_most_urgent() -> None:
    builder = GraphBuilder()
    root = add(builder, "root", phase=0)
    leaves = [add(builder, str(cost), cost=cost) for cost in (3.0, 9.0, 1.0, 5.0)]
    for leaf in leaves:
        builder.precede(root, leaf)
    graph = builder.build()
    told = graph.successors[graph.successor_starts[root] : graph.successor_starts[root + 1]]
    assert graph.cost[told].tolist() == [1.0, 3.0, 5.0, 9.0]
    assert graph.band.min() == 0
    assert graph.band.max() == BANDS - 1
    assert np.array_equal(np.argsort(graph.priority)[::-1][:2], [root, leaves[1]])
