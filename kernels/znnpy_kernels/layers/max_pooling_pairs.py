"""Max-filters whose window has at most two voxels along each axis: forward and backward.

Output voxel o reads input voxels o + tap * dilation. The tap (dz, dy, dx) has the number 4 dz + 2 dy + dx, whatever
the window; `index` keeps the number of the winner, a byte for each lane. The first maximum in z, y, x order wins; a
NaN in the window gives NaN, and a tap that holds a NaN wins. `far_z`, `far_y`, `far_x` lead from a voxel to the
second of its window, in planes, rows, voxels; 0 where there is none. Other words as in `max_pooling`, but `index_z`,
`index_y` count bytes.

The gradient of a relu before the filter costs nothing: its value is positive where the maximum is. So where the
maximum is not above `floor` the winner gets the number NOBODY, and no gradient goes back.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.max_pooling_rows import LINE, scratch_line
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import fence_seq_cst
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.rows import zero_row
from znnpy_kernels.simd.streaming_stores import stream
from znnpy_kernels.simd.vectors import (
    any_lane,
    below,
    load,
    load_octets,
    select,
    select_octets,
    splat,
    splat_octet,
    store,
    store_octets,
)

# Bytes of rows of a plane, after which the next plane's follow, so that both are in the L2 cache: 128 KiB, an eighth
# of one of 1 MiB.
# Trades reuse of rows between planes against loads that begin anew: an eighth of the L2 cache leaves room for
# what is written.
STRIP_BYTES = 1 << 17
# A byte that no tap of 2 x 2 x 2 has.
NOBODY = 255  # the number of no tap
# Above 7, the largest tap, and below NOBODY with any tap added.
NOWHERE = 64  # added to the numbers of taps in missing rows, so that no winner has them
FAR = words("far_z far_y far_x")


@inlined
def _column(source: int, wz: int, far: Any, bad: Any) -> Any:
    """Return maximum and winner over z and y at one x; collect NaNs in `bad` and ignore them otherwise."""
    # NaNs are only collected: a row without any needs no test for each maximum.
    a, b = load(source), load(source + far[1])
    bad = bad | (a != a) | (b != b)
    second = b > a
    best = select(second, b, a)
    tap = select_octets(second, splat_octet(2), splat_octet(0))
    if wz == 2:
        c, d = load(source + far[0]), load(source + far[0] + far[1])
        bad = bad | (c != c) | (d != d)
        second = d > c
        other = select(second, d, c)
        number = select_octets(second, splat_octet(6), splat_octet(4))
        deeper = other > best
        best = select(deeper, other, best)
        tap = select_octets(deeper, number, tap)
    return best, tap, bad


@inlined
def _joined(first: Any, tap: Any, second: Any, number: Any) -> Any:
    """Return the larger of two columns and its winner; of equal ones that with the smaller number."""
    # Numbers of the second column have bit 0.
    number = number | splat_octet(1)
    larger = second > first
    # Columns are compared after their own maxima: of equal values that with the smaller number is the first in
    # z, y, x order.
    take = larger | ((second == first) & (number < tap))
    return select(larger, second, first), select_octets(take, number, tap)


@inlined
def _keep(target: int, index: int, x: int, best: Any, tap: Any, floor: Any) -> None:
    store(target + VECTOR_BYTES * x, best)
    if index:
        # Where the maximum is not above the floor nobody wins: a relu before the filter passes no gradient
        # there.
        store_octets(index + LANES * x, select_octets(best <= floor, splat_octet(NOBODY), tap))


@inlined
def _near_row(
    source: int, target: int, index: int, width: int, wz: int, far: Any, floor: Any, bad: Any
) -> Any:
    """Filter one row where the second column of the window is the next voxel: it stays in registers."""
    first, tap, bad = _column(source, wz, far, bad)
    for x in range(width):
        second, number, bad = _column(source + VECTOR_BYTES * (x + 1), wz, far, bad)
        best, winner = _joined(first, tap, second, number)
        _keep(target, index, x, best, winner, floor)
        # Moved along: each column is computed once, and is the first one of the next window.
        first, tap = second, number
    return bad


@inlined
def _far_piece(
    source: int, target: int, index: int, count: int, wz: int, far: Any, floor: Any, line: int,
    bad: Any,
) -> Any:  # fmt: skip
    """Filter `count` voxels of a row; columns wait on the line for the one `far[2]` voxels on."""
    span, taps = far[2], line + VECTOR_BYTES * LINE
    for x in range(span):
        best, tap, bad = _column(source + VECTOR_BYTES * x, wz, far, bad)
        store(line + VECTOR_BYTES * x, best)
        store_octets(taps + LANES * x, tap)
    for x in range(count):
        best, tap, bad = _column(source + VECTOR_BYTES * (x + span), wz, far, bad)
        store(line + VECTOR_BYTES * (x + span), best)
        store_octets(taps + LANES * (x + span), tap)
        first, number = load(line + VECTOR_BYTES * x), load_octets(taps + LANES * x)
        best, tap = _joined(first, number, best, tap)
        _keep(target, index, x, best, tap, floor)
    return bad


@inlined
def _row(
    source: int, target: int, index: int, width: int, wz: int, far: Any, floor: Any, line: int,
    bad: Any,
) -> Any:  # fmt: skip
    if far[2] == 1:
        return _near_row(source, target, index, width, wz, far, floor, bad)
    if 2 * far[2] >= LINE:
        # Too far for the line: an all-true mask sends the row to `_careful_row`.
        return bad | (splat(0.0) == splat(0.0))
    # As many outputs as leave room for the columns ahead of the last one.
    piece = LINE - far[2]
    for x in range(0, width, piece):
        bad = _far_piece(
            source + VECTOR_BYTES * x, target + VECTOR_BYTES * x, index + LANES * x if index else 0,
            min(piece, width - x), wz, far, floor, line, bad,
        )  # fmt: skip
    return bad


@inlined
def _careful_row(source: int, target: int, index: int, width: int, far: Any, floor: Any) -> None:
    """Filter one row voxel by voxel, for rows with a NaN."""
    for x in range(width):
        at = source + VECTOR_BYTES * x
        best, tap = load(at), splat_octet(0)
        for dz in range(2 if far[0] else 1):
            for dy in range(2 if far[1] else 1):
                for dx in range(2 if far[2] else 1):
                    value = load(at + dz * far[0] + dy * far[1] + dx * VECTOR_BYTES * far[2])
                    # A later NaN takes the place of an earlier one or of any number.
                    take = (value > best) | (value != value)
                    best = select(take, value, best)
                    tap = select_octets(take, splat_octet(4 * dz + 2 * dy + dx), tap)
        _keep(target, index, x, best, tap, floor)


@inlined
def _forward(args: Any, wz: int, index: int, index_z: int, index_y: int, floor: Any) -> None:
    at = PART
    far = (
        4 * args[at.far_z] * args[at.source_z],
        4 * args[at.far_y] * args[at.source_y],
        args[at.far_x],
    )
    line = scratch_line()
    # As many rows as STRIP_BYTES hold, one at least.
    strip = max(1, STRIP_BYTES // (VECTOR_BYTES * args[at.width]))
    # Strips outside, planes within: rows that two planes share are still in the cache.
    for first in range(0, args[at.rows], strip):
        for z in range(args[at.planes]):
            for y in range(first, min(first + strip, args[at.rows])):
                source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
                target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
                winners = index + z * index_z + y * index_y
                bad = _row(source, target, winners, args[at.width], wz, far, floor, line, below(0))
                # Done again as a whole: NaNs are rare.
                if any_lane(bad):
                    _careful_row(source, target, winners, args[at.width], far, floor)


PART = words("source source_z source_y target target_z target_y planes rows width", FAR)


MAX_FILTER_FORWARD = words(PART, "index index_z index_y floor:float")


@kernel(MAX_FILTER_FORWARD)
def max_filter_forward(args: Any, worker: int) -> None:
    """Write maxima and winning taps; `planes`, `rows`, `width` measure the part of the output.

    `source` is the input voxel where the part's first output voxel lies. A NaN as `floor` lets every tap win.
    """
    at = MAX_FILTER_FORWARD
    floor = splat(float_argument(args[at.floor]))
    if args[at.far_z]:
        _forward(args, 2, args[at.index], args[at.index_z], args[at.index_y], floor)
    else:
        _forward(args, 1, args[at.index], args[at.index_z], args[at.index_y], floor)


@kernel(PART)
def max_filter_values(args: Any, worker: int) -> None:
    """Write maxima as `max_filter_forward`, without the taps, for inference."""
    at = PART
    if args[at.far_z]:
        _forward(args, 2, 0, 0, 0, splat(0.0))
    else:
        _forward(args, 1, 0, 0, 0, splat(0.0))


@inlined
def _streamed_row(source: int, target: int, width: int, wz: int, far: Any, bad: Any) -> Any:
    """Write a row of maxima alone, bypassing the caches, where a window's columns are neighbours."""
    first, tap, bad = _column(source, wz, far, bad)
    for x in range(width):
        second, number, bad = _column(source + VECTOR_BYTES * (x + 1), wz, far, bad)
        best, _ = _joined(first, tap, second, number)
        stream(target + VECTOR_BYTES * x, best)
        first, tap = second, number
    return bad


