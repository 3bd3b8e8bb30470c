"""Depthwise convolution of one channel block, forward and data gradient: a filter for each channel (lane).

Words as in `pooling_windows`, zeros beyond the channel, and

    filters, filter_tap     the block's first tap, and floats from tap to tap: the x taps of a row follow
                            each other, then rows, then planes

A tap is a multiply-add of lanes. Eight neighbouring outputs are summed at once, taps in z, y, x order. Columns of
such outputs are done one after the other, so that the rows that neighbours share stay in the L1 cache. Where taps
may lie outside along x, four outputs at once test each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.layers.pooling_windows import FORWARD, quotient, taps_inside
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import fma, load, splat, store

# Outputs summed at once: enough sums to hide the latency of multiply-add; testing taps.
# 8 sums and a tap leave registers free for what is read; with tests there are masks and addresses, too.
WIDE, NARROW = 8, 4


class Taps(NamedTuple):
    """Taps along one axis: `many` from `first` on, `step` apart, which read voxels from `place` on, `apart`."""

    first: int
    step: int
    many: int
    place: int
    apart: int


class Line(NamedTuple):
    """Outputs along x: `many` of them, `target_step` bytes apart from byte `target` of a row on.

    `taps` are those of the first; the next reads voxels `move` further on, of `limit` in all.
    """

    taps: Taps
    move: int
    limit: int
    many: int
    target: int
    target_step: int


class Bank(NamedTuple):
    """Addresses of voxels and taps, and bytes from one to the next; `target` of a plane."""

    source: int
    source_z: int
    source_y: int
    filters: int
    filter_z: int
    filter_y: int
    filter_x: int
    target: int


@inlined
def _read_along(place: int, taps: int, dilation: int, stride: int, before: int, size: int) -> Any:
    """Return the taps of output `place` that lie inside."""
    corner = place * stride - before
    low, high = taps_inside(corner, taps, dilation, size)
    return Taps(low, 1, high - low, corner + low * dilation, dilation)


@inlined
def _common(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@inlined
def _met(place: int, taps: int, dilation: int, stride: int) -> Any:
    """Return the taps by which outputs read a voxel, counted from the window of output 0, existing outputs or not."""
    # In numbers of the outputs, whether they exist or not: `_met_along` leaves out what does not.
    if stride == 1:
        return Taps(0, 1, taps, place, -dilation)
    common = _common(stride, dilation)
    step, apart = stride // common, dilation // common
    first = 0
    # Remainders repeat after `step` taps: further ones are met only if one of these is.
    while first < min(step, taps) and (place - first * dilation) % stride != 0:
        first += 1
    if first >= min(step, taps):
        return Taps(0, step, 0, 0, -apart)
    count = (taps - 1 - first) // step + 1
    return Taps(first, step, count, (place - first * dilation) // stride, -apart)


@inlined
def _met_along(place: int, taps: int, dilation: int, stride: int, outputs: int) -> Any:
    """Return the same taps of existing outputs only."""
    all_ = _met(place, taps, dilation, stride)
    low, apart = 0, -all_.apart
    if all_.place >= outputs:
        low = quotient(all_.place - outputs, apart) + 1
    high = min(all_.many, quotient(all_.place, apart) + 1) if all_.place >= 0 else 0
    first, place = all_.first + low * all_.step, all_.place - low * apart
    return Taps(first, all_.step, max(0, high - low), place, all_.apart)


@inlined
def _whole(line: Any) -> Any:
    """Return the outputs first..last of a line all of whose taps lie inside."""
    # From the first tap to the last, in whichever direction.
    taps, reach = line.taps, max(0, line.taps.many - 1) * line.taps.apart
    lowest, highest = taps.place + min(0, reach), taps.place + max(0, reach)
    first = min(line.many, (line.move - 1 - lowest) // line.move) if lowest < 0 else 0
    room = line.limit - 1 - highest
    last = min(line.many, room // line.move + 1) if room >= 0 else 0
    return first, max(first, last)


@inlined
def _add_row(place: int, tap: int, many: int, move: int, apart: int, step: int, sums: Any) -> Any:
    """Add one row of taps to the sums of WIDE outputs; steps in bytes."""
    # By name, not as a list: numba keeps a tuple of vectors in registers.
    s0, s1, s2, s3, s4, s5, s6, s7 = sums
    for i in range(many):
        f, at = load(tap + step * i), place + apart * i
        s0, s1 = fma(load(at), f, s0), fma(load(at + move), f, s1)
        s2, s3 = fma(load(at + 2 * move), f, s2), fma(load(at + 3 * move), f, s3)
        s4, s5 = fma(load(at + 4 * move), f, s4), fma(load(at + 5 * move), f, s5)
        s6, s7 = fma(load(at + 6 * move), f, s6), fma(load(at + 7 * move), f, s7)
    return s0, s1, s2, s3, s4, s5, s6, s7


@inlined
def _add_usual_row(place: int, tap: int, line: Any, step: int, back: int, sums: Any) -> Any:
    """Add the same; with constant steps the usual rows of taps read each voxel once, into a register."""
    taps = line.taps
    # A constant distance between taps and outputs that are neighbours: LLVM then sees that tap i + 1 reads what
    # output + 1 has read.
    near = -VECTOR_BYTES if back else VECTOR_BYTES
    usual = line.move == 1 and VECTOR_BYTES * taps.apart == near
    # 3, 5 and 7 taps, unrolled; any other number by a loop.
    if usual and taps.many == 3:
        return _add_row(place, tap, 3, VECTOR_BYTES, near, step, sums)
    if usual and taps.many == 5:
        return _add_row(place, tap, 5, VECTOR_BYTES, near, step, sums)
    if usual and taps.many == 7:
        return _add_row(place, tap, 7, VECTOR_BYTES, near, step, sums)
    move, apart = VECTOR_BYTES * line.move, VECTOR_BYTES * taps.apart
    return _add_row(place, tap, taps.many, move, apart, step, sums)


@inlined
def _add_rows(bank: Any, z: Any, y: Any, line: Any, x: int, target: int, back: int) -> None:
    """Sum outputs x..x + WIDE of a line, whose taps all lie inside."""
    zero = splat(0.0)
    sums = zero, zero, zero, zero, zero, zero, zero, zero
    start = bank.source + VECTOR_BYTES * (line.taps.place + line.move * x)
    for a in range(z.many):
        for b in range(y.many):
            place = start + bank.source_z * (z.place + a * z.apart)
            place += bank.source_y * (y.place + b * y.apart)
            tap = bank.filters + bank.filter_x * line.taps.first
            tap += bank.filter_z * (z.first + a * z.step) + bank.filter_y * (y.first + b * y.step)
            sums = _add_usual_row(place, tap, line, bank.filter_x * line.taps.step, back, sums)
    at, step = target + line.target + line.target_step * x, line.target_step
    store(at, sums[0])
    store(at + step, sums[1])
    store(at + 2 * step, sums[2])
    store(at + 3 * step, sums[3])
    store(at + 4 * step, sums[4])
    store(at + 5 * step, sums[5])
    store(at + 6 * step, sums[6])
    store(at + 7 * step, sums[7])


@inlined
def _added(place: int, row: int, limit: int, f: Any, total: Any) -> Any:
    return fma(load(row + VECTOR_BYTES * place), f, total) if 0 <= place < limit else total


@inlined
def _add_tested(bank: Any, z: Any, y: Any, line: Any, x: int, high: int, target: int) -> None:
    """Sum outputs x..x + NARROW of a line, those below `high`, testing whether each tap lies inside."""
    s0, s1, s2, s3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    taps, move, limit = line.taps, line.move, line.limit
    for a in range(z.many):
        for b in range(y.many):
            row = bank.source + bank.source_z * (z.place + a * z.apart)
            row += bank.source_y * (y.place + b * y.apart)
            tap = bank.filters + bank.filter_x * taps.first
            tap += bank.filter_z * (z.first + a * z.step) + bank.filter_y * (y.first + b * y.step)
            place = taps.place + move * x
            for _ in range(taps.many):
                f = load(tap)
                s0 = _added(place, row, limit, f, s0)
                s1 = _added(place + move, row, limit, f, s1)
                s2 = _added(place + 2 * move, row, limit, f, s2)
                s3 = _added(place + 3 * move, row, limit, f, s3)
                place += taps.apart
                tap += bank.filter_x * taps.step
    at, step = target + line.target + line.target_step * x, line.target_step
    store(at, s0)
    # Only these are stored: outputs beyond `high` are computed from what lies inside, and dropped.
    if x + 1 < high:
        store(at + step, s1)
    if x + 2 < high:
        store(at + 2 * step, s2)
    if x + 3 < high:
        store(at + 3 * step, s3)


@inlined
def _along(args: Any, axis: int, place: int, back: int) -> Any:
    """Return the taps of one row or plane of a part; axis 0 is z."""
    at = DEPTHWISE
    taps, dilation = args[at.window_z + axis], args[at.dilation_z + axis]
    stride, before = args[at.stride_z + axis], args[at.before_z + axis]
    size = args[at.inputs_z + axis]
    if back:
        return _met_along(place + before, taps, dilation, stride, size)
    return _read_along(place, taps, dilation, stride, before, size)


@inlined
def _column(args: Any, bank: Any, z: Any, line: Any, x: int, high: int, back: int) -> None:
    """Compute outputs from x on, in all rows of a plane: WIDE of them if `high` is 0, else up to `high`."""
    # All rows of a column of outputs before the next column: rows that neighbours share stay in the L1 cache.
    at = DEPTHWISE
    for row in range(args[at.rows]):
        y = _along(args, 1, args[at.first_row] + row, back)
        target = bank.target + 4 * row * args[at.target_y]
        if high:
            for i in range(x, high, NARROW):
                _add_tested(bank, z, y, line, i, high, target)
        else:
            _add_rows(bank, z, y, line, x, target, back)


@inlined
def _columns(args: Any, bank: Any, z: Any, line: Any, back: int) -> None:
    """Compute all rows of a plane of a part."""
    first, last = _whole(line)
    # Too short for eight at once: all with tests.
    if last - first < WIDE:
        first, last = line.many, line.many
    if first > 0:
        _column(args, bank, z, line, 0, first, back)
    for x in range(first, last - WIDE + 1, WIDE):
        _column(args, bank, z, line, x, 0, back)
    # The last WIDE overlap the ones before: computed twice, with the same result.
    if (last - first) % WIDE:
        _column(args, bank, z, line, last - WIDE, 0, back)
    if last < line.many:
        _column(args, bank, z, line, last, line.many, back)


@inlined
def _planes(args: Any, line: Any, back: int) -> None:
    at = DEPTHWISE
    tap = 4 * args[at.filter_tap]
    row = tap * args[at.window_x]
    for plane in range(args[at.planes]):
        bank = Bank(
            args[at.source],
            4 * args[at.source_z],
            4 * args[at.source_y],
            args[at.filters],
            row * args[at.window_y],
            row,
            tap,
            args[at.target] + 4 * plane * args[at.target_z],
        )
        z = _along(args, 0, args[at.first_plane] + plane, back)
        _columns(args, bank, z, line, back)


DEPTHWISE = words(FORWARD, "filters filter_tap")


@kernel(DEPTHWISE)
def depthwise_forward(args: Any, worker: int) -> None:
    """Cross-correlate each channel with its filter."""
    at = DEPTHWISE
    taps = Taps(0, 1, args[at.window_x], -args[at.before_x], args[at.dilation_x])
    line = Line(taps, args[at.stride_x], args[at.inputs_x], args[at.width], 0, VECTOR_BYTES)
    _planes(args, line, 0)


@kernel(DEPTHWISE)
def depthwise_back(args: Any, worker: int) -> None:
    """Compute the data gradient: `source` is the gradient of the outputs, inputs_z x inputs_y x inputs_x of them."""
    at = DEPTHWISE
    stride = args[at.stride_x]
    # A lattice of the stride after the other: on each, taps and steps are the same for all voxels.
    for x in range(min(stride, args[at.width])):
        taps = _met(x + args[at.before_x], args[at.window_x], args[at.dilation_x], stride)
        count = (args[at.width] - 1 - x) // stride + 1
        line = Line(taps, 1, args[at.inputs_x], count, VECTOR_BYTES * x, VECTOR_BYTES * stride)
        _planes(args, line, 1)
