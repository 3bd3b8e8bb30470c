"""Deals blocks of volumes to ranks anew each period, and plans the transfers between ranks; seeded, the same on all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from znnpy.data.sampling.shuffle import derived, shuffled

_DEALS = 0x6465616C  # "deal": makes the random numbers of deals others than those of samples


class Move(NamedTuple):
    """The transfer of a block from one rank to another."""

    block: int
    source: int
    into: int


def dealt(weights: Sequence[int], ranks: int, seed: int, period: int) -> list[int]:
    """Return the rank that holds each block in a period.

    Numbers of blocks differ by at most one between ranks, weights by at most the largest. The heaviest blocks go to
    a rank each, then the next heaviest, and so on; seed and period decide which goes to which, and the order of
    blocks that weigh the same.
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
    """Return the moves between two deals, in waves: in each, a rank sends at most one block and receives at most one.

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
    """Yield closed trails of moves, and open ones from ranks that lose blocks to ranks that gain them."""
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
