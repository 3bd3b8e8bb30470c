"""Which rank holds which blocks in each period, and how they get from one rank to another: seeded, the same for all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from znnpy.data.sampling.shuffle import derived, shuffled

_DEALS = 0x6465616C  # so that deals and samples have orders of their own


class Move(NamedTuple):
    """A block that goes from one rank to another."""

    block: int
    source: int
    into: int


def dealt(weights: Sequence[int], ranks: int, seed: int, period: int) -> list[int]:
    """The rank that holds each block in a period: numbers of blocks differ by one, weights by the largest at most.

    The heaviest blocks go to a rank each, then the heaviest of the others, and so on; which to which, and which
    first of those that weigh the same, is a matter of seed and period.
    """
    count, key = len(weights), derived(seed, _DEALS)
    rounds = -(-count // ranks)
    chance = [shuffled(period * count + block, count, key) for block in range(count)]
    order = sorted(range(count), key=lambda block: (-weights[block], chance[block]))
    owners = [0] * count
    for place, block in enumerate(order):
        owners[block] = shuffled(period * rounds * ranks + place, ranks, key + 1)
    return owners


def waves(before: Sequence[int], after: Sequence[int]) -> list[list[Move]]:
    """The moves between two deals: in a wave each rank sends a block at most, and receives one at most.

    Between waves no rank has more blocks than the larger of its numbers before and after.
    """
    found: list[list[Move]] = []
    busy: list[set[int]] = []
    for trail in _trails(before, after):
        ranks = {rank for move in trail for rank in (move.source, move.into)}
        free = next((n for n, others in enumerate(busy) if ranks.isdisjoint(others)), len(found))
        if free == len(found):
            found.append([])
            busy.append(set())
        found[free] += trail
        busy[free] |= ranks
    return found


def _trails(before: Sequence[int], after: Sequence[int]) -> Iterator[list[Move]]:
    """Closed trails, and open ones from ranks that shall have fewer blocks to ranks that shall have more."""
    moves = defaultdict[int, list[Move]](list)
    surplus = Counter[int]()
    for block, (source, into) in enumerate(zip(before, after, strict=True)):
        if source != into:
            moves[source].append(Move(block, source, into))
            surplus[source] += 1
            surplus[into] -= 1
    while leaving := [rank for rank in sorted(moves) if moves[rank]]:
        first = next((rank for rank in leaving if surplus[rank] > 0), leaving[0])
        rank, trail = first, list[Move]()
        while moves[rank]:
            trail.append(moves[rank].pop())
            rank = trail[-1].into
            passed = [move.source for move in trail]
            if rank in passed:
                yield trail[passed.index(rank) :]
                del trail[passed.index(rank) :]
        if trail:
            surplus[first] -= 1
            surplus[rank] += 1
            yield trail
