"""Ranks keep their graphs, each its own: they are those that would be connected anew, and train to the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launched import launched

SCRIPT = """
import json, sys
from dataclasses import fields
from pathlib import Path

import numpy as np
from rank_training import trained
from znnpy_kernels.machine import stored_code
from znnpy_kernels.machine.declarations import named

from znnpy.distributed.world import World
from znnpy.engine import execution
from znnpy.engine.kept import folder, graphs
from znnpy.engine.memory import arena
from znnpy.graph import TaskGraph

folder.home = lambda: Path(sys.argv[1])
graphs.LEAST_CALLS = 1
made, planned, declared = [], graphs.planned_within, execution.declare
graphs.planned_within = lambda *a, **k: made.append("plan") or planned(*a, **k)
execution.declare = lambda name, *a: made.append(name) or declared(name, *a)
close = execution.Graphs.close


def as_declared(array):
    '''An array with addresses of declared kernels in place of those that were linked.'''
    for name, linked in stored_code._linked.items():
        if known := named(name):
            array = np.where(array == linked.address, known.address, array)
    return array


def compared(own):
    '''Compare what a model has run with what it would connect in its own memory.'''
    for name, executor in own._executors.items():
        anew = own._connected_here(name)
        for it in fields(TaskGraph):
            found, wanted = getattr(executor.graph, it.name), getattr(anew, it.name)
            if it.name in ("addresses", "words"):
                found = as_declared(found)
            same = np.array_equal if isinstance(found, np.ndarray) else lambda one, two: one == two
            assert same(found, wanted), (name, it.name)
    exchange = own._settings.exchange(own._build)
    declared("update", own._build, own._settings, exchange)
    assert execution.all_transfers(own._build, exchange) == own._transfers != []


def closing(own):
    seen.append([*made])
    compared(own)
    close(own)


execution.Graphs.close = closing
with World.open() as world:
    for number, case in enumerate(json.loads(sys.argv[2])):
        found, seen = [], []
        for turn in range(2):
            made.clear()
            found.append(trained(world, case))
        own = [world.rank, seen, found[0] == found[1], found[1]]
        if len(sys.argv) > 3:  # of more buffers than addresses tell apart
            arena.Arena.tells = property(lambda arena: False)
            folder.home = lambda: Path(sys.argv[1]) / "nothing is here"
            made.clear()
            own[2] &= trained(world, case) == found[0]
        if world.rank:
            world.exchange(own)
        else:
            print(json.dumps([number, world.exchange(own)]), flush=True)
"""
CASE = {"net": "chain", "batch": 4, "microbatch": 1, "updates": 3}
CASES: list[dict[str, Any]] = [
    CASE | {"strategy": "tree", "chunk": 4096},
    CASE | {"strategy": "multicolor", "colors": 2, "chunk": 4096, "clip_norm": 0.1},
    CASE | {"strategy": "multicolor", "microbatch": 2, "shared_memory": False},
    CASE | {"strategy": "allreduce", "microbatch": 2},
]
OTHERS = ["gradients"]  # what is declared for who asks


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder of its own, where graphs of small models are kept, too."""
    place = tmp_path / "graphs"
    place.mkdir(mode=0o700)
    return place


def started(ranks: int, kept: Path, cases: list[dict[str, Any]], *more: str) -> list[list[Any]]:
    """Of each case, by rank: what was planned and declared in two models, whether they agree, what comes of it."""
    lines = launched(ranks, SCRIPT, kept, json.dumps(cases), *more)
    return [by_rank for _, by_rank in map(json.loads, lines)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("cases", [CASES[:1], CASES[1:]])
def test_kept_graphs_of_ranks_are_those_connected_anew(
    kept: Path, cases: list[dict[str, Any]]
) -> None:
    """In the memory of the model that has them, messages too, and in that of the next processes."""
    first = started(2, kept, cases)
    assert len([*kept.iterdir()]) == 2 * len(cases)
    for by_rank in first:
        for _, seen, agree, _ in by_rank:
            assert seen == [["plan", *OTHERS], OTHERS]
            assert agree
    for before, now in zip(first, started(2, kept, cases), strict=True):
        for (*_, wanted), (_, seen, _, found) in zip(before, now, strict=True):
            assert seen == [OTHERS, OTHERS]
            assert found == wanted


@pytest.mark.slow
def test_a_rank_whose_file_was_cut_short_goes_with_others_whose_were_not(kept: Path) -> None:
    """As one that has none does; it writes another."""
    first = started(2, kept, CASES[1:2])
    for file in sorted(kept.iterdir()):
        with file.open("r+b") as cut:
            cut.truncate(1000)
        ((one, other),) = started(2, kept, CASES[1:2])
        assert sorted([one[1][0], other[1][0]]) == [OTHERS, [*OTHERS, "plan"][::-1]]
        assert [one[-1], other[-1]] == [it[-1] for it in first[0]]
        assert all(it.stat().st_size > 1000 for it in kept.iterdir())


@pytest.mark.slow
def test_other_numbers_of_ranks_have_graphs_of_their_own(kept: Path) -> None:
    one, other = started(2, kept, CASES[:1]), started(3, kept, CASES[:1])
    assert len([*kept.iterdir()]) == 2 + 3
    assert all(seen[0] == ["plan", *OTHERS] for _, seen, _, _ in other[0])
    assert one[0][0][-1] == other[0][0][-1]


@pytest.mark.slow
def test_so_are_those_of_more_buffers_than_are_told_apart(kept: Path) -> None:
    """Which are declared in memory."""
    for by_rank in started(2, kept, CASES[1:3], "declared in memory"):
        for _, seen, agree, _ in by_rank:
            assert agree
            assert "update" in seen[2]
