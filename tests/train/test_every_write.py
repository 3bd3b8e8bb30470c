"""Training whose calls to the disk fail, one at a time: one line, nothing saved is lost, the same in the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from preloading import MEMORY, built, run_with

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(HERE.parent / "infer" / "dying.c", tmp_path_factory.mktemp("library"))


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield name


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "broken", "short"])
def test_every_call_of_training_fails_once(library: str, folder: str, mode: str) -> None:
    calls, failed = map(int, run_with(library, HERE / "every_write.py", folder, mode, 1).split())
    assert calls > 120
    # Half a write is gone on with, and what is left to do needs no room.
    assert failed == 0 if mode == "short" else failed > 0.6 * calls


def test_some_calls_of_training_fail(library: str, folder: str) -> None:
    _, failed = map(int, run_with(library, HERE / "every_write.py", folder, "broken", 40).split())
    assert failed > 1
