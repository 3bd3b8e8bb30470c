"""Sums in fixed order of partial gradients, of biases and of prelu's slopes.

Words of `slopes_gradient` as in `activation_rows`: v = (x - centre) * scale + bias of the values at `source`;
`gradient` is by the node's values. `partial` gets LANES floats: the sums over the part of gradient * v where v is
not positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import below, fma, load, select, splat, store

SLOPES = words(
    "source source_z source_y gradient gradient_z gradient_y bias affine partial planes rows length"
)

SUM_ROWS = words("source source_z source_y partial planes rows length channels")
SUM_VECTORS = words("source target count length")
SUM_LANES = words("source target count step")
ADD_DOUBLES = words("first second target length")


@kernel(SLOPES)
def slopes_gradient(args: Any, worker: int) -> None:
    """Write prelu's slope gradients of one block; `length` counts floats of a row. `bias`, `affine`: 0 for none."""
    at = SLOPES
    scale, centre, bias, total = splat(1.0), splat(0.0), splat(0.0), splat(0.0)
    if args[at.affine]:
        scale, centre = load(args[at.affine]), load(args[at.affine] + VECTOR_BYTES)
    if args[at.bias]:
        bias = load(args[at.bias])
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            # A row by itself, then added: sums of long parts lose fewer digits.
            row = splat(0.0)
            for i in range(0, 4 * args[at.length], 4 * LANES):
                v = fma(load(source + i) - centre, scale, bias)
                product = v * load(gradient + i)
                row = row + select(v > splat(0.0), splat(0.0), product)
            total = total + row
    store(args[at.partial], total)


@kernel(SUM_ROWS)
def sum_rows(args: Any, worker: int) -> None:
    """Write the sum of one block's voxels, LANES floats, 0 beyond `channels`; `length` counts floats of a row."""
    at, total = SUM_ROWS, splat(0.0)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            row = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            # Two sums hide some of the latency of additions.
            even, odd, end = splat(0.0), splat(0.0), 4 * args[at.length]
            for x in range(0, end - VECTOR_BYTES, 2 * VECTOR_BYTES):
                even, odd = even + load(row + x), odd + load(row + x + VECTOR_BYTES)
            if args[at.length] // LANES % 2:
                even = even + load(row + end - VECTOR_BYTES)
            total = total + (even + odd)
    store(args[at.partial], select(below(args[at.channels]), total, splat(0.0)))


@kernel(SUM_VECTORS)
def sum_vectors(args: Any, worker: int) -> None:
    """Write target[j] = source[0][j] + source[1][j] + ..., added in that order; `length` floats each."""
    at = SUM_VECTORS
    source, target = floats(args[at.source]), floats(args[at.target])
    # The first row is copied, not added to zeros: -0.0 stays.
    for j in range(args[at.length]):
        target[j] = source[j]
    for i in range(1, args[at.count]):
        for j in range(args[at.length]):
            target[j] += source[i * args[at.length] + j]


@kernel(SUM_LANES)
def sum_lanes(args: Any, worker: int) -> None:
    """Write the sum of `count` vectors of LANES floats, `step` floats apart, as one float.

    Lane by lane first, then the lanes in order.
    """
    at = SUM_LANES
    source, target = floats(args[at.source]), floats(args[at.target])
    total = np.float32(0)
    # Lane by lane: the order is that of the vectors, whatever the number of lanes.
    for lane in range(LANES):
        lane_total = source[lane]
        for i in range(1, args[at.count]):
            lane_total += source[i * args[at.step] + lane]
        total += lane_total
    target[0] = total


@kernel(ADD_DOUBLES)
def add_doubles(args: Any, worker: int) -> None:
    """Write target = first + second over one range of float64."""
    at = ADD_DOUBLES
    first, second, target = (
        doubles(args[at.first]),
        doubles(args[at.second]),
        doubles(args[at.target]),
    )
    for i in range(args[at.length]):
        target[i] = first[i] + second[i]
