"""Parts cover everything once, on any number of threads; errors of any of them arrive."""

from __future__ import annotations

import threading

import pytest

from znnpy.infer.parallel import parts_of


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 100])
def test_every_plane_is_done_once(threads: int, length: int) -> None:
    lock, done = threading.Lock(), list[int]()

    def part(first: int, last: int) -> None:
        with lock:
            done.extend(range(first, last))

    with parts_of(threads) as parts:
        parts(part, length)
        parts(part, length)
    assert sorted(done) == sorted([*range(length), *range(length)])


@pytest.mark.parametrize("wrong", [0, 9])
def test_an_error_arrives_after_all_have_ended(wrong: int) -> None:
    ended = []

    def part(first: int, last: int) -> None:
        ended.append(first)
        if first <= wrong < last:
            raise ValueError("wrong")

    with parts_of(3) as parts, pytest.raises(ValueError, match="wrong"):
        parts(part, 10)
    assert len(ended) == 3
