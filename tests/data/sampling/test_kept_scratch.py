"""Memory of threads: kept, large enough, each thread's own."""

from __future__ import annotations

from threading import Thread

import numpy as np

from znnpy.data.sampling.scratch import at, scratch, scratch_region


def test_each_thread_is_given_its_own_memory_again() -> None:
    found: list[tuple[int, int]] = []
    mine = scratch(1000), at(scratch_region((3, 4, 5)))
    assert (scratch(10), at(scratch_region((2, 2)))) == mine
    other = Thread(target=lambda: found.append((scratch(1000), at(scratch_region((3, 4, 5))))))
    other.start()
    other.join()
    assert not {*mine} & {*found[0]}


def test_memory_grows_with_what_is_asked_for() -> None:
    region = scratch_region((7, 100, 1000))
    assert region.shape == (7, 100, 1000)
    assert region.flags.c_contiguous
    assert region.dtype == np.float32
    scratch(1 << 22)
    region[...] = 1
    assert (region == 1).all()
