"""The order in which microbatches are added up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from znnpy.engine.emit import turns
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.step import added, added_pairs, tree

COUNTS = [*range(1, 20), 31, 32, 33, 64]


def slots(count: int, replicas: int) -> int:
    nothing: Any = None
    whole = Layout(nothing, nothing, nothing, 1, training=True)
    return replace(whole, numbers=range(count), replicas=replicas).slots


def tree_of(count: int) -> str:
    """The sum of all leaves, with the brackets of the tree."""
    sums = [str(leaf) for leaf in range(count)]
    for into, other in tree(count):
        sums[into] = f"({sums[into]}+{sums[other]})"
    return sums[0]


@pytest.mark.parametrize("replicas", [1, 2, 5])
@pytest.mark.parametrize("count", COUNTS)
def test_slots_hold_the_sums_of_the_tree(count: int, replicas: int) -> None:
    held: dict[int, str] = {}
    for microbatch, (slot, pairs) in enumerate(turns(count, slots(count, replicas))):
        assert slot not in held  # nobody's sum is lost
        held[slot] = str(microbatch)
        for into, other in pairs:
            held[into] = f"({held[into]}+{held.pop(other)})"
    assert held == {0: tree_of(count)}


def test_slots_are_few_and_taken_again_late() -> None:
    assert [slots(count, 1) for count in (1, 2, 4, 8, 64)] == [1, 2, 3, 4, 7]
    assert slots(4, 16) == 4
    taken = [turn.slot for turn in turns(8, 5)]
    assert taken == [0, 1, 2, 3, 4, 1, 3, 2]  # those that came free first


def test_numbers_are_added_by_the_same_tree() -> None:
    values = [1.0, 1e-16, 1e-16, 1e-16, 1e-16, 1e-16]
    assert added(values) == ((1.0 + 1e-16) + (1e-16 + 1e-16)) + (1e-16 + 1e-16)
    assert added_pairs([(1.0, 2.0), (3.0, 4.0)]) == (4.0, 6.0)


def test_subtrees_are_added_as_in_the_whole_tree() -> None:
    for count in COUNTS:
        for size in (1, 2, 4, 8, 16):
            inside = [(into, other) for into, other in tree(count) if other - into < size]
            for first in range(0, count, size):
                own = min(size, count - first)
                here = [(a - first, b - first) for a, b in inside if first <= a < first + size]
                assert here == tree(own)
