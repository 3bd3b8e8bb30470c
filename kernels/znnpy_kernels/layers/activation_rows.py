"""How kernels of functions go over rows of a block: `forward`, `backward`, and `normed` behind normalised sums.

`forward`: y = f(v), v = (x - centre) * scale + bias. Words: `source`, `target` byte addresses of the
part's first voxel (the same for in place), `*_z`, `*_y` strides in floats, `bias` the address of LANES
floats of this block or 0, `affine` that of LANES scales and then LANES centres (0: x + bias), `channels`
the real channels of the block, `planes`, `rows`, `length` (row length in floats), `slope` for leaky_relu
and elu, `amplitude` and `gain` for tanh, `slopes` the address of LANES floats for prelu, 0 for others.
`planar` 1: one planar image, whose bias is one float; `channels` is LANES then.

`backward`: target = gradient * f'(v) expressed by the output y, and the sum of target over this part as
LANES floats at `bias_gradient` (0: not wanted; the parts' sums are added by the caller's tree; of a
planar image sums of every LANES-th voxel). `target` may be `gradient`. Where f' is expressed by v,
forward kernels without `affine` leave v at `source` unless that is the target, and backward kernels take
it for `output`.

`normed`: a node's values are f(v), with the sum x at `summed` and `coefficients` as `normalization_statistics` leaves
them. From v both passes make d = gradient * f'(v) again, which read x and the gradient alone:

    target 0    the part's sums of d and of d * (x - centre) are left at `sums`, 2 LANES float64
    else        target = d * c0 + (x - centre) * c1 + c2, with c the 3 LANES floats at `back`

Pad lanes stay 0. float32; parts are independent and may run at once; gaps of rows are not touched;
rows of `normed` are whole voxels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.layers.normalization_statistics import RUN
from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    below,
    fma,
    load,
    load_masked,
    select,
    splat,
    store,
    store_doubles,
    store_masked,
    to_doubles,
    zero_doubles,
)

FORWARD_WORDS = words(
    "source source_z source_y target target_z target_y bias affine channels planes rows length "
    "slope:float planar amplitude:float gain:float slopes",
)
BACKWARD_WORDS = words(
    "output output_z output_y gradient gradient_z gradient_y target target_z target_y "
    "bias_gradient channels planes rows length slope:float amplitude:float gain:float slopes",
)
NORMED_WORDS = words(
    "summed summed_z summed_y gradient gradient_z gradient_y target target_z target_y "
    "coefficients back sums planes rows length slope:float amplitude:float gain:float slopes",
)


class Shape(NamedTuple):
    """The numbers that shape a function: each takes those that it knows."""

    slope: float
    amplitude: float
    gain: float
    slopes: Any


@inlined
def shape_of(args: Any, at: Any) -> Any:
    """The numbers in a kernel's words, which `at` says; `slopes` is a vector, one for each lane."""
    # A vector of zeros where there are none: a name must have one type in compiled code.
    slopes = splat(0.0)
    if args[at.slopes]:
        slopes = load(args[at.slopes])
    return Shape(
        float_argument(args[at.slope]),
        float_argument(args[at.amplitude]),
        float_argument(args[at.gain]),
        slopes,
    )


class Affine(NamedTuple):
    """The argument of a function: (x - centre) * scale + bias, for each lane."""

    scale: Any
    centre: Any
    bias: Any


@inlined
def _affine(args: Any, real: Any) -> Any:
    at = FORWARD_WORDS
    scale, centre = splat(1.0), splat(0.0)
    if args[at.affine]:
        scale, centre = load(args[at.affine]), load(args[at.affine] + VECTOR_BYTES)
    return Affine(scale, centre, _bias(args, real))


@inlined
def _bias(args: Any, real: Any) -> Any:
    at = FORWARD_WORDS
    if args[at.bias] == 0:
        return splat(0.0)
    if args[at.planar]:
        return splat(floats(args[at.bias])[0])
    # Masked, as the bias of a block is not padded in memory.
    return load_masked(args[at.bias], real)


@inlined
def _applied(x: Any, affine: Any) -> Any:
    # Subtracted first: a mean far from 0 costs no digits.
    return fma(x - affine.centre, affine.scale, affine.bias)


@inlined
def forward(args: Any, function: Any, keeps: int = 0, masks: int = 0) -> None:
    """Write all rows; `keeps`: v is left at the source, before the target is written, for gradients that need it.

    `masks`: pad lanes are set to 0 afterwards, of functions with f(0) != 0.
    """
    at = FORWARD_WORDS
    shape, real = shape_of(args, FORWARD_WORDS), below(args[at.channels])
    # Behind a norm sums are made again, so nothing is kept.
    affine, kept = _affine(args, real), keeps and not args[at.affine]
    full = args[at.length] - args[at.length] % LANES
    rest = below(args[at.length] - full)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, 4 * full, VECTOR_BYTES):
                total = _applied(load(source + x), affine)
                if kept:
                    store(source + x, total)
                value = function(total, shape)
                if masks:
                    value = select(real, value, splat(0.0))
                store(target + x, value)
            # Only planar rows end within a vector; they have no pad lanes, so `masks` does not matter.
            if full < args[at.length]:
                total = _applied(load_masked(source + 4 * full, rest), affine)
                # Before the target, which may be the source's next reader only in place; `keeps` says that both
                # differ.
                if kept:
                    store_masked(source + 4 * full, rest, total)
                store_masked(target + 4 * full, rest, function(total, shape))


