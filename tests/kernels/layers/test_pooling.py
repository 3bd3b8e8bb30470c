"""Max pooling forward and backward, against plain NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from pooling_cases import Triple, gathered, input_shape, reference
from znnpy_kernels.layers.pooling import max_pool_backward, max_pool_forward, max_pool_values
from znnpy_kernels.simd.lanes import LANES

CASES: list[tuple[Triple, Triple, Triple]] = [
    ((2, 2, 2), (1, 1, 1), (1, 1, 1)),
    ((2, 2, 2), (1, 1, 1), (2, 3, 2)),
    ((2, 2, 2), (2, 2, 2), (1, 1, 1)),
    ((1, 2, 2), (1, 1, 1), (1, 1, 1)),
    ((1, 2, 2), (1, 1, 1), (1, 4, 4)),
    ((1, 2, 2), (1, 2, 2), (1, 1, 1)),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((3, 3, 3), (1, 1, 1), (1, 1, 1)),
    ((3, 1, 2), (2, 3, 1), (1, 2, 2)),
    ((1, 3, 3), (1, 2, 2), (1, 1, 1)),
    ((2, 2, 2), (3, 3, 3), (1, 1, 1)),
]
triples = st.tuples(*[st.integers(1, 3)] * 3)


def windows(window: Triple, stride: Triple, dilation: Triple) -> dict[str, int]:
    named = {"window": window, "stride": stride, "dilation": dilation}
    return {f"{k}_{a}": v for k, t in named.items() for a, v in zip("zyx", t, strict=True)}


def forward(
    x: Blocked, outputs: Triple, settings_: Any, cut: int
) -> tuple[Blocked, Blocked, Blocked]:
    """Target, index, target of the variant without index; the planes from `cut` on are parts."""
    target, values = Blocked(x.channels, outputs), Blocked(x.channels, outputs)
    index = Blocked(x.channels, outputs, dtype=np.uint16)
    words = windows(*settings_)
    for block, _ in blocks_of(x.channels):
        for z, planes in ((0, cut), (cut, outputs[0] - cut)):
            source = x.rows("source", block)
            source["source"] += 4 * z * words["stride_z"] * x.z
            part = {"planes": planes, "rows": outputs[1], "width": outputs[2], **words}
            max_pool_forward.run(
                **source, **target.rows("target", block, z), **index.rows("index", block, z), **part
            )
            max_pool_values.run(**source, **values.rows("target", block, z), **part)
    return target, index, values


def backward(g: Blocked, index: Blocked, shape: Triple, settings_: Any, parts: Any) -> Blocked:
    target = Blocked(g.channels, shape, gap=3)
    for block, _ in blocks_of(g.channels):
        for (z, planes), (y, rows) in itertools.product(*parts):
            max_pool_backward.run(
                **g.rows("gradient", block), **index.rows("index", block),
                **target.rows("target", block, z, y), first_plane=z, first_row=y,
                outputs_z=g.shape[0], outputs_y=g.shape[1], outputs_x=g.shape[2],
                planes=planes, rows=rows, width=shape[2], **windows(*settings_),
            )  # fmt: skip
    return target


def check(x: Any, outputs: Triple, setting: Any, cut: int) -> None:
    shape = x.shape[1:]
    source = Blocked.of(x)
    target, index, values = forward(source, outputs, setting, cut)
    best, taps = reference(x, outputs, *setting)
    np.testing.assert_array_equal(target.planar(), best.astype(np.float32))
    np.testing.assert_array_equal(index.planar()[~np.isnan(best)], taps[~np.isnan(best)])
    np.testing.assert_array_equal(values.planar(), target.planar())
    assert not target.pad().any()
    assert not values.pad().any()
    assert target.gaps_intact()
    assert index.gaps_intact()
    assert values.gaps_intact()
    g = Blocked.of(normal(9, *best.shape))
    whole = backward(g, index, shape, setting, [[(0, shape[0])], [(0, shape[1])]])
    np.testing.assert_array_equal(
        whole.planar(), gathered(g.planar(), index.planar(), shape, *setting)
    )
    assert not whole.pad().any()
    assert whole.gaps_intact()
    single = [[(i, 1) for i in range(n)] for n in shape[:2]]
    assert same_bits(backward(g, index, shape, setting, single).view, whole.view)


@pytest.mark.parametrize("setting", CASES)
@pytest.mark.parametrize("channels", [1, LANES + 2])
def test_forward_and_backward(setting: Any, channels: int) -> None:
    outputs = (3, 4, 7)
    x = normal(3, channels, *input_shape(outputs, *setting))
    check(np.round(x, 0), outputs, setting, 1)
    check(x, outputs, setting, 2)


@given(setting=st.tuples(triples, triples, triples), outputs=triples, extra=triples)
@settings(max_examples=30)
def test_any_window_and_inputs_left_over(setting: Any, outputs: Triple, extra: Triple) -> None:
    shape = input_shape(outputs, *setting)
    x = normal(3, 3, *(n + e - 1 for n, e in zip(shape, extra, strict=True)))
    check(np.round(x, 1), outputs, setting, 1)


@pytest.mark.parametrize("setting", CASES)
def test_nan_and_infinities(setting: Any) -> None:
    outputs = (2, 3, 9)
    x = np.round(normal(5, 3, *input_shape(outputs, *setting)), 1)
    random = np.random.default_rng(0).random(x.shape)
    x[random < 0.15] = np.nan
    x[(random > 0.15) & (random < 0.4)] = -np.inf
    x[random > 0.95] = np.inf
    check(x, outputs, setting, 1)
