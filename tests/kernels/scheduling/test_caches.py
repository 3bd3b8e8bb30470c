"""What tasks move from and to memory, against caches made of Python's ordered dictionaries."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.scheduling.caches import count_traffic


def slow_traffic(order, cache, counted, touches, sizes, capacity, caches):
    """The same rules, spelled out: who misses asks the other caches, then memory; stores leave by eviction."""
    held = [OrderedDict() for _ in range(caches)]
    dirty, moved = {}, [0.0] * len(touches)
    for turn, (task, own) in enumerate(zip(order, cache, strict=True)):
        for stripe, stored in touches[task]:
            if stripe not in held[own] and not any(stripe in it for it in held) and turn >= counted:
                moved[task] += sizes[stripe]
            held[own][stripe] = None
            held[own].move_to_end(stripe)
            if stored:
                for other in range(caches):
                    if other != own:
                        held[other].pop(stripe, None)
                dirty[stripe] = own, task
            while sum(sizes[it] for it in held[own]) > capacity:
                last, _ = held[own].popitem(last=False)
                if last in dirty and dirty[last][0] == own:
                    writer = dirty.pop(last)[1]
                    if turn >= counted:
                        moved[writer] += sizes[last]
    return moved


def native_traffic(order, cache, counted, touches, sizes, capacity, caches):
    starts = np.cumsum([0, *map(len, touches)])
    flat = np.array([it for own in touches for it in own], np.int64).reshape(-1, 2)
    moved = np.zeros(len(touches))
    stripes, written = np.ascontiguousarray(flat.T)
    count_traffic(
        np.array(order), np.array(cache), counted, starts, stripes, written, np.array(sizes, float),
        float(capacity), caches, moved,
    )  # fmt: skip
    return moved


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_caches_as_in_python(seed, caches):
    rng = np.random.default_rng(seed)
    sizes = (64.0 * rng.integers(1, 9, 12)).tolist()
    touches = [
        [(int(rng.integers(12)), int(rng.integers(2))) for _ in range(rng.integers(0, 5))]
        for _ in range(6)
    ]
    order, cache = rng.integers(0, 6, 40), rng.integers(0, caches, 40)
    given_ = order, cache, int(rng.integers(0, 20)), touches, sizes, float(rng.integers(0, 2000))
    np.testing.assert_array_equal(native_traffic(*given_, caches), slow_traffic(*given_, caches))


@pytest.mark.parametrize(("capacity", "expected"), [(64 * 30, [0, 0]), (64 * 10, [1280, 640])])
def test_what_fits_between_who_makes_it_and_who_reads_it_does_not_count(capacity, expected):
    """One task stores 10 lines, another reads them and 10 more, which push them out where there is room for 10."""
    lines = [64.0 * 10] * 2
    touches = [[(0, 1)], [(0, 0), (1, 0)]]
    found = native_traffic([0, 1] * 4, [0] * 8, 6, touches, lines, capacity, 1)
    # Stored lines are read first, and leave for memory in the end.
    assert found.tolist() == expected
