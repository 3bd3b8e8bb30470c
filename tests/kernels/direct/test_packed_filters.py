"""Packed filters: round trips, the documented order, the transposing kernel."""

import numpy as np
import pytest
from direct_cases import Case, random_values, transposed
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.direct.packed_filters import (
    average_repeats,
    block_offset,
    group_offset,
    output_groups,
    pack_filters,
    packed_size,
    unpack_filters,
)
from znnpy_kernels.simd.lanes import LANES

shapes = st.tuples(st.integers(1, 50), st.integers(1, 40), *[st.integers(1, 3)] * 3)


@given(shape=shapes, source_lanes=st.sampled_from([1, LANES]))
@examples(40)
def test_round_trip(shape, source_lanes):
    filters = random_values(np.random.default_rng(0), *shape)
    packed = pack_filters(filters, source_lanes)
    assert packed.size == packed_size(shape[0], shape[1], int(np.prod(shape[2:])))
    np.testing.assert_array_equal(unpack_filters(packed, shape, source_lanes), filters)


def test_order_is_the_documented_one():
    shape = (2 * LANES + 3, LANES + 2, 2, 3, 2)
    filters = random_values(np.random.default_rng(1), *shape)
    packed = pack_filters(filters)
    taps = 12
    for output, image, (z, y, x) in [(0, 0, (0, 0, 0)), (LANES + 1, LANES + 1, (1, 2, 1))]:
        block, inside = divmod(image, LANES)
        count = 2 if block else LANES
        at = block_offset(block, 2, taps)
        at += (((z * 3 + y) * 2 + x) * count + inside) * 2 * LANES + output
        assert packed[at] == filters[output, image, z, y, x]
    second = group_offset(1, shape[1], taps)
    assert packed[second] == filters[2 * LANES, 0, 0, 0, 0]
    assert not packed[second + 3 : second + LANES].any()


def test_groups_follow_from_the_number_of_images():
    assert output_groups(1) == (1,)
    assert output_groups(LANES + 1) == (2,)
    assert output_groups(5 * LANES) == (2, 2, 1)


@given(
    outputs=st.integers(1, 50),
    inputs=st.integers(1, 50),
    taps=st.tuples(*[st.integers(1, 2)] * 3),
    seed=st.integers(0, 99),
)
@examples(40)
def test_transposed_filters_are_packed_with_exchanged_images(outputs, inputs, taps, seed):
    rng = np.random.default_rng(seed)
    filters = random_values(rng, outputs, inputs, *taps)
    case = Case(inputs, outputs, (1, 1, 1), taps)
    backward = transposed(case, pack_filters(filters), rng)
    np.testing.assert_array_equal(backward, pack_filters(filters.swapaxes(0, 1)))


@pytest.mark.parametrize("repeat", [(1, 2, 2), (3, 1, 4), (1, 1, 1), (3, 4, 4)])
def test_repeats_are_averaged(repeat):
    size, inputs = (3, 4, 4), 3
    filters = random_values(np.random.default_rng(2), LANES, inputs, *size)
    packed = pack_filters(filters)
    average_repeats.run(
        filters=packed, **dict(zip("zyx", size, strict=True)),
        **{f"repeat_{axis}": n for axis, n in zip("zyx", repeat, strict=True)},
        step=inputs * LANES,
    )  # fmt: skip
    z, y, x = repeat
    blocks = filters.reshape(LANES, inputs, 3 // z, z, 4 // y, y, 4 // x, x)
    means = blocks.mean((3, 5, 7), np.float64, keepdims=True)
    exact = np.broadcast_to(means, blocks.shape).reshape(filters.shape)
    np.testing.assert_allclose(unpack_filters(packed, filters.shape), exact, rtol=1e-5, atol=1e-6)
