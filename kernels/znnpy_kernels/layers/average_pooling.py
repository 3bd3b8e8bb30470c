"""Average pooling of one channel block, forward and backward.

Words as in `pooling_windows`. `counted` 1: a window's sum is divided by all its voxels; 0: by those inside the
channel. Voxels of a window are added in z, y, x order, overlapping windows in order of taps.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.pooling_windows import (
    BACKWARD,
    FORWARD,
    inside,
    output_of,
    outputs_reaching,
    row_of,
    taps_inside,
    whole_windows,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.rows import zero_row
from znnpy_kernels.simd.vectors import fma, load, splat, store


@inlined
def _share(taps: int) -> float:
    # At least 1: a window without voxels gives 0, not NaN.
    return 1.0 / max(1, taps)


@inlined
def _sum(source: int, wz: int, wy: int, wx: int, steps: Any) -> Any:
    total = splat(0.0)
    for dz in range(wz):
        for dy in range(wy):
            for dx in range(wx):
                total = total + load(source + dz * steps[0] + dy * steps[1] + dx * steps[2])
    return total


@inlined
def _averages(
    source: int, target: int, count: int, wz: int, wy: int, wx: int, steps: Any, stride: int
) -> None:
    share = splat(_share(wz * wy * wx))
    for x in range(count):
        total = _sum(source + VECTOR_BYTES * stride * x, wz, wy, wx, steps)
        store(target + VECTOR_BYTES * x, total * share)


@inlined
def _whole(args: Any, row: Any, first: int, last: int) -> None:
    """Write outputs first..last of a row, whose windows lie inside.

    Constant sizes make LLVM unroll the usual windows.
    """
    at = AVERAGE_FORWARD
    source = row.corner + VECTOR_BYTES * first * args[at.stride_x]
    target, count = row.target + VECTOR_BYTES * first, last - first
    wz, wy, wx, stride = args[at.window_z], args[at.window_y], args[at.window_x], args[at.stride_x]
    # Windows of 2: the usual ones, unrolled by LLVM.
    if wz == 2 and wy == 2 and wx == 2:
        _averages(source, target, count, 2, 2, 2, row.steps, stride)
    elif wz == 1 and wy == 2 and wx == 2:
        _averages(source, target, count, 1, 2, 2, row.steps, stride)
    else:
        _averages(source, target, count, wz, wy, wx, row.steps, stride)


@inlined
def _clipped(args: Any, row: Any, low: int, high: int) -> None:
    """Write outputs low..high of a row, averaged over the part of each window that lies inside."""
    at, steps = AVERAGE_FORWARD, row.steps
    inner = row.corner + row.low_z * steps[0] + row.low_y * steps[1]
    depth, height = row.high_z - row.low_z, row.high_y - row.low_y
    for x in range(low, high):
        begin = x * args[at.stride_x]
        first, last = taps_inside(
            begin - args[at.before_x], args[at.window_x], args[at.dilation_x], args[at.inputs_x]
        )
        # From the first tap inside; `inner` has left out planes and rows outside.
        source = inner + VECTOR_BYTES * begin + first * steps[2]
        total = _sum(source, depth, height, last - first, steps)
        taps = depth * height * (last - first)
        if args[at.counted]:
            taps = args[at.window_z] * args[at.window_y] * args[at.window_x]
        store(row.target + VECTOR_BYTES * x, total * splat(_share(taps)))


AVERAGE_FORWARD = words(FORWARD, "counted")


@kernel(AVERAGE_FORWARD)
def average_forward(args: Any, worker: int) -> None:
    """Write the mean of every window."""
    at = AVERAGE_FORWARD
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            row = row_of(args, z, y)
            first, last = inside(args, row)
            # Clipped windows at both ends, whole ones between: no test within.
            _clipped(args, row, 0, first)
            _whole(args, row, first, last)
            _clipped(args, row, last, args[at.width])


@inlined
def _inside(args: Any, output: int, axis: int) -> int:
    """Return how many voxels of an output's window lie inside along an axis."""
    at = AVERAGE_BACKWARD
    low, high = taps_inside(
        output * args[at.stride_z + axis] - args[at.before_z + axis],
        args[at.window_z + axis],
        args[at.dilation_z + axis],
        args[at.inputs_z + axis],
    )
    return int(high - low)


@inlined
def _spread(args: Any, gradient: int, target: int, first: int, last: int, share: Any) -> None:
    """Add a share of the gradients of outputs first..last to voxels `stride` apart."""
    # Outputs of one tap reach voxels that differ, so they may be added one after the other.
    step = VECTOR_BYTES * args[AVERAGE_BACKWARD.stride_x]
    for o in range(first, last):
        place = target + step * o
        store(place, fma(load(gradient + VECTOR_BYTES * o), share, load(place)))


@inlined
def _spread_by_count(
    args: Any, gradient: int, target: int, first: int, last: int, taps: int
) -> None:
    """Spread as `_spread`, with each gradient divided by the voxels of its window that lie inside."""
    for o in range(first, last):
        share = splat(_share(taps * _inside(args, o, 2)))
        _spread(args, gradient, target, o, o + 1, share)


@inlined
def _spread_row(args: Any, gradient: int, target: int, plane: int, row: int) -> None:
    """Add the gradients of one row of outputs to the row of voxels at `target`."""
    at = AVERAGE_BACKWARD
    taps = args[at.window_z] * args[at.window_y]
    if not args[at.counted]:
        taps = _inside(args, plane, 0) * _inside(args, row, 1)
    low, high = 0, args[at.outputs_x]
    if not args[at.counted]:
        # With windows clipped along x each output has a share of its own; the others have one together.
        low, high = whole_windows(
            args[at.outputs_x],
            args[at.window_x],
            args[at.stride_x],
            args[at.dilation_x],
            args[at.before_x],
            args[at.inputs_x],
        )
    share = splat(_share(taps * args[at.window_x]))
    for tap in range(args[at.window_x]):
        first, last = outputs_reaching(args, tap)
        place = target + VECTOR_BYTES * (tap * args[at.dilation_x] - args[at.before_x])
        _spread_by_count(args, gradient, place, first, min(last, low), taps)
        _spread(args, gradient, place, max(first, low), min(last, high), share)
        _spread_by_count(args, gradient, place, max(first, high), last, taps)


AVERAGE_BACKWARD = words(BACKWARD, "counted")


@kernel(AVERAGE_BACKWARD)
def average_backward(args: Any, worker: int) -> None:
    """Give each input voxel its share of the gradients of the outputs that read it, in order of taps."""
    at = AVERAGE_BACKWARD
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            # Zeros first, as each tap adds to what is there, in order of taps.
            zero_row(target, LANES * args[at.width])
            # Rows of outputs outside, which read this row of voxels: a gather, so tasks over rows of the input
            # never meet.
            for dz in range(args[at.window_z]):
                place = z + args[at.first_plane] + args[at.before_z]
                plane = output_of(
                    place, dz, args[at.dilation_z], args[at.stride_z], args[at.outputs_z]
                )
                for dy in range(args[at.window_y] if plane >= 0 else 0):
                    place = y + args[at.first_row] + args[at.before_y]
                    row = output_of(
                        place, dy, args[at.dilation_y], args[at.stride_y], args[at.outputs_y]
                    )
                    if row >= 0:
                        gradient = args[at.gradient] + 4 * (
                            plane * args[at.gradient_z] + row * args[at.gradient_y]
                        )
                        _spread_row(args, gradient, target, plane, row)
