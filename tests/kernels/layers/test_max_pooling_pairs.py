"""Max-filters over at most two voxels along each axis, against plain NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from hypothesis import given
from hypothesis import strategies as st
from pooling_cases import Triple, gathered, input_shape, reference
from shares import examples
from znnpy_kernels.layers.max_pooling_pairs import (
    NOBODY,
    max_filter_backward,
    max_filter_forward,
    max_filter_streamed,
    max_filter_values,
)
from znnpy_kernels.simd.lanes import LANES

ONCE = (1, 1, 1)
CASES: list[tuple[Triple, Triple]] = [  # window, dilation
    ((2, 2, 2), (1, 1, 1)),
    ((2, 2, 2), (2, 3, 2)),
    ((1, 2, 2), (1, 1, 1)),
    ((1, 2, 2), (1, 4, 4)),
    ((2, 1, 2), (2, 1, 1)),
    ((2, 2, 1), (1, 2, 3)),
    ((1, 1, 1), (2, 2, 2)),
]
pairs = st.tuples(*[st.integers(1, 2)] * 3)
triples = st.tuples(*[st.integers(1, 3)] * 3)


def far(window: Triple, dilation: Triple) -> dict[str, int]:
    return {f"far_{a}": (w - 1) * d for a, w, d in zip("zyx", window, dilation, strict=True)}


def forward(
    x: Blocked, outputs: Triple, setting: Any, cut: int, floor: float
) -> tuple[Blocked, Blocked, Blocked]:
    """Target, index, target of the variant without index; the planes from `cut` on are parts."""
    target, values, streamed = (Blocked(x.channels, outputs) for _ in range(3))
    index = Blocked(x.channels, outputs, dtype=np.uint8)
    for block, _ in blocks_of(x.channels):
        for z, planes in ((0, cut), (cut, outputs[0] - cut)):
            source = x.rows("source", block, z)
            part = {"planes": planes, "rows": outputs[1], "width": outputs[2], **far(*setting)}
            max_filter_forward.run(
                **source, **target.rows("target", block, z), **index.rows("index", block, z),
                **part, floor=floor,
            )  # fmt: skip
            max_filter_values.run(**source, **values.rows("target", block, z), **part)
            if part["far_x"] == 1:
                max_filter_streamed.run(**source, **streamed.rows("target", block, z), **part)
                row = streamed.view[block, z : z + planes]
                np.testing.assert_array_equal(row, values.view[block, z : z + planes])
    assert streamed.gaps_intact()
    return target, index, values


def backward(
    g: Blocked, index: Blocked, shape: Triple, setting: Any, parts: Any
) -> tuple[Blocked, Any]:
    """Gradients, and the sums of each part by channel."""
    target, sums = Blocked(g.channels, shape, gap=3), []
    for block, channels in blocks_of(g.channels):
        for (z, planes), (y, rows) in itertools.product(*parts):
            total = np.full(LANES, np.nan, np.float32)
            max_filter_backward.run(
                **g.rows("gradient", block), **index.rows("index", block),
                **target.rows("target", block, z, y), first_plane=z, first_row=y,
                outputs_z=g.shape[0], outputs_y=g.shape[1], outputs_x=g.shape[2],
                planes=planes, rows=rows, width=shape[2], **far(*setting),
                bias_gradient=total,
            )  # fmt: skip
            assert not total[channels:].any()
            sums.append(total)
    return target, sums


def own_numbers(taps: Any, window: Triple) -> Any:
    """Numbers 4 dz + 2 dy + dx of taps that are numbered within their window."""
    z, y, x = np.unravel_index(taps, window)
    return 4 * z + 2 * y + x


def check(x: Any, outputs: Triple, setting: Any, cut: int, floor: float = np.nan) -> None:
    window, dilation = setting
    shape, source = x.shape[1:], Blocked.of(x)
    target, index, values = forward(source, outputs, setting, cut, floor)
    best, taps = reference(x, outputs, window, ONCE, dilation)
    winners = np.where(best <= floor, NOBODY, own_numbers(taps, window))
    np.testing.assert_array_equal(target.planar(), best.astype(np.float32))
    np.testing.assert_array_equal(index.planar(), winners)
    np.testing.assert_array_equal(values.planar(), target.planar())
    assert not target.pad().any()
    assert not values.pad().any()
    assert target.gaps_intact()
    assert index.gaps_intact()
    assert values.gaps_intact()
    g = normal(9, *best.shape)
    whole, sums = backward(Blocked.of(g), index, shape, setting, [[(0, n)] for n in shape[:2]])
    wanted = gathered(np.where(best <= floor, 0, g), taps, shape, window, ONCE, dilation)
    np.testing.assert_array_equal(whole.planar(), wanted)
    assert not whole.pad().any()
    assert whole.gaps_intact()
    single = [[(i, 1) for i in range(n)] for n in shape[:2]]
    parts, part_sums = backward(Blocked.of(g), index, shape, setting, single)
    assert same_bits(parts.view, whole.view)
    for found in (sums, part_sums):
        by_block = np.reshape(found, (len(blocks_of(len(x))), -1, LANES)).sum(1, dtype=np.float64)
        total = wanted.sum((1, 2, 3), dtype=np.float64)
        np.testing.assert_allclose(by_block.ravel()[: len(total)], total, atol=1e-4)


@pytest.mark.parametrize("setting", CASES)
@pytest.mark.parametrize("channels", [1, LANES + 2])
def test_forward_and_backward(setting: Any, channels: int) -> None:
    outputs = (3, 4, 7)
    x = normal(3, channels, *input_shape(outputs, setting[0], ONCE, setting[1]))
    check(np.round(x, 0), outputs, setting, 1)
    check(x, outputs, setting, 2)


@given(setting=st.tuples(pairs, triples), outputs=triples, extra=triples)
@examples(30)
def test_any_window_and_inputs_left_over(setting: Any, outputs: Triple, extra: Triple) -> None:
    shape = input_shape(outputs, setting[0], ONCE, setting[1])
    x = normal(3, 3, *(n + e - 1 for n, e in zip(shape, extra, strict=True)))
    check(np.round(x, 1), outputs, setting, 1)


@pytest.mark.parametrize("setting", CASES)
def test_nan_and_infinities(setting: Any) -> None:
    outputs = (2, 3, 9)
    x = np.round(normal(5, 3, *input_shape(outputs, setting[0], ONCE, setting[1])), 1)
    random = np.random.default_rng(0).random(x.shape)
    x[random < 0.15] = np.nan
    x[(random > 0.15) & (random < 0.4)] = -np.inf
    x[random > 0.95] = np.inf
    check(x, outputs, setting, 1)


@pytest.mark.parametrize("setting", CASES)
def test_relu_before_the_filter_lets_no_gradient_through_where_nothing_is_positive(
    setting: Any,
) -> None:
    outputs = (3, 4, 7)
    x = normal(7, 3, *input_shape(outputs, setting[0], ONCE, setting[1]))
    check(np.maximum(np.round(x - 1, 0), 0), outputs, setting, 1, floor=0.0)


@pytest.mark.parametrize("dilation", [1, 3, 60, 64, 100])
def test_rows_longer_than_the_line_of_waiting_columns(dilation: int) -> None:
    setting, outputs = ((1, 2, 2), (1, 1, dilation)), (2, 2, 150)
    check(normal(4, 2, *input_shape(outputs, setting[0], ONCE, setting[1])), outputs, setting, 1)
