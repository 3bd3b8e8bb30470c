"""Weight gradient of depthwise convolution for one channel block: sums over outputs of products of lanes.

Words as in `pooling_windows`, the gradient of the outputs at `target`, and

    filter_tap, sums    floats from tap to tap, and where the block's first one goes, laid out as in `depthwise`

Taps of a row are summed at once, over outputs for which all of them lie inside, and then each over the others.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.pooling_windows import FORWARD, row_of, whole_windows
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import fma, load, splat, store


@inlined
def _product(gradient: int, source: int, low: int, high: int, move: int, total: Any) -> Any:
    for x in range(low, high):
        total = fma(load(gradient + VECTOR_BYTES * x), load(source + move * x), total)
    return total


@inlined
def _products(
    gradient: int, source: int, low: int, high: int, move: int, apart: int, count: int
) -> Any:
    """Return the sums of `count` taps over outputs low..high of a row, of even and odd ones apart."""
    zero = splat(0.0)
    # Two chains of sums, even and odd outputs, hide the latency where there are few taps.
    a, b, c, d, e = zero, zero, zero, zero, zero
    v, w, x, y, z = zero, zero, zero, zero, zero
    # `count` is a constant where this is called, so LLVM removes the tests.
    for i in range(low, high - 1, 2):
        g, place = load(gradient + VECTOR_BYTES * i), source + move * i
        h, other = load(gradient + VECTOR_BYTES * (i + 1)), place + move
        a, v = fma(g, load(place), a), fma(h, load(other), v)
        if count > 1:
            b, w = fma(g, load(place + apart), b), fma(h, load(other + apart), w)
        if count > 2:
            c, x = fma(g, load(place + 2 * apart), c), fma(h, load(other + 2 * apart), x)
        if count > 3:
            d, y = fma(g, load(place + 3 * apart), d), fma(h, load(other + 3 * apart), y)
        if count > 4:
            e, z = fma(g, load(place + 4 * apart), e), fma(h, load(other + 4 * apart), z)
    return a + v, b + w, c + x, d + y, e + z


@inlined
def _tap_sum(
    args: Any, gradient: int, source: int, tap: int, low: int, high: int, even: int
) -> Any:
    """Return the sum of one tap over the outputs that `_products` of low..even leaves: all others that read inside."""
    at = DEPTHWISE_WEIGHT
    move = VECTOR_BYTES * args[at.stride_x]
    place = source + VECTOR_BYTES * tap * args[at.dilation_x]
    first, last = whole_windows(
        args[at.width], 1, args[at.stride_x], 1,
        args[at.before_x] - tap * args[at.dilation_x], args[at.inputs_x],
    )  # fmt: skip
    total = _product(gradient, place, first, min(low, last), move, splat(0.0))
    return _product(gradient, place, even, last, move, total)


@inlined
def _chunk(args: Any, gradient: int, source: int, sums: int, tap: int, count: int) -> None:
    """Add the products of a row of outputs to `count` taps along x, from `tap` on."""
    at = DEPTHWISE_WEIGHT
    move, apart = VECTOR_BYTES * args[at.stride_x], VECTOR_BYTES * args[at.dilation_x]
    before = args[at.before_x] - tap * args[at.dilation_x]
    low, high = whole_windows(
        args[at.width], count, args[at.stride_x], args[at.dilation_x], before, args[at.inputs_x]
    )
    # An even number: the odd one is left to `_tap_sum`.
    even = high - (high - low) % 2
    found = _products(gradient, source + apart * tap, low, even, move, apart, count)
    # The tap's other outputs first, then the common ones: a fixed order.
    for i in range(count):
        total = _tap_sum(args, gradient, source, tap + i, low, high, even)
        if i == 0:
            total = total + found[0]
        elif i == 1:
            total = total + found[1]
        elif i == 2:
            total = total + found[2]
        elif i == 3:
            total = total + found[3]
        else:
            total = total + found[4]
        place = sums + 4 * args[at.filter_tap] * (tap + i)
        store(place, load(place) + total)


@inlined
def _row_of_taps(args: Any, gradient: int, source: int, sums: int) -> None:
    """Add the products of a row of outputs to a row of taps; constant counts keep the sums in registers."""
    taps, tap = args[DEPTHWISE_WEIGHT.window_x], 0
    # Chunks of at most 5 taps, whose 10 sums, gradients and voxels fit the registers; 6 as two of 3, 7 as 4 and
    # 3.
    while tap < taps:
        left = taps - tap
        if left == 1:
            _chunk(args, gradient, source, sums, tap, 1)
            tap += 1
        elif left == 2:
            _chunk(args, gradient, source, sums, tap, 2)
            tap += 2
        elif left == 3 or left == 6:
            _chunk(args, gradient, source, sums, tap, 3)
            tap += 3
        elif left == 5:
            _chunk(args, gradient, source, sums, tap, 5)
            tap += 5
        else:
            _chunk(args, gradient, source, sums, tap, 4)
            tap += 4


@inlined
def _zero_taps(args: Any) -> None:
    at = DEPTHWISE_WEIGHT
    for tap in range(args[at.window_z] * args[at.window_y] * args[at.window_x]):
        store(args[at.sums] + 4 * args[at.filter_tap] * tap, splat(0.0))


DEPTHWISE_WEIGHT = words(FORWARD, "filter_tap sums")


@kernel(DEPTHWISE_WEIGHT)
def depthwise_weight(args: Any, worker: int) -> None:
    """Write the taps' gradients: sums over a part of products of channel and gradient, which lies at `target`."""
    at = DEPTHWISE_WEIGHT
    _zero_taps(args)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            row = row_of(args, z, y)
            for a in range(row.low_z, row.high_z):
                for b in range(row.low_y, row.high_y):
                    source = row.corner + a * row.steps[0] + b * row.steps[1]
                    tap = (a * args[at.window_y] + b) * args[at.window_x]
                    sums = args[at.sums] + 4 * args[at.filter_tap] * tap
                    _row_of_taps(args, row.target, source, sums)
