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

Points are ordered [z][x][y], `point_bytes` from each other, each [input][output lane]; those of exchanged filters,
which are flipped as well, [output][input lane]. Tasks over disjoint targets may run concurrently.

Axis z goes first, a plane of points after the other: nothing but taps is read twice, and what lies between stays in
registers. The points of a plane, which lie far apart, are collected in the L1 cache for a group of vectors and written
in whole cache lines. They pass by the caches, which would read them first. Scratch of a worker, in this order: points
of a plane [x][y][vector]; vectors whose lanes lay apart [tap][vector].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.atomics import fence_seq_cst
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    FLOAT,
    Value,
    broadcast,
    float_pointer,
    load_vector,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.streaming_stores import stream
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, transpose_tile
from znnpy_kernels.simd.vectors import load
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS, Axis, Triple, axes_of, name_of
from znnpy_kernels.winograd.line_transforms import (
    FILTER_FACTORS,
    SOURCE_ROWS,
    Line,
    filter_line,
)

AT = words("source source_tap vectors target target_point scratch scratch_worker")
EXCHANGED = words("source inputs outputs width apart target target_point scratch scratch_worker")
# 128 bytes, two cache lines, of a point at a time: stores that pass by the caches are fast in whole lines.
GROUP = 128 // VECTOR_BYTES  # vectors at once
SLOT = GROUP * VECTOR_BYTES  # of one point
# Of a plane of points of cubes, the largest.
PLANE = POINTS * POINTS * SLOT
# Room for two blocks of inputs side by side, so that exchanged filters are written in neighbouring lines, too.
TILE = 2 * LANES * VECTOR_BYTES  # from tap to tap of vectors whose lanes lay apart
SCRATCH_FLOATS = (PLANE + TAPS**3 * TILE) // 4
# From this step on, points lie an odd number of groups apart: in steps of whole pages, as 320 -> 320 channels have,
# those that are written side by side would fall on one set of the caches.
ODD_FROM = 4096
Factors = tuple[tuple[float, ...], ...]


