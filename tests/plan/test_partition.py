"""Cuts cover everything once: leaves of sums by sizes alone, all else as work and workers want."""

from __future__ import annotations

from itertools import pairwise

import pytest

from znnpy.plan import Grain, ranges
from znnpy.plan.partition import (
    BESIDE,
    FEWEST,
    LEAF_SECONDS,
    LEAVES,
    LONGEST,
    SHORTEST,
    TARGET_SECONDS,
    Cut,
    ranges_within,
)


@pytest.mark.parametrize("cut", [ranges, Grain().ranges, Grain(2e-3, 4e-4).ranges])
@pytest.mark.parametrize("extent", [1, 3, 20, 1000])
@pytest.mark.parametrize("seconds", [0.0, 1e-5, 3e-5, 1e-4, 1e-3, 1.0])
def test_parts_cover_the_extent_evenly(cut: Cut, extent: int, seconds: float) -> None:
    found = cut(extent, seconds)
    assert found[0][0] == 0
    assert found[-1][1] == extent
    assert all(high == low for (_, high), (low, _) in pairwise(found))
    sizes = {high - low for low, high in found}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_leaves_are_short_until_there_are_enough() -> None:
    assert len(ranges(1000, 0.4 * LEAF_SECONDS)) == 1
    assert len(ranges(1000, LEAVES / 2 * LEAF_SECONDS)) == LEAVES // 2
    assert len(ranges(1000, LEAVES * LEAF_SECONDS)) == LEAVES
    assert len(ranges(1000, 16 * LEAVES * LEAF_SECONDS)) == 4 * LEAVES


def test_parts_of_parts_are_as_many_as_leaves_of_the_whole() -> None:
    whole, seconds = 8 * 40, 16 * LEAVES * LEAF_SECONDS
    cut, wanted = ranges_within(whole, seconds, 100 * LEAVES), 4 * LEAVES
    assert len(cut(whole, seconds)) == len(ranges(whole, seconds)) == wanted
    slabs = cut(8, seconds)
    assert len(slabs) == 8
    assert sum(len(cut(40, seconds / 8)) for _ in slabs) == wanted
    assert len(ranges_within(whole, seconds, 5)(whole, seconds)) == 5


def test_parts_are_no_smaller_than_wanted() -> None:
    assert ranges(20, 1.0, least=6) == [(0, 6), (6, 13), (13, 20)]
    assert ranges(4, 1.0, least=6) == [(0, 4)]


def test_tasks_are_as_long_as_the_grain() -> None:
    assert len(Grain().ranges(1000, 10 * TARGET_SECONDS)) == 10
    assert len(Grain(2e-3, 4e-4).ranges(1000, 0.02)) == 10


def test_short_passes_keep_some_workers_busy() -> None:
    grain = Grain()
    assert len(grain.ranges(1000, grain.seconds)) == FEWEST
    assert len(grain.ranges(1000, 2 * grain.least)) == 2
    assert grain.ranges(1000, 0.9 * grain.least) == [(0, 1000)]


def test_short_passes_are_cut_for_each_worker() -> None:
    grain = Grain.of(1.0, 64)
    assert len(grain.ranges(1000, 64 * grain.least)) == 64
    assert len(grain.ranges(1000, 16 * grain.least)) == 16
    assert Grain.of(1.0, 1).fewest == FEWEST


@pytest.mark.parametrize("work", [1e-3, 0.05, 1.0, 20.0, 1e4])
def test_more_workers_get_more_and_shorter_tasks(work: float) -> None:
    found = [Grain.of(work, workers).seconds for workers in (1, 2, 8, 64, 256)]
    assert found == sorted(found, reverse=True)
    assert SHORTEST <= found[-1] <= found[0] <= LONGEST


def test_large_work_of_few_workers_is_cut_into_few_tasks() -> None:
    assert Grain.of(20.0, 2).seconds == LONGEST
    assert Grain.of(0.06, 2).seconds == TARGET_SECONDS
    assert Grain.of(0.06, 64).seconds == SHORTEST


def test_sums_beside_each_other_have_no_more_leaves_than_workers_need() -> None:
    seconds = 16 * LEAVES * LEAF_SECONDS
    alone = len(ranges(10**6, seconds))
    assert len(ranges(10**6, seconds, beside=BESIDE)) == alone
    assert len(ranges(10**6, seconds, beside=16 * BESIDE)) == alone // 4
    assert len(ranges(10**6, seconds, beside=10**6)) == 1


def test_workers_end_a_pass_together() -> None:
    grain = Grain(1e-5, 1e-6, 64)
    for pieces in (1, 3, 14, 28, 36, 40, 57, 64, 100, 1000):
        parts = grain.rounds(1.0, pieces)
        # Seconds of a pass in those of a piece, by workers that take parts in turn.
        taken = {n: -(-pieces * n // 64) / n for n in (1, parts)}
        assert taken[parts] <= taken[1]
        assert parts == 1 or taken[parts] < 0.9 * taken[1]
    assert grain.rounds(1.0, 14) == 4
    assert grain.rounds(1.0, 64) == 1
    # What each part does again makes fewer of them worth while.
    assert grain.rounds(1.0, 36, 0.04) < grain.rounds(1.0, 36, 0.001)


def test_parts_are_no_shorter_than_tasks_may_be() -> None:
    grain = Grain(1e-5, 1e-6, 64)
    assert grain.rounds(16e-6, 8) == 2
    assert grain.rounds(7e-6, 8) == 1
    assert Grain.of(1.0, 2).rounds(1.0, 1) == 1
