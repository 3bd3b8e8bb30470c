"""Work on many items: what is done with each, and what an error leaves undone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from znnpy.errors import VolumeError
from znnpy.segment.processes import AHEAD, each


@pytest.mark.parametrize("threads", [None, 1, 2, 8])
def test_results_come_in_order(threads: int | None) -> None:
    found: list[tuple[int, int]] = []
    each(range(40), lambda n: n * n, lambda *pair: found.append(pair), threads=threads)
    assert found == [(n, n * n) for n in range(40)]


def test_threads_work_at_once() -> None:
    together = threading.Barrier(3, timeout=300)
    each(range(6), lambda _: together.wait(), lambda *_: None, threads=3)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_error_ends_all(threads: int) -> None:
    given, found = [], []

    def items() -> Iterator[int]:
        for n in range(100):
            given.append(n)
            yield n

    def work(item: int) -> int:
        if item == 7:
            raise VolumeError("item 7")
        return item

    with pytest.raises(VolumeError, match="item 7"):
        each(items(), work, lambda item, _: found.append(item), threads=threads)
    assert found == list(range(7))
    assert len(given) <= 8 + AHEAD * threads
    assert not [it for it in threading.enumerate() if it.name.startswith("znnpy-segment")]
