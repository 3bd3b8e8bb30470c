"""Deals of blocks to ranks: balanced, seeded; and the way from one to the next, in little memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.sampling.blocks import dealt, waves


@pytest.mark.parametrize(("count", "ranks"), [(1, 1), (4, 4), (16, 4), (17, 4), (30, 7)])
def test_ranks_have_nearly_the_same(count: int, ranks: int) -> None:
    weights = [1000 + n for n in range(count)]
    for period in range(20):
        owners = dealt(weights, ranks, 5, period)
        numbers = Counter(owners)
        assert set(numbers) == set(range(ranks))
        assert max(numbers.values()) - min(numbers.values()) <= 1
        assert owners == dealt(weights, ranks, 5, period)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 9), st.integers(0, 9))
def test_what_ranks_hold_weighs_nearly_the_same_where_blocks_do_not(
    weights: list[int], ranks: int, period: int
) -> None:
    owners = dealt(weights, ranks, 1, period)
    loads = [0] * ranks
    for weight, owner in zip(weights, owners, strict=True):
        loads[owner] += weight
    assert max(loads) - min(loads) <= max(weights)
    assert max(Counter(owners).values()) <= -(-len(weights) // ranks)


def test_blocks_come_to_all_ranks_by_seed_and_period() -> None:
    deals = {seed: [dealt([1] * 12, 4, seed, period) for period in range(40)] for seed in (0, 1)}
    assert deals[0] != deals[1]
    for found in deals.values():
        assert len({tuple(owners) for owners in found}) == 40
        for block in range(12):
            visits = Counter(owners[block] for owners in found)
            assert len(visits) == 4
            assert max(visits.values()) < 25


@given(st.data(), st.integers(1, 9), st.integers(0, 40))
def test_every_block_gets_where_it_shall_be_and_nobody_holds_too_many(
    data: st.DataObject, ranks: int, count: int
) -> None:
    owner = st.integers(0, ranks - 1)
    before = data.draw(st.lists(owner, min_size=count, max_size=count))
    after = data.draw(st.lists(owner, min_size=count, max_size=count))
    now = list(before)
    most = {r: max(before.count(r), after.count(r)) for r in range(ranks)}
    for wave in waves(before, after):
        assert wave
        assert len({move.source for move in wave}) == len({move.into for move in wave}) == len(wave)
        for block, source, into in wave:
            assert now[block] == source != into == after[block]
            now[block] = into
        assert all(now.count(rank) <= most[rank] for rank in range(ranks))
    assert now == after


def test_blocks_that_change_places_go_at_once() -> None:
    assert len(waves([0, 1, 2, 3], [1, 2, 3, 0])) == 1
    assert len(waves([0, 1, 2, 3], [1, 0, 3, 2])) == 1
    assert waves([0, 1], [0, 1]) == []
