"""Policies order the same graph differently; bands cut the order into four."""

import numpy as np
import pytest

from znnpy.graph import BANDS, POLICIES, GraphBuilder, Named, TaskGraph
from znnpy.graph.policies import bands


def fork(policy: str) -> TaskGraph:
    """A root; a branch of one costly task (1); a branch of two cheap ones (2, 3)."""
    builder = GraphBuilder()
    for task, cost in enumerate([1.0, 10.0, 2.0, 2.0]):
        builder.task(0, [], Named(str(task)), cost=cost, phase=0 if task == 0 else -1)
    for edge in ((0, 1), (0, 2), (2, 3)):
        builder.precede(*edge)
    return builder.build(policy)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("critical-path", [11.0, 10.0, 4.0, 2.0]),
        ("distance", [3.0, 1.0, 2.0, 1.0]),
        ("fifo", [0.0, -1.0, -2.0, -3.0]),
        ("lifo", [0.0, 1.0, 2.0, 3.0]),
    ],
)
def test_priorities(policy: str, expected: list[float]) -> None:
    assert fork(policy).priority.tolist() == expected


def test_random_is_a_fixed_order() -> None:
    first, second = fork("random"), fork("random")
    assert first.priority.tolist() == second.priority.tolist()
    assert sorted(first.priority) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("policy", POLICIES)
def test_bands_follow_the_priority(policy: str) -> None:
    graph = fork(policy)
    order = np.argsort(-graph.priority, kind="stable")
    assert (np.diff(graph.band[order]) >= 0).all()


def test_bands_use_the_whole_range() -> None:
    def cut(priority: np.ndarray) -> list[int]:
        return bands(priority, np.zeros(len(priority), bool)).tolist()

    assert cut(np.linspace(0, 1, 8)) == [3, 3, 2, 2, 1, 1, 0, 0]
    assert cut(np.ones(3)) == [0, 0, 0]
    assert set(cut(np.arange(100.0))) == set(range(BANDS))


def test_nothing_shares_the_band_of_what_is_urgent() -> None:
    urgent = np.arange(9) == 0
    assert bands(np.array([7.0, *range(8)]), urgent).tolist() == [0, 3, 3, 3, 2, 2, 1, 1, 1]
    assert bands(np.ones(9), urgent).tolist() == [0, *[1] * 8]
    assert bands(np.ones(9), urgent | True).tolist() == [0] * 9


def test_copies_of_a_step_get_the_same_priorities() -> None:
    builder = GraphBuilder()
    for step in (0, 1):
        for _ in range(2):
            builder.task(0, [], Named("t"), cost=1.0, phase=step, step=step)
    builder.precede(0, 1)
    builder.precede(2, 3)
    builder.precede(1, 2)
    builder.precede(3, 0, carried=True)
    assert builder.build().priority.tolist() == [2.0, 1.0, 2.0, 1.0]


def staged(policy: str, steps: int = 2) -> TaskGraph:
    """Two stages of two tasks each, in every step."""
    builder = GraphBuilder()
    for step in range(steps):
        for task in range(4):
            phase = step if task < 2 else -1
            builder.task(
                0, [], Named(f"{step}{task}"), cost=1.0, phase=phase, step=step, stage=task // 2
            )  # fmt: skip
    for first in range(0, 4 * steps, 4):
        builder.precede(first, first + 2)
        builder.precede(first + 1, first + 3)
    return builder.build(policy)


def test_layers_puts_barriers_between_stages_and_steps() -> None:
    graph = staged("layers")
    assert graph.kinds[8:] == ("barrier",) * 4
    before, after = graph.edges(carried=False)
    edges = set(zip(before.tolist(), after.tolist(), strict=True))
    assert {(0, 8), (1, 8), (8, 2), (8, 3), (2, 9), (3, 9), (9, 4), (9, 5)} <= edges
    before, after = graph.edges(carried=True)
    assert set(zip(before.tolist(), after.tolist(), strict=True)) == {(11, 0), (11, 1)}


def test_one_step_alone_ends_without_a_barrier() -> None:
    assert staged("layers", steps=1).kinds[4:] == ("barrier",)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_graph_can_be_built_again_under_any_policy(policy: str) -> None:
    there = GraphBuilder.of(staged("critical-path")).build(policy)
    back = GraphBuilder.of(there).build("critical-path")
    first = staged("critical-path")
    assert back.names == first.names
    for field in ("successors", "successor_starts", "carried", "joins", "initial", "priority"):
        assert getattr(back, field).tolist() == getattr(first, field).tolist()
