"""Row operations of max pooling, forward and backward: by columns for stride 1, by windows otherwise.

Winners of windows are numbered in 32 bits, as wide as values, so that one mask chooses both.

With stride 1 on x the maximum of each column of the window (over z and y) is computed once and kept on a scratch
line, and an output is the maximum of `window_x` columns: a window of w^3 costs w^2 + w loads instead of w^3. Either
way only looks for NaNs; a row that has one is done again, by comparisons that know them.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    FLOATS,
    INTS,
    SHORTS,
    any_lane,
    below,
    from_bits,
    load,
    load_shorts,
    select,
    select_shorts,
    splat,
    splat_int,
    splat_short,
    store,
    store_shorts,
)

# uint16, as many taps as a window of 31^3 has; a byte would end at 255.
INDEX_BYTES = 2 * LANES
NOBODY = 0xFFFF  # the number of no tap
# 16 lanes: 8 KiB of values and 4 KiB of numbers.
LINE = 128  # voxels of a row at once: with their numbers they stay in the L1 cache


@intrinsic
def scratch_line(typingctx: Any) -> Any:
    """Return the address of LINE voxels of float32 and, behind them, LINE voxels of uint16, on the stack."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # LINE / 2 vectors of floats hold LINE vectors of uint16.
        place = cgutils.alloca_once(builder, ir.ArrayType(FLOATS.ir, LINE + LINE // 2))
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), codegen


@intrinsic
def _short_numbers(typingctx: Any, numbers: Any) -> Any:
    """Return the lower halves of numbers of 32 bits that stand in floats."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.trunc(builder.bitcast(args[0], INTS.ir), SHORTS.ir)

    return SHORTS(FLOATS), codegen


@inlined
def _best(source: int, wz: int, wy: int, wx: int, steps: Any, step_x: int) -> Any:
    """Return maximum and winning tap over one window; steps are bytes from tap to tap."""
    best, tap = load(source), splat_short(0)
    number = 0
    for dz in range(wz):
        for dy in range(wy):
            for dx in range(wx):
                value = load(source + dz * steps[0] + dy * steps[1] + dx * step_x)
                # A NaN beats everything; a later one beats an earlier one.
                take = (value > best) | (value != value)
                best = select(take, value, best)
                tap = select_shorts(take, splat_short(number), tap)
                number += 1
    return best, tap


@inlined
def _larger(value: Any, best: Any) -> Any:
    return select((value > best) | (value != value), value, best)


@inlined
def _largest(source: int, wz: int, wy: int, wx: int, steps: Any, step_x: int) -> Any:
    best = load(source)
    for dz in range(wz):
        for dy in range(wy):
            for dx in range(wx):
                best = _larger(load(source + dz * steps[0] + dy * steps[1] + dx * step_x), best)
    return best


@inlined
def _column(source: int, wz: int, wy: int, steps: Any, factor: int, bad: Any) -> Any:
    """Return maximum and winner of a window of one column; collect NaNs in `bad` and ignore them otherwise."""
    best, tap = load(source), splat_short(0)
    bad = bad | (best != best)
    for dz in range(wz):
        for dy in range(wy):
            if dz + dy > 0:
                value = load(source + dz * steps[0] + dy * steps[1])
                bad = bad | (value != value)
                take = value > best
                best = select(take, value, best)
                number = (dz * wy + dy) * factor
                tap = select_shorts(take, splat_short(number), tap)
    return best, tap, bad


@inlined
def _joined(line: int, x: int, wx: int, dilation: int, last: Any, last_tap: Any) -> Any:
    """Return the maximum of `wx` columns on the line, the last of which comes in registers."""
    taps = line + VECTOR_BYTES * LINE
    best, tap = load(line + VECTOR_BYTES * x), load_shorts(taps + INDEX_BYTES * x)
    for dx in range(1, wx):
        value, number = last, last_tap
        if dx < wx - 1:
            at = x + dx * dilation
            value, number = load(line + VECTOR_BYTES * at), load_shorts(taps + INDEX_BYTES * at)
        number = number + splat_short(dx)
        # As in `max_pooling_pairs._joined`: of equal columns that with the smaller number.
        take = (value > best) | ((value == best) & (number < tap))
        best = select(value > best, value, best)
        tap = select_shorts(take, number, tap)
    return best, tap


@inlined
def _pool_piece(
    source: int, target: int, index: int, count: int, wz: int, wy: int, wx: int, steps: Any,
    dilation: int, line: int, bad: Any,
) -> Any:  # fmt: skip
    span, taps = (wx - 1) * dilation, line + VECTOR_BYTES * LINE
    for x in range(span):
        best, tap, bad = _column(source + VECTOR_BYTES * x, wz, wy, steps, wx, bad)
        store(line + VECTOR_BYTES * x, best)
        store_shorts(taps + INDEX_BYTES * x, tap)
    for x in range(count):
        at = x + span
        best, tap, bad = _column(source + VECTOR_BYTES * at, wz, wy, steps, wx, bad)
        store(line + VECTOR_BYTES * at, best)
        store_shorts(taps + INDEX_BYTES * at, tap)
        best, tap = _joined(line, x, wx, dilation, best, tap)
        store(target + VECTOR_BYTES * x, best)
        store_shorts(index + INDEX_BYTES * x, tap)
    return bad


@inlined
def pool_columns(
    source: int, target: int, index: int, width: int, wz: int, wy: int, wx: int, steps: Any,
    dilation: int, line: int,
) -> Any:  # fmt: skip
    """Pool one row with stride 1; return whether it holds a NaN (then the result is void).

    `steps`: bytes from tap to tap on z and y; `line`: a scratch line.
    """
    # As many outputs as leave room on the line for the span of a window.
    bad, piece = below(0), LINE - (wx - 1) * dilation
    for x in range(0, width, piece):
        bad = _pool_piece(
            source + VECTOR_BYTES * x, target + VECTOR_BYTES * x, index + INDEX_BYTES * x, min(piece, width - x),
            wz, wy, wx, steps, dilation, line, bad,
        )  # fmt: skip
    return any_lane(bad)


@inlined
def pool_whole(
    source: int, target: int, index: int, count: int, wz: int, wy: int, wx: int, rows: int,
    number: int, steps: Any, stride: int, floor: float,
) -> Any:  # fmt: skip
    """Pool one row with any stride; return whether it holds a NaN (then the result is void).

    Nobody wins where the maximum is not above `floor`.

    `rows`: of a whole window, of which wz x wy are read from tap `number` on; `steps`: bytes from tap to tap.
    """
    bad = below(0)
    for x in range(count):
        at = source + VECTOR_BYTES * x * stride
        best, tap = load(at), from_bits(splat_int(number))
        bad = bad | (best != best)
        for dz in range(wz):
            for dy in range(wy):
                for dx in range(wx):
                    if dz + dy + dx > 0:
                        value = load(at + dz * steps[0] + dy * steps[1] + dx * steps[2])
                        bad = bad | (value != value)
                        own = from_bits(splat_int(number + (dz * rows + dy) * wx + dx))
                        tap = select(value > best, own, tap)
                        best = select(value > best, value, best)
        tap = select(best <= splat(floor), from_bits(splat_int(NOBODY)), tap)
        store(target + VECTOR_BYTES * x, best)
        store_shorts(index + INDEX_BYTES * x, _short_numbers(tap))
    return any_lane(bad)


@inlined
def pool_windows(
    source: int, target: int, index: int, count: int, wz: int, wy: int, wx: int, steps: Any,
    stride: int, dilation: int,
) -> None:  # fmt: skip
    """Pool one row with any stride."""
    for x in range(count):
        at = source + VECTOR_BYTES * x * stride
        best, tap = _best(at, wz, wy, wx, steps, VECTOR_BYTES * dilation)
        store(target + VECTOR_BYTES * x, best)
        store_shorts(index + INDEX_BYTES * x, tap)


@inlined
def let_nobody_win(target: int, index: int, low: int, high: int, floor: float) -> None:
    """Take the winners from a row's outputs low..high where the maximum is not above `floor`."""
    for x in range(low, high):
        below_it = load(target + VECTOR_BYTES * x) <= splat(floor)
        at = index + INDEX_BYTES * x
        store_shorts(at, select_shorts(below_it, splat_short(NOBODY), load_shorts(at)))


@inlined
def _column_value(source: int, wz: int, wy: int, steps: Any, bad: Any) -> Any:
    best = load(source)
    bad = bad | (best != best)
    for dz in range(wz):
        for dy in range(wy):
            if dz + dy > 0:
                value = load(source + dz * steps[0] + dy * steps[1])
                bad = bad | (value != value)
                best = select(value > best, value, best)
    return best, bad


@inlined
def _pool_piece_values(
    source: int, target: int, count: int, wz: int, wy: int, wx: int, steps: Any,
    dilation: int, line: int, bad: Any,
) -> Any:  # fmt: skip
    span = (wx - 1) * dilation
    for x in range(span):
        best, bad = _column_value(source + VECTOR_BYTES * x, wz, wy, steps, bad)
        store(line + VECTOR_BYTES * x, best)
    for x in range(count):
        best, bad = _column_value(source + VECTOR_BYTES * (x + span), wz, wy, steps, bad)
        store(line + VECTOR_BYTES * (x + span), best)
        for dx in range(wx - 1):
            value = load(line + VECTOR_BYTES * (x + dx * dilation))
            best = select(value > best, value, best)
        store(target + VECTOR_BYTES * x, best)
    return bad


@inlined
def pool_columns_values(
    source: int, target: int, width: int, wz: int, wy: int, wx: int, steps: Any, dilation: int,
    line: int,
) -> Any:  # fmt: skip
    """Pool as `pool_columns`, without taps."""
    bad, piece = below(0), LINE - (wx - 1) * dilation
    for x in range(0, width, piece):
        bad = _pool_piece_values(
            source + VECTOR_BYTES * x, target + VECTOR_BYTES * x, min(piece, width - x),
            wz, wy, wx, steps, dilation, line, bad,
        )  # fmt: skip
    return any_lane(bad)


@inlined
def pool_windows_values(
    source: int, target: int, count: int, wz: int, wy: int, wx: int, steps: Any, stride: int,
    dilation: int,
) -> None:  # fmt: skip
    """Pool as `pool_windows`, without taps."""
    for x in range(count):
        at = source + VECTOR_BYTES * x * stride
        store(target + VECTOR_BYTES * x, _largest(at, wz, wy, wx, steps, VECTOR_BYTES * dilation))


@inlined
def pool_clipped(
    corner: int, target: int, index: int, inside: Any, wy: int, wx: int, steps: Any
) -> None:
    """Pool one window of which taps inside[0]..inside[1] along z, y, x lie inside.

    Without any it gives -Inf and a tap number that does not exist.
    """
    low, high = inside
    # Numbers as the whole window has them, whatever is left out.
    best, tap = splat(-inf), splat_short(NOBODY)
    for dz in range(low[0], high[0]):
        for dy in range(low[1], high[1]):
            for dx in range(low[2], high[2]):
                value = load(corner + dz * steps[0] + dy * steps[1] + dx * steps[2])
                # The first tap inside wins even if it holds -Inf.
                take = (value > best) | (value != value) | (tap == splat_short(NOBODY))
                best = select(take, value, best)
                number = (dz * wy + dy) * wx + dx
                tap = select_shorts(take, splat_short(number), tap)
    store(target, best)
    store_shorts(index, tap)


@inlined
def pool_clipped_values(corner: int, target: int, inside: Any, steps: Any) -> None:
    """Pool as `pool_clipped`, without taps."""
    low, high = inside
    best = splat(-inf)
    for dz in range(low[0], high[0]):
        for dy in range(low[1], high[1]):
            for dx in range(low[2], high[2]):
                value = load(corner + dz * steps[0] + dy * steps[1] + dx * steps[2])
                best = _larger(value, best)
    store(target, best)


@inlined
def _added(total: Any, gradient: int, index: int, output: int, number: int) -> Any:
    """Return total + the output's gradient in the lanes where this tap won."""
    won = load_shorts(index + INDEX_BYTES * output) == splat_short(number)
    return select(won, total + load(gradient + VECTOR_BYTES * output), total)


@inlined
def _gather_at_edge(
    gradients: Any, indices: Any, numbers: Any, target: int, outputs: int, x: int, wx: int,
    dilation: int, before: int,
) -> None:  # fmt: skip
    total = load(target + VECTOR_BYTES * x)
    for i in range(2):
        for dx in range(wx):
            o = x + before - dx * dilation
            if 0 <= o < outputs:
                total = _added(total, gradients[i], indices[i], o, numbers[i] + dx)
    store(target + VECTOR_BYTES * x, total)


@inlined
def gather_dense_rows(
    gradients: Any, indices: Any, numbers: Any, target: int, outputs: int, width: int, wx: int,
    dilation: int, before: int,
) -> None:  # fmt: skip
    """Add to each input voxel of a row what it won in two rows of outputs, for stride 1 on x.

    `numbers`: the tap numbers of dx = 0 in the two rows.
    """
    # Voxels from `first` to `last` are read by outputs that exist, with every tap.
    first = min(max(0, (wx - 1) * dilation - before), width)
    last = min(max(first, outputs - before), width)
    for x in range(first):
        _gather_at_edge(gradients, indices, numbers, target, outputs, x, wx, dilation, before)
    for x in range(first, last):
        total = load(target + VECTOR_BYTES * x)
        # All taps of the first row, then of the second: the order of taps.
        for dx in range(wx):
            o = x + before - dx * dilation
            total = _added(total, gradients[0], indices[0], o, numbers[0] + dx)
        for dx in range(wx):
            o = x + before - dx * dilation
            total = _added(total, gradients[1], indices[1], o, numbers[1] + dx)
        store(target + VECTOR_BYTES * x, total)
    for x in range(last, width):
        _gather_at_edge(gradients, indices, numbers, target, outputs, x, wx, dilation, before)


@inlined
def gather_strided_row(
    gradient: int, index: int, number: int, target: int, first: int, last: int, stride: int
) -> None:
    """Add the gradients of outputs first..last that one tap won to voxels `stride` apart."""
    for o in range(first, last):
        at = target + VECTOR_BYTES * stride * o
        store(at, _added(load(at), gradient, index, o, number))


@inlined
def _at_edge(
    total: Any, gradient: int, index: int, number: int, place: int, wx: int, outputs: int
) -> Any:
    """Return total + what a voxel won in a row of outputs two apart; place 0 is where output 0 begins."""
    for dx in range(place % 2, wx, 2):
        o = (place - dx) // 2
        if 0 <= o < outputs:
            total = _added(total, gradient, index, o, number + dx)
    return total


@inlined
def _edges(
    gradients: Any, indices: Any, numbers: Any, rows: int, target: int, low: int, high: int,
    outputs: int, wx: int, before: int, fresh: bool,
) -> None:  # fmt: skip
    for x in range(low, high):
        at = target + VECTOR_BYTES * x
        total = splat(0.0) if fresh else load(at)
        total = _at_edge(total, gradients[0], indices[0], numbers[0], x + before, wx, outputs)
        if rows == 2:
            total = _at_edge(total, gradients[1], indices[1], numbers[1], x + before, wx, outputs)
        store(at, total)


@inlined
def _two_voxels(
    first: Any, second: Any, gradient: int, index: int, number: int, o: int, wx: int
) -> Any:
    """Return the sums of the voxels where output o begins, and behind it, with what they won in a row of outputs."""
    first = _added(first, gradient, index, o, number)
    if wx == 3:
        first = _added(first, gradient, index, o - 1, number + 2)
    return first, _added(second, gradient, index, o, number + 1)


@inlined
def gather_half_rows(
    gradients: Any, indices: Any, numbers: Any, rows: int, target: int, outputs: int, width: int,
    wx: int, before: int, fresh: bool,
) -> None:  # fmt: skip
    """Write (`fresh`) or add to each voxel of a row what it won in one or two rows of outputs, for stride 2 on x.

    Windows have two or three voxels along x, without dilation; `numbers`: tap numbers of dx = 0 in the rows.
    """
    # Outputs of whose first two voxels both are in the row and, of three, whose first one ends another window.
    low = max((before + 1) // 2, wx - 2)
    high = max(low, min(outputs, (width + before) // 2))
    start = min(2 * low - before, width)
    end = max(start, min(2 * high - before, width))
    # Typed: a plain 0 would have the edge compiled for it as a constant, too.
    _edges(
        gradients, indices, numbers, rows, target, np.int64(0), start, outputs, wx, before, fresh
    )
    for o in range(low, high):
        at = target + VECTOR_BYTES * (2 * o - before)
        first, second = (
            splat(0.0) if fresh else load(at),
            splat(0.0) if fresh else load(at + VECTOR_BYTES),
        )
        first, second = _two_voxels(first, second, gradients[0], indices[0], numbers[0], o, wx)
        if rows == 2:
            first, second = _two_voxels(first, second, gradients[1], indices[1], numbers[1], o, wx)
        store(at, first)
        store(at + VECTOR_BYTES, second)
    _edges(gradients, indices, numbers, rows, target, end, width, outputs, wx, before, fresh)
