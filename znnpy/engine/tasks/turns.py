"""The order in which microbatches are computed and added up: a binary tree over their numbers."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from znnpy.engine.tasks.step import tree


class Turn(NamedTuple):
    """A microbatch: the slot for its sums, and pairs of slots (into, from) that can be added after it."""

    slot: int
    pairs: list[tuple[int, int]]


def turns(count: int, slots: int) -> list[Turn]:
    """What happens to microbatch after microbatch; slot 0 ends with the sum of all.

    Slots are used again in the order in which they come free, so that who takes one seldom waits.
    """
    free, found = deque(range(slots)), list[Turn]()
    for ready in _ready(count):
        found.append(Turn(free.popleft(), []))
        pairs = [(found[into].slot, found[other].slot) for into, other in ready]
        found[-1].pairs.extend(pairs)
        free.extend(other for _, other in pairs)
    return found


def _ready(count: int) -> list[list[tuple[int, int]]]:
    """Pairs of the tree by the leaf after which both of their sums are whole."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for into, other in tree(count):
        found[min(2 * other - into, count) - 1].append((into, other))
    return found
