"""Weight gradients from the voxels that won maxima alone, against float64 sums over all voxels."""

from dataclasses import dataclass

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
from pooling_cases import gathered
from znnpy_kernels.direct.maxima_gradient import HELD, PITCH, maxima_gradient, takes
from znnpy_kernels.direct.packed_filters import (
    group_offset,
    output_groups,
    pack_filters,
    packed_size,
    unpack_filters,
)
from znnpy_kernels.layers.max_pooling_rows import NOBODY
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

FIVE = min(5, LANES)


@dataclass(frozen=True)
class Pooled:
    """A layer of `inputs` planar channels, with maxima (planes, rows, width) behind it."""

    inputs: int
    outputs: int
    maxima: tuple[int, int, int]
    taps: tuple[int, int] = (5, FIVE)
    window: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    before: tuple[int, int] = (0, 0)
    behind: tuple[int, int] = (0, 0)

    @property
    def layer(self):
        rows, width = (
            (n - 1) * s + w - b - a
            for n, s, w, b, a in zip(
                self.maxima[1:], self.stride, self.window, self.before, self.behind, strict=True
            )
        )
        return Case(
            self.inputs,
            self.outputs,
            (self.maxima[0], rows, width),
            (1, *self.taps),
            planar=True,
        )


def drawn_winners(case, rng):
    """For each maximum the number of a tap within the image; now and then nobody."""
    _, high, wide = case.layer.size
    places = []
    for axis, extent in enumerate((high, wide)):
        count = case.maxima[1 + axis]
        first = np.arange(count) * case.stride[axis] - case.before[axis]
        low = np.maximum(0, -first)
        last = np.minimum(case.window[axis], extent - first)
        shape = [1, 1, 1, 1]
        shape[2 + axis] = count
        draw = rng.random((case.outputs, *case.maxima))
        low, last = low.reshape(shape), last.reshape(shape)
        places.append(low + np.floor(draw * (last - low)).astype(int))
    taps = places[0] * case.window[1] + places[1]
    return np.where(rng.random(taps.shape) < 0.1, NOBODY, taps)


def check(case, seed=0):
    rng, layer = np.random.default_rng(seed), case.layer
    source = Tensor(case.inputs, layer.source_size, 1, np.nan)
    values = random_values(rng, case.inputs, *layer.source_size)
    source.write(values)
    gradient = Tensor(case.outputs, case.maxima, LANES, np.nan)
    upstream = random_values(rng, case.outputs, *case.maxima)
    gradient.write(upstream)
    winners = drawn_winners(case, rng)
    blocks = gradient.blocks
    # Idle lanes may hold any number.
    index = rng.integers(0, 1 << 16, (blocks, *case.maxima, LANES)).astype(np.uint16)
    lanes = index.transpose(0, 4, 1, 2, 3).reshape(-1, *case.maxima)
    lanes[: case.outputs] = winners
    index = lanes.reshape(blocks, LANES, *case.maxima).transpose(0, 2, 3, 4, 1).copy()
    size = packed_size(case.outputs, case.inputs, layer.tap_count)
    guarded = np.full(size + 2 * LANES, GUARD, np.float32)
    packed, total = guarded[LANES : LANES + size], np.zeros(size)
    for first, last in cuts(case.maxima[1], rng):
        packed[...] = np.nan
        for group, vectors in enumerate(output_groups(case.outputs)):
            run(case, source, gradient, index, packed, group, vectors, first, last)
        total += packed
    assert (guarded[:LANES] == GUARD).all()
    assert (guarded[LANES + size :] == GUARD).all()
    found = unpack_filters(np.float32(total), (case.outputs, case.inputs, *layer.taps), 1)
    z, y, x = layer.size
    padding = [(b, a) for b, a in zip(case.before, case.behind, strict=True)]
    framed = (z, y + sum(padding[0]), x + sum(padding[1]))
    wide = gathered(upstream, winners, framed, (1, *case.window), (1, *case.stride), (1, 1, 1))
    (top, _), (left, _) = padding
    dense = wide[:, :, top : top + y, left : left + x]
    expected = reference_weight_gradient(layer, values, dense)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-4)
    again = pack_filters(found, 1)
    np.testing.assert_array_equal(
        again, np.float32(total), "lanes beyond the last output must be 0"
    )


def run(case, source, gradient, index, packed, group, vectors, first, last):
    layer = case.layer
    assert takes(case.inputs, layer.taps, (1, *case.window), 1 << 20)
    offset = group_offset(group, case.inputs, layer.tap_count)
    block = index[0].size
    maxima_gradient.run(
        source=source.address,
        source_block=source.block,
        source_z=source.z,
        source_y=source.y,
        channels=case.inputs,
        taps_y=case.taps[0],
        taps_x=case.taps[1],
        voxels_y=layer.size[1],
        voxels_x=layer.size[2],
        gradient=gradient.address + 4 * 2 * group * gradient.block,
        gradient_block=gradient.block,
        gradient_z=gradient.z,
        gradient_y=gradient.y,
        index=address(index) + 2 * 2 * group * block,
        index_block=block,
        index_z=block // case.maxima[0],
        index_y=case.maxima[2] * LANES,
        window_y=case.window[0],
        window_x=case.window[1],
        stride_y=case.stride[0],
        stride_x=case.stride[1],
        before_y=case.before[0],
        before_x=case.before[1],
        planes=case.maxima[0],
        y0=first,
        y1=last,
        width=case.maxima[2],
        outputs=min(2 * LANES, case.outputs - 2 * LANES * group),
        target=address(packed) + 4 * offset,
    )


@pytest.mark.parametrize("outputs", [1, LANES, 2 * LANES - 3, 3 * LANES - 1])
@pytest.mark.parametrize("inputs", [1, 3])
def test_channels(inputs, outputs):
    check(Pooled(inputs, outputs, (2, 6, 7)))


@pytest.mark.parametrize("taps_x", range(1, LANES + 1))
def test_taps(taps_x):
    check(Pooled(2, 5, (1, 4, 5), (taps_x % 4 + 1, taps_x)))


@pytest.mark.parametrize("taps_y", range(1, 25))
def test_rows_of_taps(taps_y):
    check(Pooled(1, 3, (1, 3, 4), (taps_y, 3)))


@pytest.mark.parametrize(
    ("before", "behind"), [((0, 0), (1, 1)), ((1, 1), (1, 0)), ((2, 1), (2, 2))]
)
def test_windows_that_overlap_and_are_cut(before, behind):
    check(Pooled(3, LANES, (2, 8, 9), (5, FIVE), (3, 3), (2, 2), before, behind))


def test_large_images_go_through_the_copy_in_parts():
    check(Pooled(2, 4, (1, HELD, PITCH), (4, FIVE), (3, 3), (2, 2), (1, 1), (0, 1)))


def test_what_does_not_fit_is_left_to_sums_over_all_voxels():
    window = (1, 2, 2)
    assert takes(1, (1, 5, LANES), window, 4)
    assert not takes(1, (1, 5, LANES + 1), window, 9)
    assert not takes(1, (2, 5, LANES), window, 4)
    assert not takes(1, (1, 5, LANES), (2, 2, 2), 8)
    assert not takes(5, (1, 5, LANES), window, 4), "rows of taps"
    assert not takes(1, (1, 5, LANES), (1, HELD, 1), 4)
    assert not takes(1, (1, 5, LANES), (1, 1, PITCH), 4)
    assert not takes(1, (1, 5, LANES), window, 2), "idle lanes"
