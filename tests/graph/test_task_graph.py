"""Work, span and critical path, against brute force over all paths."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from shares import examples

from znnpy.graph import GraphBuilder, Named, TaskGraph


@st.composite
def random_graphs(draw: st.DrawFn) -> TaskGraph:
    size = draw(st.integers(1, 9))
    costs = draw(st.lists(st.integers(1, 20), min_size=size, max_size=size))
    pairs = list(itertools.combinations(range(size), 2))
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    builder = GraphBuilder()
    for task, cost in enumerate(costs):
        builder.task(0, [], Named(f"t{task}"), cost=float(cost), phase=0, group=task % 2)
    for before, after in chosen:
        builder.precede(before, after)
    return builder.build()


def longest(graph: TaskGraph, task: int) -> float:
    ends = graph.successor_starts[task : task + 2]
    following = [longest(graph, int(s)) for s in graph.successors[ends[0] : ends[1]]]
    return float(graph.cost[task]) + max(following, default=0.0)


@examples(100)
@given(random_graphs())
def test_work_span_and_critical_path(graph: TaskGraph) -> None:
    assert graph.work == sum(graph.cost)
    assert graph.span == max(longest(graph, task) for task in range(graph.size))
    path = graph.critical_path()
    assert sum(graph.cost[path]) == graph.span
    edges = set(zip(*(ends.tolist() for ends in graph.edges(carried=False)), strict=True))
    assert all(pair in edges for pair in itertools.pairwise(path))


def test_carried_edges_do_not_lengthen_the_span() -> None:
    builder = GraphBuilder()
    for name in "ab":
        builder.task(0, [], Named(name), cost=2.0, phase=0)
    builder.precede(0, 1, carried=True)
    assert builder.build().span == 2.0


def test_counts_of_groups_and_phases() -> None:
    builder = GraphBuilder()
    builder.task(0, [], Named("a"), cost=1.0, phase=2, group=4)
    graph = builder.build()
    assert (graph.phases, graph.groups) == (3, 5)
    assert graph.levels().dtype == np.float64
