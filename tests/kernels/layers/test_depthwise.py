"""Depthwise convolution in all passes, against plain NumPy in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal, same_bits
from hypothesis import given
from hypothesis import strategies as st
from pooling_cases import BARE, Sides, Triple, framed, inner, input_shape, places
from shares import examples
from znnpy_kernels.direct.packed_filters import pack_filters, unpack_filters
from znnpy_kernels.layers.depthwise import depthwise_back, depthwise_forward
from znnpy_kernels.layers.depthwise_gradient import depthwise_weight
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

Setting = tuple[Triple, Triple, Triple]
CASES: list[tuple[Setting, Sides]] = [
    (((3, 3, 3), (1, 1, 1), (1, 1, 1)), BARE),
    (((5, 5, 5), (1, 1, 1), (1, 1, 1)), ((2, 2), (2, 2), (2, 2))),
    (((3, 2, 7), (2, 1, 2), (1, 1, 1)), ((1, 0), (0, 1), (3, 2))),
    (((2, 3, 4), (2, 3, 2), (2, 2, 3)), ((0, 1), (2, 2), (4, 5))),
    (((1, 1, 6), (1, 1, 3), (1, 1, 2)), ((0, 0), (0, 0), (5, 1))),
    (((1, 1, 1), (2, 2, 2), (1, 1, 1)), BARE),
    (((1, 3, 8), (1, 1, 1), (1, 1, 1)), ((0, 0), (1, 1), (4, 3))),
]
OUTPUTS: Triple = (3, 4, 21)


def words(setting: Setting, inputs: Any, padding: Sides) -> dict[str, int]:
    named = dict(zip(("window", "stride", "dilation"), setting, strict=True))
    named |= {"before": [before for before, _ in padding], "inputs": inputs}
    return {f"{k}_{a}": v for k, t in named.items() for a, v in zip("zyx", t, strict=True)}


def part(first: tuple[int, int], counts: tuple[int, int], width: int) -> dict[str, int]:
    named = ("first_plane", "first_row", "planes", "rows", "width")
    return dict(zip(named, (*first, *counts, width), strict=True))


def reference(x: Any, g: Any, f: Any, setting: Setting, padding: Sides) -> tuple[Any, Any, Any]:
    """Images, gradient by the source and by the filters, in float64."""
    size, stride, dilation = setting
    outputs = g.shape[1:]
    wide = framed(x.astype(float), padding, 0)
    y, back, weight = np.zeros(g.shape), np.zeros(wide.shape), np.zeros(f.shape)
    for tap in itertools.product(*map(range, size)):
        at = (slice(None), *places(tap, outputs, stride, dilation))
        filters = f[(slice(None), 0, *tap)][:, None, None, None]
        y += filters * wide[at]
        back[at] += filters * g
        weight[(slice(None), 0, *tap)] = (wide[at] * g).sum((1, 2, 3))
    return y, inner(back, padding), weight


def check(x: Any, f: Any, outputs: Triple, setting: Setting, padding: Sides, cut: bool) -> None:
    images, shape = x.shape[0], x.shape[1:]
    g = normal(7, images, *outputs)
    packed, found = pack_filters(f), np.zeros_like(pack_filters(f))
    blocks, taps = -(-images // LANES), int(np.prod(setting[0]))
    width = LANES * min(2, blocks)
    assert blocks <= 2
    source, gradient = Blocked.of(x), Blocked.of(g)
    target, back = Blocked(images, outputs), Blocked(images, shape)
    for block in range(blocks):
        filters = {"filters": address(packed) + 4 * LANES * block, "filter_tap": width}
        for z, y, counts in cuts(outputs, cut):
            depthwise_forward.run(
                **source.rows("source", block), **target.rows("target", block, z, y), **filters,
                **part((z, y), counts, outputs[2]), **words(setting, shape, padding),
            )  # fmt: skip
        for z, y, counts in cuts(shape, cut):
            depthwise_back.run(
                **gradient.rows("source", block), **back.rows("target", block, z, y), **filters,
                **part((z, y), counts, shape[2]), **words(setting, outputs, padding),
            )  # fmt: skip
        depthwise_weight.run(
            **source.rows("source", block), **gradient.rows("target", block),
            **part((0, 0), outputs[:2], outputs[2]), **words(setting, shape, padding),
            filter_tap=width, sums=address(found) + 4 * LANES * block,
        )  # fmt: skip
    wanted = reference(x, g, f, setting, padding)
    weight = unpack_filters(found, f.shape)
    for got, right in zip((target.planar(), back.planar(), weight), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4 * np.sqrt(taps))
    assert not target.pad().any()
    assert not back.pad().any()
    assert target.gaps_intact()
    assert back.gaps_intact()


def cuts(shape: Triple, cut: bool) -> Any:
    """First plane and row of the parts of an image, and their counts."""
    if not cut:
        return [(0, 0, shape[:2])]
    return [(z, y, (1, 1)) for z in range(shape[0]) for y in range(shape[1])]


def padded(outputs: Triple, setting: Setting, padding: Sides) -> Triple:
    z, y, x = (
        n - sum(sides) for n, sides in zip(input_shape(outputs, *setting), padding, strict=True)
    )
    return z, y, x


@pytest.mark.parametrize(("setting", "padding"), CASES)
@pytest.mark.parametrize("images", [1, LANES + 2])
def test_all_passes(setting: Setting, padding: Sides, images: int) -> None:
    x = normal(1, images, *padded(OUTPUTS, setting, padding))
    check(x, normal(2, images, 1, *setting[0]), OUTPUTS, setting, padding, False)


@given(
    setting=st.tuples(*[st.tuples(*[st.integers(1, 4)] * 2, st.integers(1, 7))] * 3),
    outputs=st.tuples(*[st.integers(1, 3)] * 2, st.integers(1, 20)),
    sides=st.tuples(*[st.tuples(*[st.integers(0, 3)] * 2)] * 3),
    extra=st.tuples(*[st.integers(0, 2)] * 3),
)
@examples(60)
def test_any_filter_stride_and_padding(
    setting: Setting, outputs: Triple, sides: Sides, extra: Triple
) -> None:
    shape = tuple(
        max(1, n + e) for n, e in zip(padded(outputs, setting, sides), extra, strict=True)
    )
    wide = [n + sum(side) for n, side in zip(shape, sides, strict=True)]
    z, y, x = ((n - (w - 1) * d - 1) // s + 1 for n, w, s, d in zip(wide, *setting, strict=True))
    f = normal(2, 3, 1, *setting[0])
    check(normal(1, 3, *shape), f, (z, y, x), setting, sides, True)


def test_parts_have_the_same_bits() -> None:
    setting: Setting = ((3, 3, 3), (1, 1, 1), (1, 1, 1))
    x, f = normal(1, 3, 6, 7, 30), pack_filters(normal(2, 3, 1, 3, 3, 3))
    source, targets = Blocked.of(x), [Blocked(3, (4, 5, 28)) for _ in range(2)]
    for target, cut in zip(targets, (False, True), strict=True):
        for z, y, counts in cuts((4, 5, 28), cut):
            depthwise_forward.run(
                **source.rows("source"), **target.rows("target", 0, z, y),
                **part((z, y), counts, 28), **words(setting, (6, 7, 30), BARE),
                filters=f, filter_tap=LANES,
            )  # fmt: skip
    assert same_bits(targets[0].view, targets[1].view)
