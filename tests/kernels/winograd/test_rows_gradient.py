"""Weight gradient by minimal filtering along x alone, of few planar inputs, against float64 references."""

from itertools import product

import numpy as np
import pytest
from direct_cases import (
    GUARD,
    Case,
    Tensor,
    cuts,
    random_values,
    reference_weight_gradient,
)
from znnpy_kernels.direct.packed_filters import (
    group_offset,
    output_groups,
    pack_filters,
    packed_size,
    unpack_filters,
)
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.rows import NEW
from znnpy_kernels.winograd.rows_gradient import KERNELS, ROWS


def check(case, rng):
    source = Tensor(case.inputs, case.source_size, 1, np.nan)
    values = random_values(rng, case.inputs, *case.source_size)
    source.write(values)
    gradient = Tensor(case.outputs, case.size, LANES, np.nan)
    upstream = random_values(rng, case.outputs, *case.size)
    gradient.write(upstream)
    size = packed_size(case.outputs, case.inputs, case.tap_count)
    guarded = np.full(size + 2 * LANES, GUARD, np.float32)
    packed, total = guarded[LANES : LANES + size], np.zeros(size)
    for slab in product(cuts(case.size[0], rng), cuts(case.size[1], rng)):
        packed[...] = np.nan
        for group in range(len(output_groups(case.outputs))):
            run(case, source, gradient, packed, group, *slab)
        total += packed
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[LANES + size :] == GUARD).all()
    found = unpack_filters(np.float32(total), (case.outputs, case.inputs, *case.taps), 1)
    expected = reference_weight_gradient(case, values, upstream)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-4)
    again = pack_filters(found, 1)
    np.testing.assert_array_equal(
        again, np.float32(total), "lanes beyond the last output must be 0"
    )


def run(case, source, gradient, packed, group, planes, rows):
    offset = group_offset(group, case.inputs, case.tap_count)
    KERNELS[output_groups(case.outputs)[group] - 1].run(
        source=source.address,
        source_block=source.block,
        source_z=source.z,
        source_y=source.y,
        channels=case.inputs,
        taps_y=case.taps[1],
        gradient=gradient.address + 4 * 2 * group * gradient.block,
        gradient_block=gradient.block,
        gradient_z=gradient.z,
        gradient_y=gradient.y,
        z0=planes[0],
        z1=planes[1],
        y0=rows[0],
        y1=rows[1],
        width=case.size[2],
        target=address(packed) + 4 * offset,
    )


@pytest.mark.parametrize("inputs", [1, 3, 4])
def test_inputs(inputs):
    rng = np.random.default_rng(inputs)
    check(Case(inputs, 3 * LANES - 1, (2, 2 * ROWS + 3, 30), (1, 5, 5), planar=True), rng)


@pytest.mark.parametrize("taps_y", range(1, 9))
def test_rows_of_taps(taps_y):
    case = Case(3, 2 * LANES, (1, 3 * ROWS - 1, 9), (1, taps_y, 5), planar=True)
    check(case, np.random.default_rng(taps_y))


@pytest.mark.parametrize("width", [*range(1, 10), *(NEW * LANES + d for d in (-1, 0, 1)), 140])
def test_widths(width):
    check(Case(2, LANES, (1, 3, width), (1, 3, 5), planar=True), np.random.default_rng(width))


@pytest.mark.parametrize("rows", range(1, 2 * ROWS + 1))
def test_rows_of_the_gradient(rows):
    check(Case(3, LANES, (1, rows, 5), (1, 5, 5), planar=True), np.random.default_rng(rows))
