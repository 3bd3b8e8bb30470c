"""Files give back what was written, and nothing once a byte is another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from znnpy.engine.kept.arrays_file import Packed, read, written

RECORD = {"bytes": 1 << 62, "names": [["x", [1, True, None]]]}
NUMBERS = st.sampled_from(["<i8", "<f8", "|b1"]).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=40))
)


def file_of(**values):
    return written("key", RECORD, {name: Packed.of(it) for name, it in values.items()})


@given(NUMBERS, NUMBERS)
def test_arrays_come_back_on_lines(first, second):
    record, found = read("key", file_of(first=first, second=second))
    assert record == RECORD
    for name, wanted in {"first": first, "second": second}.items():
        np.testing.assert_array_equal(found[name].view("u1"), wanted.view("u1"))
        assert found[name].dtype == wanted.dtype
        assert found[name].flags.writeable
        assert wanted.size == 0 or found[name].ctypes.data % 64 == 0


def test_large_arrays_are_unpacked_piece_by_piece():
    numbers = np.random.default_rng(0).integers(0, 1 << 62, 100_000)
    _, found = read("key", file_of(numbers=numbers))
    np.testing.assert_array_equal(found["numbers"], numbers)


@given(st.data())
def test_what_is_damaged_is_not_read(data):
    whole = file_of(numbers=np.arange(300))
    place = data.draw(st.integers(0, len(whole) - 1))
    other = bytes([whole[place] ^ data.draw(st.integers(1, 255))])
    assert read("key", whole[:place] + other + whole[place + 1 :]) is None
    assert read("key", whole[:place]) is None
    assert read("other", whole) is None
