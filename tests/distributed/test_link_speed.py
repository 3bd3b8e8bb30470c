"""Which strategy a measurement favours."""

from __future__ import annotations

import json

import pytest
from launched import launched

from znnpy.distributed.buckets import Pieces
from znnpy.distributed.link_speed import Layers, Link, chosen, estimated, traffic
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import STRATEGIES, strategy

MIB = 1 << 20
FAST, SLOW = Link(50e-6, 1e-10), Link(50e-6, 1e-8)
MEASURE = """
import json
from znnpy.distributed.link_speed import measured
from znnpy.distributed.world import World

with World.open() as world:
    print(json.dumps(measured(world)), flush=True)
"""


def layers(*sizes: int) -> Layers:
    """Layers of so many bytes, in pieces of a KiB."""
    return [
        [Pieces("", tuple(min(end, size // 4) for end in range(256, size // 4 + 256, 256)))]
        for size in sizes
    ]


def test_one_tree_fills_the_lines_of_rank_0() -> None:
    assert traffic(Ranks.of(8, 8), strategy("tree"), layers(MIB)).bytes == 3 * MIB


@pytest.mark.parametrize("size", [2, 4, 8])
def test_many_colors_share_the_lines(size: int) -> None:
    found = traffic(Ranks.of(size, size), strategy("multicolor", chunk=MIB // 8), layers(MIB))
    assert found.bytes == 2 * MIB * (size - 1) // size


def test_small_layers_take_half_the_rounds() -> None:
    """Those of which every rank adds up all; a rank sends one sum a round, and receives one."""
    ranks, way = Ranks.of(8, 8), strategy("multicolor")
    assert traffic(ranks, way, layers(1024, 2048)) == (12, 3 * 3072, 3)
    assert traffic(ranks, way, layers(1024, 2 * way.doubled)).rounds == 6
    # Not where ranks would send to many at once.
    assert traffic(Ranks.of(9, 9), way, layers(1024)).rounds == 8


def test_large_layers_are_shared_and_small_ones_are_not() -> None:
    assert chosen(SLOW, Ranks.of(8, 8), layers(64 * MIB)).name == "multicolor"
    assert chosen(FAST, Ranks.of(2, 2), layers(*[MIB] * 8)).name == "tree"


def test_what_is_compared_is_what_would_run() -> None:
    found = chosen(SLOW, Ranks.of(8, 8), layers(64 * MIB), colors=4, chunk=MIB // 2)
    assert (found.name, found.colors, found.chunk) == ("multicolor", 4, MIB // 2)
    # As many colors as ranks share the lines, one loads rank 0 like a tree, with more messages.
    assert chosen(SLOW, Ranks.of(8, 8), layers(64 * MIB), colors=1).name == "tree"


@pytest.mark.slow
def test_who_promises_no_order_is_never_chosen() -> None:
    for link in (FAST, SLOW):
        for size in (2, 3, 8):
            for layer in (100, MIB, 64 * MIB):
                assert chosen(link, Ranks.of(size, size), layers(layer)).fixed


def test_more_bytes_take_longer() -> None:
    ranks = Ranks.of(4, 4)
    for way in STRATEGIES.values():
        if way.fixed:
            assert estimated(SLOW, ranks, way, layers(MIB)) < estimated(
                SLOW, ranks, way, layers(8 * MIB)
            )


@pytest.mark.slow
def test_all_ranks_measure_the_same() -> None:
    found = [json.loads(line) for line in launched(2, MEASURE)]
    assert found[0] == found[1]
    assert found[0][0] > 0
