"""Which strategy a measurement favours."""

from __future__ import annotations

import json

import pytest
from launched import launched

from znnpy.distributed.link import Link, chosen, estimated, traffic
from znnpy.distributed.ranks import Ranks
from znnpy.distributed.strategies import STRATEGIES, strategy

MIB = 1 << 20
FAST, SLOW = Link(50e-6, 1e-10), Link(50e-6, 1e-8)
MEASURE = """
import json
from znnpy.distributed.link import measured
from znnpy.distributed.world import World

with World.open() as world:
    print(json.dumps(measured(world)), flush=True)
"""


def test_one_tree_fills_the_lines_of_rank_0() -> None:
    assert traffic(Ranks.of(8, 8), strategy("tree"), [MIB]).bytes == 3 * MIB


@pytest.mark.parametrize("size", [2, 4, 8])
def test_many_colors_share_the_lines(size: int) -> None:
    found = traffic(Ranks.of(size, size), strategy("multicolor", chunk=MIB // 8), [MIB])
    assert found.bytes == 2 * MIB * (size - 1) // size


def test_large_layers_are_shared_and_small_ones_are_not() -> None:
    assert chosen(SLOW, Ranks.of(8, 8), [64 * MIB]).name == "multicolor"
    assert chosen(FAST, Ranks.of(2, 2), [MIB] * 8).name == "tree"


def test_who_promises_no_order_is_never_chosen() -> None:
    for link in (FAST, SLOW):
        for size in (2, 3, 8):
            for layer in (100, MIB, 64 * MIB):
                assert chosen(link, Ranks.of(size, size), [layer]).fixed


def test_more_bytes_take_longer() -> None:
    ranks = Ranks.of(4, 4)
    for way in STRATEGIES.values():
        if way.fixed:
            assert estimated(SLOW, ranks, way, [MIB]) < estimated(SLOW, ranks, way, [8 * MIB])


def test_all_ranks_measure_the_same() -> None:
    found = [json.loads(line) for line in launched(2, MEASURE)]
    assert found[0] == found[1]
    assert found[0][0] > 0
