"""Transforms packed filters to the points of Winograd's minimal filtering (`line_transforms`: G g).

Of 3^3 taps to 6^3 points, and so for each form of tiles (`forms`): along an axis of one tap there is one point.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source                      of `winograd_filters`: tap (0, 0, 0) of the first of some vectors of LANES
                                filters, which lie one behind the other as their points do; of
                                `winograd_exchanged`: packed filters of the first output, from the first of
                                one or two blocks of inputs on
    source_tap, vectors         from tap to tap; vectors of this task
    inputs, outputs, width      of this task: inputs of all its blocks, outputs; lanes of outputs
    apart                       whether inputs lie apart, each with all its taps, as a planar source has them
    target, target_point        the first vector at the first point, 64-byte aligned; from point to point
    scratch, scratch_worker     64-byte aligned; worker w owns `SCRATCH_FLOATS` from w * scratch_worker on

Points are ordered [z][x][y], each [input][output lane]; those of exchanged filters, which are flipped as well,
[output][input lane]. Sums are taken in float64, of which a vector of LANES filters takes two registers, and rounded
once, after all three axes. Tasks over disjoint targets may run concurrently.

A group of vectors is transformed along x and y, to planes in the L1 cache, then column by column along z: points lie
far apart, and so whole cache lines of six of them are written at a time. They pass by the caches, which would read
them first. Scratch of a worker, in this order: planes in float64 [x][y][z][vector]; vectors whose lanes lay
apart [tap][vector].
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.atomics import fence_seq_cst
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import DOUBLE, FLOAT, Value, float_pointer, word
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.streaming_stores import stream_vector
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, transpose_tile
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS, Triple, axes_of, name_of
from znnpy_kernels.winograd.line_transforms import TARGET_SCALES, filter_matrix

# A register holds half a vector of LANES floats as float64.
DOUBLES_BYTES = 2 * VECTOR_BYTES  # of a vector of filters as float64
HALF = LANES // 2
_FLOATS, _DOUBLES = ir.VectorType(FLOAT, HALF), ir.VectorType(DOUBLE, HALF)
# The scales of `target_line` go into the filters, which are transformed once, so outputs need fewer operations.
_MATRIX = TARGET_SCALES[:, None] * filter_matrix()

AT = words("source source_tap vectors target target_point scratch scratch_worker")
EXCHANGED = words("source inputs outputs width apart target target_point scratch scratch_worker")
# 128 bytes, two cache lines, of a point at a time: stores that pass by the caches are fast in whole lines.
GROUP = 128 // VECTOR_BYTES  # vectors at once
# From tap to tap along z within a column: float64 of all vectors of a group.
SLOT = GROUP * DOUBLES_BYTES
COLUMN = TAPS * SLOT + 64  # so that columns do not fall on one set of the caches
# Of all planes of a group of cubes, the largest.
PLANES = POINTS * POINTS * COLUMN
# Room for two blocks of inputs side by side, so that exchanged filters are written in neighbouring lines, too.
TILE = 2 * LANES * VECTOR_BYTES  # from tap to tap of vectors whose lanes lay apart
SCRATCH_FLOATS = (PLANES + TAPS**3 * TILE) // 4


def points_line(builder: ir.IRBuilder, taps: list[Value]) -> list[Value]:
    """G g, scaled by place: POINTS values from TAPS taps, each sum in the order of its taps; of one tap, itself."""
    if len(taps) == 1:
        return taps
    # Not fused and in the order of the taps: forward and data gradient, and every CPU, have the same bits.
    return [_sum(builder, taps, row) for row in _MATRIX.tolist()]


def _sum(b: ir.IRBuilder, taps: list[Value], factors: list[float]) -> Value:
    constants = [ir.Constant(_DOUBLES, [factor] * HALF) for factor in factors]
    found = zip(taps, constants, factors, strict=True)
    # Factors of 0 are left out: 0 * Inf would be NaN, and the sum shorter.
    return reduce(b.fadd, [b.fmul(tap, constant) for tap, constant, factor in found if factor])


def _load(b: ir.IRBuilder, kind: ir.VectorType, start: Value, half: int) -> Value:
    """A register: half a vector of floats or doubles."""
    size = 4 if kind is _FLOATS else 8
    place = b.add(start, word(size * HALF * half))
    return b.load(b.inttoptr(place, kind.as_pointer()), align=size)


@intrinsic
def points_plane(
    typingctx: Any, form: Any, source: Any, step_y: Any, step_x: Any, target: Any, step: Any
) -> tuple[Signature, Any]:
    """The vectors of floats of all taps along y and x, transformed along x and y, to vectors of doubles [x][y]."""
    _, high, wide = axes_of(form)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, step_y, step_x, target, step) = builder, args

        def row(y: int, half: int) -> list[Value]:
            start = b.add(source, b.mul(step_y, word(y)))
            starts = [b.add(start, b.mul(step_x, word(x))) for x in range(wide.taps)]
            return [b.fpext(_load(b, _FLOATS, start, half), _DOUBLES) for start in starts]

        # One half of the lanes after the other: TAPS rows of POINTS values in float64 are what the registers
        # hold.
        for half in range(2):
            rows = [points_line(b, row(y, half)) for y in range(high.taps)]
            columns = [points_line(b, list(column)) for column in zip(*rows, strict=True)]
            into = b.add(target, word(8 * HALF * half))
            # [x][y]: columns of one x lie together, in the order of the points that are written.
            for number, value in enumerate(point for column in columns for point in column):
                place = b.add(into, b.mul(step, word(number)))
                b.store(value, b.inttoptr(place, _DOUBLES.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 5), codegen


@intrinsic
def points_depth(
    typingctx: Any, form: Any, source: Any, step_z: Any, target: Any, step: Any
) -> tuple[Signature, Any]:
    """The vectors of doubles of all taps along z, transformed, to vectors of floats that pass by the caches."""
    count = axes_of(form)[0].taps

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, step_z, target, step) = builder, args

        def points(half: int) -> list[Value]:
            starts = [b.add(source, b.mul(step_z, word(z))) for z in range(count)]
            taps = [_load(b, _DOUBLES, start, half) for start in starts]
            # Rounded once, after all three axes.
            return [b.fptrunc(point, _FLOATS) for point in points_line(b, taps)]

        for number, (low, high) in enumerate(zip(points(0), points(1), strict=True)):
            place = float_pointer(b, b.add(target, b.mul(step, word(number))))
            # Whole vectors, aligned to their bytes: see `streaming_stores`. Caches would read each line before
            # it is written, and hold what is read much later.
            stream_vector(b, _joined(b, low, high), place)
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 4), codegen


def _joined(b: ir.IRBuilder, low: Value, high: Value) -> Value:
    """A vector of two halves."""
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    return b.shuffle_vector(low, high, lanes)


@inlined
def _transformed(
    form: Any, source: int, tap: int, vectors: int, planes: int, target: int, point: int
) -> None:
    """Write the points of vectors that lie one behind the other; `tap`, `point`: bytes from one to the next."""
    row, plane = form.taps_x * tap, form.taps_y * form.taps_x * tap
    columns = form.points_x * form.points_y
    for first in range(0, vectors, GROUP):
        count = min(GROUP, vectors - first)
        for number in range(count):
            # Taps along z of a vector become as many planes, which stand in SLOTs of each column.
            for z in range(form.taps_z):
                here = source + (first + number) * VECTOR_BYTES + z * plane
                there = planes + z * SLOT + number * DOUBLES_BYTES
                points_plane(form, here, row, tap, there, COLUMN)
        # Column by column: the points of a column along z are `columns` points apart, and all vectors of a group
        # are written side by side.
        for column in range(columns):
            for number in range(count):
                here = planes + column * COLUMN + number * DOUBLES_BYTES
                there = target + column * point + (first + number) * VECTOR_BYTES
                points_depth(form, here, SLOT, there, columns * point)


def _filters(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_filters{name_of(taps)}")
    def winograd_filters(args: Any, worker: int) -> None:
        """Write the points of some vectors of filters. Words: see the module."""
        planes = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        tap, point = 4 * args[AT.source_tap], 4 * args[AT.target_point]
        _transformed(form, args[AT.source], tap, args[AT.vectors], planes, args[AT.target], point)
        # Streaming stores are not ordered by the release that ends a task: only a fence makes them visible to the
        # next one.
        fence_seq_cst()

    return winograd_filters


@inlined
def _gathered(
    taps: int,
    source: int,
    inputs: int,
    tap_bytes: int,
    row: int,
    outputs: int,
    target: int,
    step: int,
) -> None:
    """Vectors [tap][output] of a block of inputs, flipped, `step` bytes from output to output.

    `tap_bytes`, `row`: bytes from tap to tap and from input to input.
    """
    loose = scratch_tile()
    for tap in range(taps):
        # From the last tap backwards: the data gradient's filters are flipped along all axes.
        here, into = source + (taps - 1 - tap) * tap_bytes, target + tap * TILE
        # A whole tile is transposed from where it lies; others are filled up with zeros first.
        if outputs == LANES and inputs == LANES:
            transpose_tile(here, row, into, step)
        else:
            load_tile(here, row, inputs, outputs, loose)
            transpose_tile(loose, VECTOR_BYTES, into, step)


@inlined
def _exchanged(form: Any, args: Any, planes: int) -> None:
    at = EXCHANGED
    taps = form.taps_z * form.taps_y * form.taps_x
    tile, point = planes + PLANES, 4 * args[at.target_point]
    blocks = cover(args[at.inputs], LANES)
    # Blocks lie side by side in the target: a vector of each input block for each output.
    step = blocks * VECTOR_BYTES
    # Outputs in parts of LANES, which is what a transposed tile has.
    for first in range(0, args[at.outputs], LANES):
        count = min(LANES, args[at.outputs] - first)
        for block in range(blocks):
            before = block * LANES
            source = args[at.source] + 4 * (taps * before * args[at.width] + first)
            inputs, into = min(LANES, args[at.inputs] - before), tile + block * VECTOR_BYTES
            row = 4 * args[at.width]
            tap_bytes, row = (row, taps * row) if args[at.apart] else (inputs * row, row)
            _gathered(taps, source, inputs, tap_bytes, row, count, into, step)
        target = args[at.target] + first * step
        _transformed(form, tile, TILE, count * blocks, planes, target, point)


def _exchanging(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(EXCHANGED, name=f"winograd_exchanged{name_of(taps)}")
    def winograd_exchanged(args: Any, worker: int) -> None:
        """Write the points of some filters as the data gradient reads them. Words: see the module."""
        at = EXCHANGED
        _exchanged(form, args, args[at.scratch] + 4 * worker * args[at.scratch_worker])
        fence_seq_cst()

    return winograd_exchanged


FILTERS = {taps: _filters(taps) for taps in FORMS}
EXCHANGING = {taps: _exchanging(taps) for taps in FORMS}
"""Kernels by the taps of filters along z, y, x."""
