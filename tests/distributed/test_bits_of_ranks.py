"""The same weights, optimiser states and losses from any number of ranks, whatever is late."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launched import launched
from rank_training import trained

from znnpy.distributed.world import World

SCRIPT = (Path(__file__).parent / "rank_training.py").read_text()
NETS = ("chain", "unet", "lenet")
SEEDS = int(os.environ.get("ZNNPY_LATE", "2"))  # of each network; 5 try each of FIXED on each
FIXED: list[dict[str, Any]] = [
    {"strategy": "tree"},
    {"strategy": "tree", "chunk": 4096, "clip_norm": 0.1},
    {"strategy": "tree", "shared_memory": False},
    {"strategy": "multicolor", "colors": 2, "chunk": 4096, "shared_memory": False},
    {"strategy": "multicolor", "colors": 8, "chunk": 4096, "clip_norm": 0.1},
    {"strategy": "multicolor"},  # every rank adds up these small layers
]
FREE: list[dict[str, Any]] = [
    {"strategy": "allreduce"},
    {"strategy": "allreduce", "chunk": 4096, "clip_norm": 0.1},
    {"strategy": "blocking"},
]


def cases(
    net: str, ways: list[dict[str, Any]], batch: int, threads: int = 2
) -> list[dict[str, Any]]:
    same = {"net": net, "batch": batch, "microbatch": 1, "threads": threads, "updates": 4}
    return [same | way for way in ways]


def found(ranks: int, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What comes of cases, by case; all ranks have the same weights and losses."""
    lines = launched(ranks, SCRIPT, json.dumps(list(enumerate(wanted))))
    by_case = dict(json.loads(line) for line in lines)
    return [by_case[number] for number in range(len(wanted))]


@cache
def alone(net: str, batch: int, clip_norm: float | None) -> dict[str, Any]:
    """What one process makes of it."""
    own = {"net": net, "batch": batch, "microbatch": 1, "updates": 4, "clip_norm": clip_norm}
    with World() as world:
        return trained(world, own)


def assert_same(ranks: int, wanted: list[dict[str, Any]]) -> None:
    for case, own in zip(wanted, found(ranks, wanted), strict=True):
        assert own == alone(case["net"], case["batch"], case.get("clip_norm")), case


def test_two_ranks_make_the_bits_of_one() -> None:
    assert_same(2, [case | {"delays": 1} for case in cases("chain", FIXED[1:4:2], 4)])


def late() -> list[dict[str, Any]]:
    """Networks in turn, each time with the next way and seed of delays, on one thread and on two."""
    return [
        case | {"delays": 1 + number}
        for number in range(SEEDS * len(NETS))
        for case in cases(
            NETS[number % len(NETS)],
            [FIXED[number % len(FIXED)]],
            8,
            threads=1 + number // len(NETS) % 2,
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_any_ranks_make_the_bits_of_one(ranks: int) -> None:
    in_time = cases("chain", FIXED, 8, threads=1)  # each way once as it is
    assert_same(ranks, [*in_time, *late()])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 5])
def test_microbatches_that_do_not_share_evenly_make_the_same_bits(ranks: int) -> None:
    assert_same(ranks, cases("chain", FIXED[1:], 6, threads=1))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_of_the_library_are_near(ranks: int) -> None:
    wanted = cases("chain", FREE, 6)
    for case, own in zip(wanted, found(ranks, wanted), strict=True):
        one = alone("chain", 6, case.get("clip_norm"))
        for mine, other in zip(own["losses"], one["losses"], strict=True):
            near = [float.fromhex(word) for word in other]
            assert [float.fromhex(word) for word in mine] == pytest.approx(near, rel=1e-4), case