@inlined
def _streamed(args: Any, wz: int) -> None:
    at = PART
    far = (
        4 * args[at.far_z] * args[at.source_z],
        4 * args[at.far_y] * args[at.source_y],
        args[at.far_x],
    )
    strip = max(1, STRIP_BYTES // (VECTOR_BYTES * args[at.width]))
    for first in range(0, args[at.rows], strip):
        for z in range(args[at.planes]):
            for y in range(first, min(first + strip, args[at.rows])):
                source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
                target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
                if any_lane(_streamed_row(source, target, args[at.width], wz, far, below(0))):
                    _careful_row(source, target, 0, args[at.width], far, splat(0.0))


@kernel(PART)
def max_filter_streamed(args: Any, worker: int) -> None:
    """Write maxima as `max_filter_values`, for targets too large for all caches; `far_x` is 1.

    Rows of the target lie on multiples of a vector's bytes.
    """
    at = PART
    if args[at.far_z]:
        _streamed(args, 2)
    else:
        _streamed(args, 1)
    # Streaming stores must be visible to whoever reads the target next.
    fence_seq_cst()


@inlined
def _won(total: Any, gradient: int, index: int, output: int, number: int) -> Any:
    """Return total + the output's gradient in the lanes where this tap won."""
    won = load_octets(index + LANES * output) == splat_octet(number)
    return select(won, total + load(gradient + VECTOR_BYTES * output), total)


@inlined
def _inner(total: Any, gradients: Any, indices: Any, numbers: Any, x: int, far: int) -> Any:
    """Return total + the gradients that voxel x won in two rows of outputs."""
    # In order of taps: dx 0 and 1 of the first row, then of the second.
    total = _won(total, gradients[0], indices[0], x, numbers[0])
    total = _won(total, gradients[0], indices[0], x - far, numbers[0] + 1)
    total = _won(total, gradients[1], indices[1], x, numbers[1])
    return _won(total, gradients[1], indices[1], x - far, numbers[1] + 1)


@inlined
def _outer(
    total: Any, gradients: Any, indices: Any, numbers: Any, x: int, far: int, outputs: int
) -> Any:
    """Return the same near the ends of a row, where some outputs are missing."""
    for i in range(2):
        if x < outputs:
            total = _won(total, gradients[i], indices[i], x, numbers[i])
        if 0 <= x - far < outputs:
            total = _won(total, gradients[i], indices[i], x - far, numbers[i] + 1)
    return total


@inlined
def _ends(near: Any, deep: Any, target: int, low: int, high: int, far: int, outputs: int) -> Any:
    sums = splat(0.0)
    for x in range(low, high):
        total = _outer(splat(0.0), near[0], near[1], near[2], x, far, outputs)
        total = _outer(total, deep[0], deep[1], deep[2], x, far, outputs)
        store(target + VECTOR_BYTES * x, total)
        sums = sums + total
    return sums


@inlined
def _gathered_row(
    near: Any, deep: Any, wz: int, target: int, outputs: int, width: int, far: int
) -> Any:
    """Write for each input voxel of a row what it won in rows of outputs; return the row's sum.

    `near`, `deep`: gradients, winners and tap numbers of two rows each, of the first and the second plane.
    """
    first = min(far, width)
    sums = _ends(near, deep, target, 0, first, far, outputs)
    # Between both ends all four outputs exist, so nothing is tested.
    for x in range(far, outputs):
        total = _inner(splat(0.0), near[0], near[1], near[2], x, far)
        if wz == 2:
            total = _inner(total, deep[0], deep[1], deep[2], x, far)
        store(target + VECTOR_BYTES * x, total)
        sums = sums + total
    # What is left behind the last output.
    return sums + _ends(near, deep, target, max(first, outputs), width, far, outputs)


@inlined
def _pair(place: int, far: int, size: int, number: int) -> Any:
    """Return the two outputs that read a place, by first and second tap, and the numbers of these taps.

    A missing output is replaced by the other, with a number that no tap has; without either, outputs are -1.
    """
    second = place - far if far and 0 <= place - far < size else -1
    first = place if place < size else -1
    one, two = 0 if first >= 0 else NOWHERE, number if second >= 0 else NOWHERE
    return (
        max(first, second) if first < 0 else first,
        max(first, second) if second < 0 else second,
        one,
        two,
    )


@inlined
def _rows_of(args: Any, plane: int, rows: Any, number: int) -> Any:
    """Return gradients, winners and tap numbers of two rows of a plane of outputs."""
    at = MAX_FILTER_BACKWARD
    gradient, index = (
        args[at.gradient] + 4 * plane * args[at.gradient_z],
        args[at.index] + plane * args[at.index_z],
    )
    return (
        (
            gradient + 4 * rows[0] * args[at.gradient_y],
            gradient + 4 * rows[1] * args[at.gradient_y],
        ),
        (index + rows[0] * args[at.index_y], index + rows[1] * args[at.index_y]),
        (number + rows[2], number + rows[3]),
    )


@inlined
def _backward(args: Any, wz: int) -> Any:
    """Compute all rows of a part; return their sum."""
    at = MAX_FILTER_BACKWARD
    sums = splat(0.0)
    for z in range(args[at.planes]):
        # 4, 2 and 1 are the bits of dz, dy and dx in a tap's number.
        planes = _pair(z + args[at.first_plane], args[at.far_z], args[at.outputs_z], 4)
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            rows = _pair(y + args[at.first_row], args[at.far_y], args[at.outputs_y], 2)
            if planes[0] < 0 or rows[0] < 0:
                zero_row(target, LANES * args[at.width])
            # A voxel that no output reads: its row has no winners, and no sum.
            else:
                near = _rows_of(args, planes[0], rows, planes[2])
                deep = _rows_of(args, planes[1], rows, planes[3])
                sums = sums + _gathered_row(
                    near, deep, wz, target, args[at.outputs_x], args[at.width], args[at.far_x]
                )
    return sums


MAX_FILTER_BACKWARD = words(
    "gradient gradient_z gradient_y index index_z index_y outputs_z outputs_y outputs_x target "
    "target_z target_y first_plane first_row planes rows width",
    FAR,
    "bias_gradient",
)


@kernel(MAX_FILTER_BACKWARD)
def max_filter_backward(args: Any, worker: int) -> None:
    """Write for each input voxel the sum of the gradients of the outputs that it won, in order of taps.

    Words as in `max_pool_backward`. `bias_gradient` (0: not wanted) gets the sum over the part, LANES floats.
    """
    at = MAX_FILTER_BACKWARD
    sums = _backward(args, 2) if args[at.far_z] else _backward(args, 1)
    if args[at.bias_gradient]:
        store(args[at.bias_gradient], sums)