@inlined
def _backward_row(
    output: int, gradient: int, target: int, length: int, shape: Any, derivative: Any
) -> Any:
    """Write one row; return its sum, made of four interleaved sums in fixed order."""
    a, b, c, d = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    # Four sums hide the latency of additions, and are joined in one order.
    full = length // (4 * LANES) * 4 * VECTOR_BYTES
    for x in range(0, full, 4 * VECTOR_BYTES):
        g0 = derivative(load(output + x), load(gradient + x), shape)
        store(target + x, g0)
        x1 = x + VECTOR_BYTES
        g1 = derivative(load(output + x1), load(gradient + x1), shape)
        store(target + x1, g1)
        x2 = x + 2 * VECTOR_BYTES
        g2 = derivative(load(output + x2), load(gradient + x2), shape)
        store(target + x2, g2)
        x3 = x + 3 * VECTOR_BYTES
        g3 = derivative(load(output + x3), load(gradient + x3), shape)
        store(target + x3, g3)
        a, b, c, d = a + g0, b + g1, c + g2, d + g3
    even = 4 * (length - length % LANES)
    for x in range(full, even, VECTOR_BYTES):
        g0 = derivative(load(output + x), load(gradient + x), shape)
        store(target + x, g0)
        a = a + g0
    if even < 4 * length:
        rest = below(length % LANES)
        y0, g0 = load_masked(output + even, rest), load_masked(gradient + even, rest)
        g0 = derivative(y0, g0, shape)
        store_masked(target + even, rest, g0)
        # Lanes outside were computed from zeros, which a function may turn into something else.
        a = a + select(rest, g0, splat(0.0))
    return (a + b) + (c + d)


@inlined
def backward(args: Any, derivative: Any) -> None:
    at = BACKWARD_WORDS
    shape = shape_of(args, BACKWARD_WORDS)
    sums = splat(0.0)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            output = args[at.output] + 4 * (z * args[at.output_z] + y * args[at.output_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            sums = sums + _backward_row(
                output, gradient, target, args[at.length], shape, derivative
            )
    if args[at.bias_gradient]:
        store(args[at.bias_gradient], select(below(args[at.channels]), sums, splat(0.0)))


@inlined
def _summed(args: Any, function: Any, derivative: Any) -> None:
    at = NORMED_WORDS
    shape, table = shape_of(args, NORMED_WORDS), args[at.coefficients]
    scale, centre, bias = (
        load(table),
        load(table + VECTOR_BYTES),
        load(table + 2 * VECTOR_BYTES),
    )
    plain, product = zero_doubles(), zero_doubles()
    # See `normalization_statistics`: float32 within a run, float64 between runs.
    run = RUN * VECTOR_BYTES
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            summed = args[at.summed] + 4 * (z * args[at.summed_z] + y * args[at.summed_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            for first in range(0, 4 * args[at.length], run):
                few, more = splat(0.0), splat(0.0)
                for i in range(first, min(first + run, 4 * args[at.length]), VECTOR_BYTES):
                    x = load(summed + i) - centre
                    v = function(fma(x, scale, bias), shape)
                    d = derivative(v, load(gradient + i), shape)
                    few, more = few + d, fma(d, x, more)
                plain, product = plain + to_doubles(few), product + to_doubles(more)
    store_doubles(args[at.sums], plain)
    store_doubles(args[at.sums] + 8 * LANES, product)


@inlined
def _spread(args: Any, function: Any, derivative: Any) -> None:
    at = NORMED_WORDS
    shape, table, back = shape_of(args, NORMED_WORDS), args[at.coefficients], args[at.back]
    scale, centre, bias = (
        load(table),
        load(table + VECTOR_BYTES),
        load(table + 2 * VECTOR_BYTES),
    )
    c0, c1, c2 = load(back), load(back + VECTOR_BYTES), load(back + 2 * VECTOR_BYTES)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            summed = args[at.summed] + 4 * (z * args[at.summed_z] + y * args[at.summed_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for i in range(0, 4 * args[at.length], VECTOR_BYTES):
                x = load(summed + i) - centre
                v = function(fma(x, scale, bias), shape)
                d = derivative(v, load(gradient + i), shape)
                # Two multiply-adds, with c2 innermost: see `merged_gradients` for the coefficients.
                store(target + i, fma(d, c0, fma(x, c1, c2)))


@inlined
def normed(args: Any, function: Any, derivative: Any) -> None:
    """`derivative` takes what `function` makes of v: v itself, or the node's value."""
    if args[NORMED_WORDS.target]:
        _spread(args, function, derivative)
    else:
        _summed(args, function, derivative)
