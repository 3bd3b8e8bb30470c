"""Pages of an arena are made at once where that is asked for; what lies there stays."""

from pathlib import Path

import numpy as np
import pytest

from znnpy.engine.memory import arena
from znnpy.engine.memory.arena import Arena


def pages(made: Arena) -> int:
    """Return how many KiB of an arena are in memory."""
    start = made.view(made.reserve(0, arena.Use("none")), (0,), "u1").ctypes.data
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            low, high = (int(it, 16) for it in line.split()[0].split("-"))
            found = low <= start < high
        elif found and line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError("it is not mapped")


@pytest.mark.parametrize("nodes", [1, 2])
def test_pages_are_made_at_once(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(arena, "TOUCHED", 1 << 20)
    monkeypatch.setattr(arena, "numa_nodes", lambda: range(nodes))
    monkeypatch.setattr(arena, "interleave", lambda *given: False)
    size = 5 << 20
    made = Arena.of(size, large_pages=False)
    place = made.reserve(100, arena.Use("some"))
    made.view(place, (100,))[:] = 3
    made.touch()
    # With several nodes pages lie where those who use them touch them first.
    assert (pages(made) > size // 1024 - 16) == (nodes == 1)
    assert (made.view(place, (100,)) == 3).all()


def test_nothing_behind_it() -> None:
    Arena().touch()
    assert np.isfinite(Arena().bytes)
