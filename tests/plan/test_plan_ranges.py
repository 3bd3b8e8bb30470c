"""Cuts cover everything once, in parts of about the wanted time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from znnpy.plan import ranges
from znnpy.plan.partition import FEWEST, LEAST_SECONDS, TARGET_SECONDS


@pytest.mark.parametrize("extent", [1, 3, 20, 1000])
@pytest.mark.parametrize("seconds", [0.0, 1e-5, 3e-5, 1e-4, 1e-3, 1.0])
def test_parts_cover_the_extent_evenly(extent: int, seconds: float) -> None:
    found = ranges(extent, seconds)
    assert found[0][0] == 0
    assert found[-1][1] == extent
    assert all(high == low for (_, high), (low, _) in pairwise(found))
    sizes = {high - low for low, high in found}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_long_passes_are_cut_by_the_wanted_time() -> None:
    assert len(ranges(1000, 10 * TARGET_SECONDS)) == 10


def test_short_passes_keep_some_workers_busy() -> None:
    assert len(ranges(1000, TARGET_SECONDS)) == FEWEST
    assert len(ranges(1000, 2 * LEAST_SECONDS)) == 2


def test_the_shortest_passes_are_one_task() -> None:
    assert ranges(1000, 0.9 * LEAST_SECONDS) == [(0, 1000)]


def test_parts_are_no_smaller_than_wanted() -> None:
    assert ranges(20, 1.0, least=6) == [(0, 6), (6, 13), (13, 20)]
    assert ranges(4, 1.0, least=6) == [(0, 4)]
