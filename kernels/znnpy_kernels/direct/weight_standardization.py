"""Weight standardisation: filters of each output channel with mean 0 and variance 1, and the gradient.

Works on one output group (`packed_filters.output_groups`): `rows` of `width` floats, a lane for each output channel.
`count` of an output's values are its own; the others are 0, as between channels of different groups, and get
meaningless values. Sums are of float64.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    load,
    select,
    splat,
    sqrt,
    store,
    to_doubles,
    to_floats,
    zero_doubles,
)

STANDARDIZE_FILTERS = words("filters target rows width count epsilon:float")


@kernel(STANDARDIZE_FILTERS)
def standardize_filters(args: Any, worker: int) -> None:
    """Write (w - mean) / sqrt(variance + epsilon) of each lane at `target`."""
    at = STANDARDIZE_FILTERS
    for lane in range(0, 4 * args[at.width], VECTOR_BYTES):
        source, step = args[at.filters] + lane, 4 * args[at.width]
        mean, inverse = _moments(source, step, args[at.rows], args[at.count], args[at.epsilon])
        for row in range(0, args[at.rows] * step, step):
            away = to_floats(to_doubles(load(source + row)) - mean)
            store(args[at.target] + lane + row, away * inverse)


STANDARDIZED_GRADIENT = words("filters gradient rows width count epsilon:float")


@kernel(STANDARDIZED_GRADIENT)
def standardized_gradient(args: Any, worker: int) -> None:
    """Turn, in place, the gradient by the output of `standardize_filters` into that by `filters`."""
    at = STANDARDIZED_GRADIENT
    # A number as float64 in all lanes, by way of float32, which holds counts up to 2^24 exactly.
    number = to_doubles(splat(float(args[at.count])))
    for lane in range(0, 4 * args[at.width], VECTOR_BYTES):
        source, gradient = args[at.filters] + lane, args[at.gradient] + lane
        step = 4 * args[at.width]
        mean, inverse = _moments(source, step, args[at.rows], args[at.count], args[at.epsilon])
        plain, product = zero_doubles(), zero_doubles()
        for row in range(0, args[at.rows] * step, step):
            here = to_doubles(load(gradient + row))
            plain = plain + here
            product = product + here * (to_doubles(load(source + row)) - mean)
        wide = to_doubles(inverse)
        # Means of the gradient, and of its product with the normalised filters, which are `away * inverse`.
        plain, product = plain / number, wide * wide * product / number
        for row in range(0, args[at.rows] * step, step):
            away = to_doubles(load(source + row)) - mean
            left = to_doubles(load(gradient + row)) - plain - away * product
            store(gradient + row, to_floats(left) * inverse)


@inlined
def _moments(source: int, step: int, rows: int, count: int, epsilon: int) -> Any:
    """Return for the lanes of a vector: mean, in float64, and 1 / sqrt(variance + epsilon)."""
    # One pass in float64: filters are near 0, so the squares lose no digits that float32 has.
    sums, squares = zero_doubles(), zero_doubles()
    for row in range(0, rows * step, step):
        here = to_doubles(load(source + row))
        sums, squares = sums + here, squares + here * here
    number = to_doubles(splat(float(count)))
    mean = sums / number
    variance = to_floats(squares / number - mean * mean)
    least = splat(0.0)
    # Rounding may leave a variance of filters that are all alike below 0.
    variance = select(variance < least, least, variance)
    return mean, splat(1.0) / sqrt(variance + splat(float_argument(epsilon)))
