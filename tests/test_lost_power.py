"""The power is lost at any call to the disk: what was acknowledged stays, the next command does the rest."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lost_power import Disk, Event
from preloading import EVERY_CALL, MEMORY, built, run_with

HERE = Path(__file__).parent
# A run that was resumed has made all calls of one that was not, up to where it stopped.
WHAT = [".h5", ".zarr", "resumed", *(["train"] if EVERY_CALL else [])]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(HERE / "recording.c", tmp_path_factory.mktemp("library"))


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield name


def losses(library: str, folder: str, what: str, samples: int, step: int) -> tuple[int, int, int]:
    """Calls, states that were taken up, states that were refused."""
    said = run_with(library, HERE / "every_loss.py", folder, what, samples, step).splitlines()
    return int(said[0]), int(said[1]), int(said[2])


@pytest.mark.slow
@pytest.mark.parametrize("what", WHAT)
def test_losses_at_every_call(library: str, folder: str, what: str) -> None:
    step = 1 if EVERY_CALL else 140
    calls, found, refused = losses(library, folder, what, 3 if EVERY_CALL else 2, step)
    assert calls > 60
    assert found > calls / step
    assert not refused


def happened(*calls: tuple[object, ...]) -> Disk:
    disk = Disk()
    for kind, path, *more in calls:
        other, place, size, data = "", 0, 0, b""
        if kind == "r":
            other = str(more[0])
        elif kind == "w":
            place, data = more  # type: ignore[assignment]
            size = len(data)
        elif more:
            (size,) = more  # type: ignore[assignment]
        disk.happen(Event(str(kind), str(path), other, place, size, data))
    return disk


def test_the_model_loses_what_is_not_synced() -> None:
    disk = happened(("c", "a"), ("w", "a", 0, b"one"), ("s", "a"))
    assert disk.left(None) == {}  # a file without a name
    disk = happened(("c", "a"), ("s", ""), ("w", "a", 0, b"one"))
    assert disk.left(None) == {"a": b""}
    disk = happened(("c", "a"), ("s", ""), ("w", "a", 0, b"one"), ("s", "a"), ("w", "a", 3, b"two"))
    assert disk.left(None) == {"a": b"one"}
    assert disk.left(None, 1.0) == {"a": b"onetwo"}
    disk = happened(("c", "b"), ("s", ""), ("r", "b", "a"), ("d", "d"), ("c", "d/x"), ("s", "d"))
    assert disk.left(None) == {"b": b""}
    assert disk.left(None, 1.0) == {"a": b"", "d": None, "d/x": b""}
    disk = happened(("c", "a"), ("w", "a", 0, b"1234"), ("t", "a", 2), ("s", "a"), ("s", ""))
    assert disk.left(None) == {"a": b"12"}