def point_bytes(inputs: int, blocks: int) -> Any:
    """Return the bytes from point to point of filters between so many inputs and vectors of outputs."""
    bytes_ = inputs * blocks * VECTOR_BYTES
    return bytes_ if bytes_ < ODD_FROM else ((bytes_ + SLOT - 1) // SLOT | 1) * SLOT


compiled_point_bytes = inlined(point_bytes)


def plane_tap(b: ir.IRBuilder, deep: Axis, factors: Value, start: Value, step: Value) -> Value:
    """Return one point along z of the taps from `start` on, `step` bytes apart; `factors`: of these, doubles."""
    values = [
        load_vector(b, float_pointer(b, b.add(start, b.mul(step, word(z)))))
        for z in range(deep.taps)
    ]
    if deep.taps == 1:
        return values[0]
    taps = [broadcast(b, b.fptrunc(b.extract_value(factors, z), FLOAT)) for z in range(deep.taps)]
    # Terms in the order of `filter_line`; a factor of 1 changes nothing.
    found = b.fmul(values[0], taps[0])
    for z in reversed(range(1, deep.taps)):
        found = multiply_add(b, values[z], taps[z], found)
    return found


def plane_points(
    b: ir.IRBuilder,
    form: Any,
    factors: Value,
    source: Value,
    steps: list[Value],
    line: Line = filter_line,
) -> Iterator[tuple[int, Value]]:
    """Emit one plane of points of the vector of filters at `source`, a few columns at a time; yield them by number.

    Numbers count [x][y]. `factors`: of its taps along z; `steps`: bytes from tap to tap along z, y, x;
    `line`: to points along y and x.
    """
    deep, high, wide = axes_of(form)

    def tap(y: int, x: int) -> Value:
        start = b.add(source, b.add(b.mul(steps[1], word(y)), b.mul(steps[2], word(x))))
        return plane_tap(b, deep, factors, start, steps[0])

    taps = [[tap(y, x) for x in range(wide.taps)] for y in range(high.taps)]
    # Columns of the same sums together: all of them at once do not fit 16 registers.
    for columns in SOURCE_ROWS[wide.taps]:
        rows = [line(b, row) for row in taps]
        for x in columns:
            points = line(b, [row[x] for row in rows])
            yield from enumerate(points, x * high.points)


def _points_plane_of(line: Line) -> Any:
    """The intrinsic `(form, factors, source, step_z, step_y, step_x, target, step)`.

    One plane of points of a vector of filters, [x][y], `step` bytes apart; `factors` of its taps along z.
    """

    def points_plane(
        typingctx: Any,
        form: Any,
        factors: Any,
        source: Any,
        step_z: Any,
        step_y: Any,
        step_x: Any,
        target: Any,
        step: Any,
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, factors, source, *steps, target, step) = builder, args
            for number, value in plane_points(b, form, factors, source, steps, line):
                place = b.add(target, b.mul(step, word(number)))
                store_vector(b, value, float_pointer(b, place))
            return context.get_dummy_value()

        return types.void(form, factors, *[types.int64] * 6), codegen

    return intrinsic(points_plane)


def transformed_of(line: Line, factors: Factors) -> Any:
    """The inlined `(form, source, tap, vectors, plane, target, point)`, whose points are `line`'s, `factors` along z.

    Write the points of vectors that lie one behind the other; `tap`, `point`: bytes from one to the next.
    """
    points_plane = _points_plane_of(line)

    @inlined
    def points_of_plane(
        form: Any, depth: int, source: int, tap: int, vectors: int, target: int, point: int
    ) -> None:
        """Write plane `depth` of the points of vectors that lie one behind the other: [x][y][vector]."""
        row, plane = form.taps_x * tap, form.taps_y * form.taps_x * tap
        for number in range(vectors):
            here, there = source + number * VECTOR_BYTES, target + number * VECTOR_BYTES
            points_plane(form, factors[depth], here, plane, row, tap, there, point)

    @inlined
    def transformed(
        form: Any, source: int, tap: int, vectors: int, plane: int, target: int, point: int
    ) -> None:
        """Write the points of vectors that lie one behind the other."""
        columns = form.points_x * form.points_y
        for first in range(0, vectors, GROUP):
            count, here = min(GROUP, vectors - first), source + first * VECTOR_BYTES
            for depth in range(form.points_z):
                points_of_plane(form, depth, here, tap, count, plane, SLOT)
                into = target + depth * columns * point + first * VECTOR_BYTES
                for column in range(columns):
                    for number in range(count):
                        value = load(plane + column * SLOT + number * VECTOR_BYTES)
                        stream(into + column * point + number * VECTOR_BYTES, value)

    return transformed


def writing_of(transformed: Any) -> Any:
    """The inlined `(form, args, worker)` that writes the points of some vectors of filters as they lie."""

    @inlined
    def write(form: Any, args: Any, worker: int) -> None:
        """Write the points of some vectors of filters. Words: see the module."""
        plane = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        tap, point = 4 * args[AT.source_tap], 4 * args[AT.target_point]
        transformed(form, args[AT.source], tap, args[AT.vectors], plane, args[AT.target], point)
        # Streaming stores are not ordered by the release that ends a task: only a fence makes them visible to the
        # next one.
        fence_seq_cst()

    return write


_transformed = transformed_of(filter_line, FILTER_FACTORS)
_write = writing_of(_transformed)


def _filters(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_filters{name_of(taps)}")
    def winograd_filters(args: Any, worker: int) -> None:
        """Write the points of some vectors of filters. Words: see the module."""
        _write(form, args, worker)

    return winograd_filters


@inlined
def gathered(
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


def exchanging_of(transformed: Any) -> Any:
    """The inlined `(form, args, worker)` that writes the points of some filters as data gradients read them."""

    @inlined
    def exchange(form: Any, args: Any, worker: int) -> None:
        """Write the points of some filters, flipped and exchanged. Words: see the module."""
        at = EXCHANGED
        plane = args[at.scratch] + 4 * worker * args[at.scratch_worker]
        taps = form.taps_z * form.taps_y * form.taps_x
        tile, point = plane + PLANE, 4 * args[at.target_point]
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
                gathered(taps, source, inputs, tap_bytes, row, count, into, step)
            target = args[at.target] + first * step
            transformed(form, tile, TILE, count * blocks, plane, target, point)
        fence_seq_cst()

    return exchange


_exchange = exchanging_of(_transformed)


def _exchanging(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(EXCHANGED, name=f"winograd_exchanged{name_of(taps)}")
    def winograd_exchanged(args: Any, worker: int) -> None:
        """Write the points of some filters as the data gradient reads them. Words: see the module."""
        _exchange(form, args, worker)

    return winograd_exchanged


FILTERS = {taps: _filters(taps) for taps in FORMS}
EXCHANGING = {taps: _exchanging(taps) for taps in FORMS}
"""Kernels by the taps of filters along z, y, x."""
