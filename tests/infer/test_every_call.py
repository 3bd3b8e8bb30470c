"""A prediction that is killed or fails at every call to the disk, by a library that is preloaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from preloading import EVERY_CALL, MEMORY, built, run_with

HERE = Path(__file__).parent
STEP = 1 if EVERY_CALL else 16
ON_STEP = min(STEP, 5)
"""Fewer than the calls for a block: where runs go on from one another, each finishes one at most."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(HERE / "dying.c", tmp_path_factory.mktemp("library"))


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield name


def run(
    library: str, folder: str, suffix: str, step: int, *modes: str
) -> list[tuple[int, int, int]]:
    """Of each mode blocks, calls to the disk, runs that did not come to their end."""
    said = run_with(library, HERE / "every_call.py", folder, suffix, step, *modes)
    found = []
    for line, _ in zip(said.splitlines(), modes, strict=True):
        blocks, calls, ended = map(int, line.split())
        found.append((blocks, calls, ended))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_killed_at_every_call_of_runs_that_go_on(library: str, folder: str, suffix: str) -> None:
    ((blocks, calls, killed),) = run(library, folder, suffix, ON_STEP, "chained")
    assert blocks > 20
    assert calls > 6 * blocks
    assert killed >= max(calls / ON_STEP, blocks)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_new_runs_killed_at_every_call_or_whose_disk_fails_from_there_on(
    library: str, folder: str, suffix: str
) -> None:
    alone, full, broken = run(library, folder, suffix, STEP, "alone", "full", "broken")
    blocks, calls, killed = alone
    assert calls > 6 * blocks > 30
    assert killed >= calls // STEP
    for also, too, failed in (full, broken):
        assert (also, too) == (blocks, calls)
        # What is left to do at the end, renaming and removing, needs no room.
        assert failed > 0.7 * calls / STEP
