"""Max pooling forward and backward, against plain NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from hypothesis import given
from hypothesis import strategies as st
from pooling_cases import (
    BARE,
    Sides,
    Triple,
    average,
    average_back,
    framed,
    gathered,
    inner,
    input_shape,
    reference,
)
from shares import examples
from znnpy_kernels.layers.average_pooling import average_backward, average_forward
from znnpy_kernels.layers.max_pooling import (
    max_pool_backward,
    max_pool_forward,
    max_pool_sum,
    max_pool_values,
)
from znnpy_kernels.layers.max_pooling_rows import NOBODY
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
    ((1, 2, 3), (2, 3, 2), (1, 1, 1)),  # planes and rows that no window reads
]
triples = st.tuples(*[st.integers(1, 3)] * 3)


PADDED: list[tuple[tuple[Triple, Triple, Triple], Sides]] = [
    (((2, 2, 2), (2, 2, 2), (1, 1, 1)), ((1, 1), (0, 1), (1, 0))),
    (((3, 3, 3), (2, 2, 2), (1, 1, 1)), ((1, 1), (1, 1), (1, 1))),
    (((3, 3, 3), (1, 1, 1), (1, 1, 1)), ((1, 1), (1, 0), (1, 1))),
    (((2, 3, 4), (1, 1, 1), (2, 1, 2)), ((1, 0), (2, 1), (3, 3))),
    (((1, 5, 2), (1, 2, 3), (1, 2, 1)), ((0, 0), (3, 2), (1, 1))),
    (((1, 2, 2), (1, 2, 2), (1, 1, 1)), ((0, 0), (0, 1), (0, 1))),
]


def windows(setting: Any, inputs: Triple, padding: Sides) -> dict[str, int]:
    named = dict(zip(("window", "stride", "dilation"), setting, strict=True))
    named |= {"before": [before for before, _ in padding], "inputs": inputs}
    return {f"{k}_{a}": v for k, t in named.items() for a, v in zip("zyx", t, strict=True)}


def forward(
    x: Blocked, outputs: Triple, setting: Any, cut: int, padding: Sides, floor: float = np.nan
) -> tuple[Blocked, Blocked, Blocked]:
    """Target, index, target of the variant without index; the planes from `cut` on are parts."""
    target, values = Blocked(x.channels, outputs), Blocked(x.channels, outputs)
    index = Blocked(x.channels, outputs, dtype=np.uint16)
    for block, _ in blocks_of(x.channels):
        for z, words in parts(x, outputs, setting, cut, padding):
            words |= x.rows("source", block)
            max_pool_forward.run(
                **target.rows("target", block, z), **index.rows("index", block, z), **words,
                floor=floor,
            )  # fmt: skip
            max_pool_values.run(**values.rows("target", block, z), **words)
    return target, index, values


def parts(x: Blocked, outputs: Triple, setting: Any, cut: int, padding: Sides) -> Any:
    """First plane, and the words that say so, of the planes before and from `cut` on."""
    for z, planes in ((0, cut), (cut, outputs[0] - cut)):
        part = {"first_plane": z, "first_row": 0, "planes": planes, "rows": outputs[1]}
        yield z, part | {"width": outputs[2]} | windows(setting, x.shape, padding)


def averages(
    x: Blocked, outputs: Triple, setting: Any, cut: int, padding: Sides, counted: bool
) -> Blocked:
    target = Blocked(x.channels, outputs)
    for block, _ in blocks_of(x.channels):
        for z, words in parts(x, outputs, setting, cut, padding):
            words |= x.rows("source", block) | target.rows("target", block, z)
            average_forward.run(**words, counted=counted)
    return target


def backward(
    kernel: Any, g: Blocked, shape: Triple, setting: Any, ranges: Any, padding: Sides, more: Any
) -> Blocked:
    """Gradients by parts; `more`: words that the kernel has, of a block."""
    target = Blocked(g.channels, shape, gap=3)
    for block, _ in blocks_of(g.channels):
        for (z, planes), (y, rows) in itertools.product(*ranges):
            kernel.run(
                **g.rows("gradient", block), **more(block),
                **target.rows("target", block, z, y), first_plane=z, first_row=y,
                outputs_z=g.shape[0], outputs_y=g.shape[1], outputs_x=g.shape[2],
                planes=planes, rows=rows, width=shape[2], **windows(setting, shape, padding),
            )  # fmt: skip
    return target


def cuts(shape: Triple) -> tuple[Any, Any]:
    """All planes and rows at once, and one by one."""
    return [[(0, n)] for n in shape[:2]], [[(i, 1) for i in range(n)] for n in shape[:2]]


def check(x: Any, outputs: Triple, setting: Any, cut: int, padding: Sides = BARE) -> None:
    shape = x.shape[1:]
    source = Blocked.of(x)
    target, index, values = forward(source, outputs, setting, cut, padding)
    best, taps = reference(framed(x, padding, -np.inf), outputs, *setting)
    np.testing.assert_array_equal(target.planar(), best.astype(np.float32))
    np.testing.assert_array_equal(index.planar()[~np.isnan(best)], taps[~np.isnan(best)])
    np.testing.assert_array_equal(values.planar(), target.planar())
    assert not target.pad().any()
    assert not values.pad().any()
    assert target.gaps_intact()
    assert index.gaps_intact()
    assert values.gaps_intact()
    # Who reads beside a row of winners finds some there.
    winners = index.view.copy()
    index.memory[:] = setting[0][2] - 1
    index.view[:] = winners
    g = Blocked.of(normal(9, *best.shape))
    whole, single = (
        backward(
            max_pool_backward, g, shape, setting, ranges, padding,
            lambda block: index.rows("index", block),
        )
        for ranges in cuts(shape)
    )  # fmt: skip
    wide = framed(x, padding, 0).shape[1:]
    wanted = inner(gathered(g.planar(), index.planar(), wide, *setting), padding)
    np.testing.assert_array_equal(whole.planar(), wanted)
    assert not whole.pad().any()
    assert whole.gaps_intact()
    assert same_bits(single.view, whole.view)


def check_averages(
    x: Any, outputs: Triple, setting: Any, cut: int, padding: Sides, counted: bool
) -> None:
    source, shape = Blocked.of(x), x.shape[1:]
    target = averages(source, outputs, setting, cut, padding, counted)
    wanted = average(x, outputs, *setting, padding, counted=counted)
    np.testing.assert_allclose(target.planar(), wanted, rtol=1e-5, atol=1e-6)
    assert not target.pad().any()
    assert target.gaps_intact()
    g = Blocked.of(normal(9, *wanted.shape))
    whole, single = (
        backward(
            average_backward, g, shape, setting, ranges, padding, lambda _: {"counted": counted}
        )
        for ranges in cuts(shape)
    )
    wanted = average_back(g.planar(), x.shape, *setting, padding, counted=counted)
    np.testing.assert_allclose(whole.planar(), wanted, rtol=1e-5, atol=1e-6)
    assert not whole.pad().any()
    assert whole.gaps_intact()
    assert same_bits(single.view, whole.view)


def padded_shape(outputs: Triple, setting: Any, padding: Sides) -> Triple:
    z, y, x = (
        n - sum(sides) for n, sides in zip(input_shape(outputs, *setting), padding, strict=True)
    )
    return z, y, x


@pytest.mark.parametrize(("setting", "padding"), PADDED)
def test_what_lies_beyond_the_image_never_wins(setting: Any, padding: Sides) -> None:
    outputs = (3, 4, 7)
    shape = padded_shape(outputs, setting, padding)
    check(normal(3, 2, *shape) - 9, outputs, setting, 1, padding)
    x = normal(4, LANES + 1, *shape) - 9
    x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    check(x, outputs, setting, 2, padding)


def test_windows_beside_the_image_have_no_winner() -> None:
    x, outputs, setting = normal(3, LANES, 3, 1, 14), (3, 4, 7), ((1, 2, 2), (1, 1, 2), (1, 3, 1))
    target, index, values = forward(Blocked.of(x), outputs, setting, 1, ((0, 0), (3, 3), (0, 0)))
    pairs = x[:, :, 0].reshape(LANES, 3, 7, 2)
    for y in (0, 3):
        np.testing.assert_array_equal(target.planar()[:, :, y], pairs.max(3))
        own = pairs.argmax(3) + (2 if y == 0 else 0)
        np.testing.assert_array_equal(index.planar()[:, :, y], own)
    assert (target.planar()[:, :, 1:3] == -np.inf).all()
    assert (index.planar()[:, :, 1:3] == NOBODY).all()
    np.testing.assert_array_equal(values.planar(), target.planar())


@pytest.mark.parametrize(("setting", "padding"), [*PADDED, (CASES[9], BARE)])
def test_nobody_wins_below_the_floor(setting: Any, padding: Sides) -> None:
    outputs, channels = (3, 4, 7), LANES + 2
    x = np.round(normal(3, channels, *padded_shape(outputs, setting, padding)) - 1, 1)
    target, index, _ = forward(Blocked.of(x), outputs, setting, 1, padding, floor=0.0)
    best, taps = reference(framed(x, padding, -np.inf), outputs, *setting)
    np.testing.assert_array_equal(target.planar(), best.astype(np.float32))
    np.testing.assert_array_equal(index.planar(), np.where(best <= 0, NOBODY, taps))
    g = Blocked.of(normal(9, *best.shape))
    whole = backward(
        max_pool_backward, g, x.shape[1:], setting, cuts(x.shape[1:])[0], padding,
        lambda block: index.rows("index", block),
    )  # fmt: skip
    wide, passed = framed(x, padding, 0).shape[1:], np.where(best <= 0, 0, g.planar())
    wanted = inner(gathered(passed.astype(np.float32), taps, wide, *setting), padding)
    np.testing.assert_array_equal(whole.planar(), wanted)
    for block, _ in blocks_of(channels):
        found = np.full(LANES + 1, 7, np.float32)
        max_pool_sum.run(
            **g.rows("source", block), **index.rows("index", block), partial=found, planes=3, rows=4,
            length=7 * LANES, channels=min(LANES, channels - LANES * block),
        )  # fmt: skip
        own = passed[LANES * block : LANES * (block + 1)].sum((1, 2, 3))
        np.testing.assert_allclose(found[: len(own)], own, rtol=1e-5, atol=1e-5)
        assert found[len(own) :].tolist() == [0.0] * (LANES - len(own)) + [7.0]


@pytest.mark.parametrize(("setting", "padding"), [PADDED[0], (CASES[7], BARE), (CASES[9], BARE)])
def test_nobody_wins_below_the_floor_beside_a_nan(setting: Any, padding: Sides) -> None:
    outputs = (3, 4, 7)
    x = normal(3, 2, *padded_shape(outputs, setting, padding)) - 1
    # One in a row is enough, and windows without it are left in that row.
    x[:, 1::2, 1::2, 2] = np.nan
    target, index, _ = forward(Blocked.of(x), outputs, setting, 1, padding, floor=0.0)
    best, taps = reference(framed(x, padding, -np.inf), outputs, *setting)
    np.testing.assert_array_equal(target.planar(), best.astype(np.float32))
    known = ~np.isnan(best)
    assert (best[known] <= 0).any()
    np.testing.assert_array_equal(index.planar()[known], np.where(best <= 0, NOBODY, taps)[known])
    # A NaN is not below the floor: its gradient goes on, as that of a relu does.
    assert (index.planar()[~known] != NOBODY).all()


@pytest.mark.quick(10)
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("setting", "padding"), [*PADDED, *((case, BARE) for case in CASES)])
def test_averages(setting: Any, padding: Sides, counted: bool) -> None:
    outputs = (3, 4, 7)
    shape = padded_shape(outputs, setting, padding)
    check_averages(normal(3, LANES + 2, *shape), outputs, setting, 1, padding, counted)


@given(
    setting=st.tuples(triples, triples, triples),
    outputs=triples,
    extra=triples,
    sides=st.tuples(*[st.tuples(*[st.integers(0, 1)] * 2)] * 3),
    counted=st.booleans(),
)
@examples(40)
def test_any_window_and_padding(
    setting: Any, outputs: Triple, extra: Triple, sides: Sides, counted: bool
) -> None:
    padding = tuple(
        side if size > 1 else (0, 0) for side, size in zip(sides, setting[0], strict=True)
    )
    shape = [n + e - 1 for n, e in zip(padded_shape(outputs, setting, padding), extra, strict=True)]
    if min(n - (d - 1) for n, d in zip(shape, setting[2], strict=True)) < 1:
        return  # windows beyond the image
    x = normal(3, 3, *shape)
    check(x, outputs, setting, 1, padding)
    check_averages(x, outputs, setting, 1, padding, counted)


@pytest.mark.quick(8)
@pytest.mark.parametrize("setting", CASES)
@pytest.mark.parametrize("channels", [1, LANES + 2])
def test_forward_and_backward(setting: Any, channels: int) -> None:
    outputs = (3, 4, 7)
    x = normal(3, channels, *input_shape(outputs, *setting))
    check(np.round(x, 0), outputs, setting, 1)
    check(x, outputs, setting, 2)


@given(setting=st.tuples(triples, triples, triples), outputs=triples, extra=triples)
@examples(30)
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
