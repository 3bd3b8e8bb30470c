"""Filters are packed from wherever they lie, within their own bytes, to what NumPy makes of them."""

from typing import Any

import numpy as np
import pytest
from direct_cases import random_values
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.direct.filter_packing import pack
from znnpy_kernels.direct.packed_filters import output_groups, pack_filters, packed_size
from znnpy_kernels.simd.lanes import LANES

VIEWS = {
    "whole": lambda it: it,
    "exchanged": lambda it: it.swapaxes(0, 1),
    "some inputs": lambda it: it[:, it.shape[1] // 2 :],
    "some outputs": lambda it: it[it.shape[0] // 2 :],
    "backwards": lambda it: it[::-1, ::-1],
}
OTHERS = {
    "mirrored": lambda it: it[..., ::-1],
    "turned": lambda it: it.transpose(0, 1, 4, 3, 2),
    "float64": lambda it: it.astype(np.float64) + 1e-9,
    "other bytes": lambda it: it.astype(">f4"),
}


def expected(filters: Any, source_lanes: int) -> Any:
    """Pieces one behind the other: a group of outputs, and in it blocks of inputs, [tap][input][output]."""
    outputs, inputs = filters.shape[:2]
    taps = np.float32(filters).reshape(outputs, inputs, -1)
    pieces, first = [], 0
    for vectors in output_groups(outputs):
        some = taps[first : first + vectors * LANES]
        whole = np.zeros((vectors * LANES, *taps.shape[1:]), np.float32)
        whole[: len(some)] = some
        for low in range(0, inputs, source_lanes):
            pieces.append(whole[:, low : low + source_lanes].transpose(2, 1, 0).ravel())
        first += vectors * LANES
    return np.concatenate(pieces)


SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40), *[st.integers(1, 4)] * 3)


@given(SHAPES, st.sampled_from([1, LANES]), st.sampled_from(sorted(VIEWS | OTHERS)))
@examples(60)
def test_views_are_packed_as_numpy_packs_them(shape: Any, source_lanes: int, view: str) -> None:
    filters = (VIEWS | OTHERS)[view](random_values(np.random.default_rng(0), *shape))
    outputs, inputs, *size = filters.shape
    target = np.full(packed_size(outputs, inputs, int(np.prod(size))), np.nan, np.float32)
    assert pack_filters(filters, source_lanes, target) is target
    np.testing.assert_array_equal(target, expected(filters, source_lanes))


@pytest.mark.parametrize(
    "shape", [(2 * LANES, LANES, 9), (2 * LANES + 3, LANES + 2, LANES - 1), (LANES + 1, 3, 1)]
)
def test_nothing_beside_filters_is_read_or_written(shape: Any) -> None:
    outputs, inputs, taps = shape
    filters = random_values(np.random.default_rng(0), *shape)
    target = np.full(packed_size(*shape), np.nan, np.float32)
    sizes = 4 * inputs * taps, 4 * taps
    pack.run(filters, *sizes, target, outputs, inputs, taps, LANES)
    np.testing.assert_array_equal(target, expected(filters[..., None, None], LANES))
