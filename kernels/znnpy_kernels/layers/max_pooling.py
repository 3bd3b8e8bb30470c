"""Max pooling of one channel block: forward with or without the winning taps, and backward.

Words as in `pooling_windows`; strides of `index` in uint16 elements, its x stride is LANES. Stride 1 with dilation
is max_filter on a sparse lattice (`max_pooling_pairs` where the window has at most two voxels along each axis), a
stride above 1 is max_pool. The tap number of (dz, dy, dx) is (dz * window_y + dy) * window_x + dx, uint16. The first
maximum in z, y, x order wins; a NaN in the window gives NaN, and a tap that holds a NaN wins; voxels outside never
do. A window has fewer than 32768 taps.

The gradient of a relu before the pooling costs nothing: its value is positive where the maximum is. So where the
maximum is not above `floor` the winner gets the number NOBODY, and no gradient goes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.layers.max_pooling_rows import (
    INDEX_BYTES,
    LINE,
    NOBODY,
    gather_dense_rows,
    gather_half_rows,
    gather_strided_row,
    let_nobody_win,
    pool_clipped,
    pool_clipped_values,
    pool_columns,
    pool_columns_values,
    pool_whole,
    pool_windows,
    pool_windows_values,
    scratch_line,
)
from znnpy_kernels.layers.pooling_windows import (
    BACKWARD,
    FORWARD,
    inside,
    output_of,
    outputs_reaching,
    row_of,
    taps_inside,
)
from znnpy_kernels.layers.reduction import SUM_ROWS
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.rows import zero_row
from znnpy_kernels.simd.vectors import below, load, load_shorts, select, splat, splat_short, store

# Typed: with plain numbers numba would compile helpers once for each, while LLVM sees constants of either kind.
MISSING, NONE, ONE, TWO, THREE = np.int64(-1), np.int64(0), np.int64(1), np.int64(2), np.int64(3)
# Added to the numbers of taps in missing rows, so that no winner has them, NOBODY neither.
NOWHERE = 1 << 15


@inlined
def _by_columns(window: int, stride: int, dilation: int) -> bool:
    # By columns only with more than one voxel along x, and where the columns of a window fill at most half of
    # the line.
    return stride == 1 and 0 < 2 * (window - 1) * dilation < LINE


@inlined
def _row(
    source: int, target: int, index: int, width: int, window: Any, steps: Any, stride: int,
    dilation: int, line: int, floor: float,
) -> None:  # fmt: skip
    """Pool one row; constant sizes make LLVM unroll the usual windows."""
    wz, wy, wx = window
    apart = (steps[0], steps[1], VECTOR_BYTES * dilation)
    # By columns a window of w^3 takes w^2 + w comparisons. A row with a NaN is done again.
    if _by_columns(wx, stride, dilation):
        void = pool_columns(source, target, index, width, wz, wy, wx, steps, dilation, line)
    elif wy == 2 and wx == 2 and wz == 2:
        void = pool_whole(
            source, target, index, width, TWO, TWO, TWO, TWO, NONE, apart, stride, floor
        )
    elif wy == 2 and wx == 2 and wz == 1:
        void = pool_whole(
            source, target, index, width, ONE, TWO, TWO, TWO, NONE, apart, stride, floor
        )
    elif wy == 3 and wx == 3 and wz == 1:
        void = pool_whole(
            source, target, index, width, ONE, THREE, THREE, THREE, NONE, apart, stride, floor
        )
    else:
        void = pool_whole(source, target, index, width, wz, wy, wx, wy, NONE, apart, stride, floor)
    if void:
        pool_windows(source, target, index, width, wz, wy, wx, steps, stride, dilation)
    if void or _by_columns(wx, stride, dilation):
        let_nobody_win(target, index, 0, width, floor)


@inlined
def _row_values(
    source: int, target: int, width: int, window: Any, steps: Any, stride: int, dilation: int,
    line: int,
) -> None:  # fmt: skip
    wz, wy, wx = window
    void = True
    if _by_columns(wx, stride, dilation):
        void = pool_columns_values(source, target, width, wz, wy, wx, steps, dilation, line)
    if void and wy == 2 and wx == 2 and wz == 2:
        pool_windows_values(source, target, width, TWO, TWO, TWO, steps, stride, dilation)
    elif void and wy == 2 and wx == 2 and wz == 1:
        pool_windows_values(source, target, width, ONE, TWO, TWO, steps, stride, dilation)
    elif void and wy == 3 and wx == 3 and wz == 1:
        pool_windows_values(source, target, width, ONE, THREE, THREE, steps, stride, dilation)
    elif void:
        pool_windows_values(source, target, width, wz, wy, wx, steps, stride, dilation)


@inlined
def _taps_at(args: Any, row: Any, x: int) -> Any:
    """Return the taps low..high along z, y, x of output x of a row that lie inside."""
    at = FORWARD
    first, last = taps_inside(
        x * args[at.stride_x] - args[at.before_x],
        args[at.window_x],
        args[at.dilation_x],
        args[at.inputs_x],
    )
    return (row.low_z, row.low_y, first), (row.high_z, row.high_y, last)


@inlined
def _clipped(args: Any, row: Any, index: int, low: int, high: int, floor: float) -> None:
    """Write outputs low..high of a row, over the part of each window that lies inside."""
    at = FORWARD
    for x in range(low, high):
        taps = _taps_at(args, row, x)
        pool_clipped(
            row.corner + VECTOR_BYTES * x * args[at.stride_x], row.target + VECTOR_BYTES * x,
            index + INDEX_BYTES * x, taps, args[at.window_y], args[at.window_x], row.steps,
        )  # fmt: skip
    let_nobody_win(row.target, index, low, high, floor)


@inlined
def _clipped_values(args: Any, row: Any, low: int, high: int) -> None:
    for x in range(low, high):
        taps = _taps_at(args, row, x)
        corner = row.corner + VECTOR_BYTES * x * args[FORWARD.stride_x]
        pool_clipped_values(corner, row.target + VECTOR_BYTES * x, taps, row.steps)


@inlined
def _cut_rows(args: Any, row: Any, index: int, first: int, last: int, floor: float) -> None:
    """Write outputs first..last of a row whose windows are cut along z or y alone."""
    at = FORWARD
    wy, wx = args[at.window_y], args[at.window_x]
    move = VECTOR_BYTES * first
    void = pool_whole(
        row.corner + row.low_z * row.steps[0] + row.low_y * row.steps[1] + move * args[at.stride_x],
        row.target + move, index + INDEX_BYTES * first, last - first, row.high_z - row.low_z,
        row.high_y - row.low_y, wx, wy, (row.low_z * wy + row.low_y) * wx, row.steps, args[at.stride_x], floor,
    )  # fmt: skip
    if void:
        _clipped(args, row, index, first, last, floor)


MAX_POOL_FORWARD = words(FORWARD, "index index_z index_y floor:float")


@kernel(MAX_POOL_FORWARD)
def max_pool_forward(args: Any, worker: int) -> None:
    """Write maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    A NaN as `floor` lets every tap win.
    """
    at = MAX_POOL_FORWARD
    line, floor = scratch_line(), float_argument(args[at.floor])
    window = args[at.window_z], args[at.window_y], args[at.window_x]
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            row = row_of(args, z, y)
            index = args[at.index] + 2 * (z * args[at.index_z] + y * args[at.index_y])
            first, last = row.first, row.last
            # Clipped windows at both ends, between them such as are whole along x.
            taps = (row.high_z - row.low_z) * (row.high_y - row.low_y)
            if taps == 0:
                last = first
            _clipped(args, row, index, 0, first, floor)
            if taps == args[at.window_z] * args[at.window_y]:
                _row(row.corner + VECTOR_BYTES * first * args[at.stride_x],
                     row.target + VECTOR_BYTES * first, index + INDEX_BYTES * first, last - first,
                     window, row.steps, args[at.stride_x], args[at.dilation_x], line, floor)  # fmt: skip
            elif taps > 0:
                _cut_rows(args, row, index, first, last, floor)
            _clipped(args, row, index, last, args[at.width], floor)


MAX_POOL_VALUES = words(FORWARD)


@kernel(MAX_POOL_VALUES)
def max_pool_values(args: Any, worker: int) -> None:
    """Write maxima as `max_pool_forward`, without the taps, for inference."""
    at = MAX_POOL_VALUES
    line = scratch_line()
    window = args[at.window_z], args[at.window_y], args[at.window_x]
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            row = row_of(args, z, y)
            first, last = inside(args, row)
            _clipped_values(args, row, 0, first)
            _row_values(row.corner + VECTOR_BYTES * first * args[at.stride_x],
                        row.target + VECTOR_BYTES * first, last - first, window, row.steps,
                        args[at.stride_x], args[at.dilation_x], line)  # fmt: skip
            _clipped_values(args, row, last, args[at.width])


@inlined
def _gather_strided(args: Any, gradient: int, index: int, number: int, target: int) -> None:
    """Add the gradients that the voxels of a row won in one row of outputs, for any stride along x."""
    at = MAX_POOL_BACKWARD
    for dx in range(args[at.window_x]):
        first, last = outputs_reaching(args, dx)
        place = target + VECTOR_BYTES * (dx * args[at.dilation_x] - args[at.before_x])
        gather_strided_row(gradient, index, number + dx, place, first, last, args[at.stride_x])


@inlined
def _gather_pair(args: Any, target: int, plane: int, first: int, second: int, number: int) -> None:
    """Add the gradients that one input row won in two rows of a plane of outputs; -1 means no such row."""
    at = MAX_POOL_BACKWARD
    # A missing row is replaced by the other one, with numbers that no tap has, so that both need no test.
    one = number if first >= 0 else NOWHERE
    two = number + args[at.window_x] if second >= 0 else NOWHERE
    row, other = first if first >= 0 else second, second if second >= 0 else first
    gradient, index = (
        args[at.gradient] + 4 * plane * args[at.gradient_z],
        args[at.index] + 2 * plane * args[at.index_z],
    )
    gradients = gradient + 4 * row * args[at.gradient_y], gradient + 4 * other * args[at.gradient_y]
    indices = index + 2 * row * args[at.index_y], index + 2 * other * args[at.index_y]
    outputs, width, taps = args[at.outputs_x], args[at.width], args[at.window_x]
    dilation, before, numbers = args[at.dilation_x], args[at.before_x], (one, two)
    if args[at.stride_x] != 1:
        if first >= 0:
            _gather_strided(args, gradients[0], indices[0], one, target)
        if second >= 0:
            _gather_strided(args, gradients[1], indices[1], two, target)
    # Two and three taps as constants: LLVM unrolls them.
    elif taps == 2:
        gather_dense_rows(
            gradients, indices, numbers, target, outputs, width, TWO, dilation, before
        )
    elif taps == 3:
        gather_dense_rows(
            gradients, indices, numbers, target, outputs, width, THREE, dilation, before
        )
    else:
        gather_dense_rows(
            gradients, indices, numbers, target, outputs, width, taps, dilation, before
        )


MAX_POOL_BACKWARD = words(BACKWARD, "index index_z index_y")


@inlined
def _row_of_outputs(args: Any, y: int, tap: int) -> int:
    """Return the row of outputs that reads row y of the part with a tap along y, or -1."""
    at = MAX_POOL_BACKWARD
    if tap >= args[at.window_y]:
        return -1
    place = y + args[at.first_row] + args[at.before_y]
    return int(output_of(place, tap, args[at.dilation_y], args[at.stride_y], args[at.outputs_y]))


@inlined
def _gather_halves(args: Any, target: int, plane: int, held: Any, rows: int, fresh: bool) -> None:
    """Gather one input row from one or two rows of a plane of outputs, with stride 2 on x."""
    at = MAX_POOL_BACKWARD
    gradient, index = (
        args[at.gradient] + 4 * plane * args[at.gradient_z],
        args[at.index] + 2 * plane * args[at.index_z],
    )
    step, step_index = 4 * args[at.gradient_y], 2 * args[at.index_y]
    gradients = gradient + step * held[0], gradient + step * held[2]
    indices = index + step_index * held[0], index + step_index * held[2]
    numbers, outputs, width = (held[1], held[3]), args[at.outputs_x], args[at.width]
    before = args[at.before_x]
    if args[at.window_x] == 2:
        gather_half_rows(
            gradients, indices, numbers, rows, target, outputs, width, TWO, before, fresh
        )
    else:
        gather_half_rows(
            gradients, indices, numbers, rows, target, outputs, width, THREE, before, fresh
        )


@inlined
def _gather_half(args: Any, target: int, plane: int, held: Any, rows: int, fresh: bool) -> None:
    # The first of a voxel's sums writes it: it need not be zero before.
    if fresh:
        _gather_halves(args, target, plane, held, rows, True)
    else:
        _gather_halves(args, target, plane, held, rows, False)


@inlined
def _row_by_halves(args: Any, z: int, y: int, target: int) -> None:
    """Write one input row, in order of taps, with stride 2 and two or three taps along x."""
    at = MAX_POOL_BACKWARD
    fresh = True
    for dz in range(args[at.window_z]):
        plane = output_of(
            z + args[at.first_plane] + args[at.before_z], dz, args[at.dilation_z],
            args[at.stride_z], args[at.outputs_z],
        )  # fmt: skip
        held, number = MISSING, NONE
        # Two rows of outputs at a time, where two read this one.
        for dy in range(args[at.window_y] if plane >= 0 else 0):
            row, own = (
                _row_of_outputs(args, y, dy),
                (dz * args[at.window_y] + dy) * args[at.window_x],
            )
            if row >= 0 and held >= 0:
                _gather_half(args, target, plane, (held, number, row, own), TWO, fresh)
                held, fresh = MISSING, False
            elif row >= 0:
                held, number = row, own
        if held >= 0:
            _gather_half(args, target, plane, (held, number, held, number), ONE, fresh)
            fresh = False
    if fresh:
        zero_row(target, LANES * args[at.width])


@inlined
def _row_by_taps(args: Any, z: int, y: int, target: int) -> None:
    """Write one input row, in order of taps, with any stride."""
    at = MAX_POOL_BACKWARD
    zero_row(target, LANES * args[at.width])
    for dz in range(args[at.window_z]):
        place = z + args[at.first_plane] + args[at.before_z]
        plane = output_of(place, dz, args[at.dilation_z], args[at.stride_z], args[at.outputs_z])
        # Two rows of outputs at a time: the voxel's sum is loaded and stored once for both.
        for dy in range(0, args[at.window_y] if plane >= 0 else 0, 2):
            first, second = (
                _row_of_outputs(args, y, dy),
                _row_of_outputs(args, y, dy + 1),
            )
            if first >= 0 or second >= 0:
                number = (dz * args[at.window_y] + dy) * args[at.window_x]
                _gather_pair(args, target, plane, first, second, number)


@kernel(MAX_POOL_BACKWARD)
def max_pool_backward(args: Any, worker: int) -> None:
    """Write for each input voxel the sum of the gradients of the outputs that it won, in order of taps.

    `index` is, as `gradient`, of the whole block of outputs; `planes`, `rows`, `width` measure the part (whole
    rows). Every voxel of the part is written.
    """
    at = MAX_POOL_BACKWARD
    taps, halves = args[at.window_x], args[at.stride_x] == 2 and args[at.dilation_x] == 1
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            if halves and (taps == 2 or taps == 3):
                _row_by_halves(args, z, y, target)
            else:
                _row_by_taps(args, z, y, target)


MAX_POOL_SUM = words(SUM_ROWS, "index index_z index_y")


@kernel(MAX_POOL_SUM)
def max_pool_sum(args: Any, worker: int) -> None:
    """Write the sum of the gradients that some voxel won, LANES floats: words of `reduction.sum_rows`, of outputs."""
    at, total = MAX_POOL_SUM, splat(0.0)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            index = args[at.index] + 2 * (z * args[at.index_z] + y * args[at.index_y])
            # A row by itself, then added: sums of long parts lose fewer digits.
            row = splat(0.0)
            for x in range(args[at.length] // LANES):
                won = load_shorts(index + INDEX_BYTES * x) != splat_short(NOBODY)
                row = row + select(won, load(source + VECTOR_BYTES * x), splat(0.0))
            total = total + row
    store(args[at.partial], select(below(args[at.channels]), total, splat(0.0)))
