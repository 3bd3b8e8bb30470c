"""Weight gradient of direct convolution with few channels on one side, which lie planar.

Few inputs: sums of LANES outputs for whole rows of taps of one input channel stay in registers, so that
every vector of the output gradient is loaded once for all of them. Few outputs: sums of LANES inputs
for some taps and all outputs; in the end a tile is transposed from inputs to outputs.

Argument words are those of `weight_gradient`, for one input block and one output group; further

    vectors                     few inputs: vectors of LANES outputs in the group
    source, channels            few inputs: one planar channel, taps along x one float apart, 1
    gradient, gradient_block    few outputs: planar channels, x positions one float apart
    outputs                     few outputs: images, 1 to FEW

Targets are overwritten. The result depends on the slab, not on how the taps are cut into tasks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.weight_gradient import Slab
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.simd.codegen import (
    VECTOR,
    Value,
    by_count,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.transpose import scratch_tile, transpose_tile
from znnpy_kernels.simd.vectors import load, splat, store

# Sums in registers, beside the vectors that are multiplied.
# As forward: filters or gradient vectors and a broadcast take the others.
SUMS = 28 if REGISTERS == 32 else 12
# Wider filters of planar images go by spectra or by `weight_gradient`, whose taps along x take the channels'
# place.
WIDEST = 9  # taps along x for which there is a kernel of few inputs
AT = words(
    "source source_z source_y source_x channels vectors outputs taps_y taps_x tap_z tap_y tap_x "
    "tap_row0 tap_row1 gradient gradient_block gradient_z gradient_y z0 z1 y0 y1 width target",
)


def most_rows(taps_x: int) -> int:
    """Return how many rows of taps of one input channel have sums that fit the registers."""
    return max(1, SUMS // taps_x)


def most_taps(outputs: int) -> int:
    """Return how many taps have sums for so many outputs that fit the registers."""
    return SUMS // outputs


class _TapRows(Slab):
    """Sums of some rows of `taps` taps of one planar input channel, for one vector of outputs."""

    def __init__(
        self, builder: ir.IRBuilder, taps: int, rows: int, step: Value, words: list[Value]
    ) -> None:
        arguments, source, gradient, target, first = words
        super().__init__(builder, AT, [arguments, source, gradient])
        offsets = _offsets(self, builder, first, rows, self.field("taps_y"), ("tap_z", "tap_y"))
        self.taps, self.rows = taps, offsets
        start = float_pointer(builder, target)
        self.targets = [
            moved(builder, start, builder.mul(step, word(index))) for index in range(rows * taps)
        ]

    def products(self, source: Value, gradient: Value) -> list[tuple[Value, Value]]:
        b = self.builder
        vector = load_vector(b, gradient)
        rows = [moved(b, source, offset) for offset in self.rows]
        return [
            (vector, load_broadcast(b, moved(b, row, t))) for row in rows for t in range(self.taps)
        ]


class _Taps(Slab):
    """Sums of some taps of one block of inputs, for each of a few planar outputs."""

    # Planar outputs: one float from position to position.
    gradient_x = 1

    def __init__(self, builder: ir.IRBuilder, outputs: int, taps: int, words: list[Value]) -> None:
        arguments, source, gradient, target, first = words
        super().__init__(builder, AT, [arguments, source, gradient])
        taps_x = self.field("taps_x")
        # Taps are numbered along x, then rows: a division once a block, steps for the rest.
        row, x = builder.udiv(first, taps_x), builder.urem(first, taps_x)
        self.offsets = []
        for _ in range(taps):
            along = builder.mul(x, self.field("tap_x"))
            (offset,) = _offsets(self, builder, row, 1, self.field("taps_y"), ("tap_z", "tap_y"))
            self.offsets.append(builder.add(offset, along))
            x = builder.add(x, word(1))
            end = builder.icmp_signed("==", x, taps_x)
            x, row = builder.select(end, word(0), x), builder.add(row, builder.zext(end, row.type))
        self.outputs = outputs
        start = float_pointer(builder, target)
        self.targets = [moved(builder, start, index * LANES) for index in range(taps * outputs)]

    def products(self, source: Value, gradient: Value) -> list[tuple[Value, Value]]:
        b = self.builder
        # Broadcast outputs and vectors of inputs: LANES inputs are in use though outputs are few.
        voxels = [
            load_broadcast(b, moved(b, gradient, b.mul(self.gradient_block, word(o))))
            for o in range(self.outputs)
        ]
        vectors = [load_vector(b, moved(b, source, offset)) for offset in self.offsets]
        return [(vector, voxel) for vector in vectors for voxel in voxels]


def _offsets(
    slab: Slab, b: ir.IRBuilder, first: Value, rows: int, taps_y: Value, names: tuple[str, str]
) -> list[Value]:
    """Floats from the first tap to tap rows `first`, `first` + 1, ..."""
    tap_z, tap_y = (slab.field(name) for name in names)
    found = []
    for row in range(rows):
        number = b.add(first, word(row))
        z, y = b.udiv(number, taps_y), b.urem(number, taps_y)
        found.append(b.add(b.mul(z, tap_z), b.mul(y, tap_y)))
    return found


@intrinsic(prefer_literal=True)
def _tap_rows(
    typingctx: Any,
    taps: Any,
    arguments: Any,
    source: Any,
    gradient: Any,
    target: Any,
    first: Any,
    step: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """Sum tap rows first..first + rows, to targets `step` floats apart; see `_TapRows`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        def emit(count: int) -> None:
            slab = _TapRows(builder, taps.literal_value, count, args[6], list(args[1:6]))
            slab.emit(slab.targets)

        # A case for each number of rows, as in `weight_gradient`.
        by_count(builder, args[7], range(1, most_rows(taps.literal_value) + 1), emit)
        return context.get_dummy_value()

    return types.void(taps, arguments, *[types.int64] * 6), codegen


@intrinsic(prefer_literal=True)
def _taps(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    source: Any,
    gradient: Any,
    target: Any,
    first: Any,
    count: Any,
) -> tuple[Signature, Any]:
    """Sum taps first..first + count, to [tap][output][lane of inputs] at `target`; see `_Taps`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        def emit(count: int) -> None:
            slab = _Taps(builder, outputs.literal_value, count, list(args[1:6]))
            slab.emit(slab.targets)

        by_count(builder, args[6], range(1, most_taps(outputs.literal_value) + 1), emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 5), codegen


@intrinsic
def _scratch_sums(typingctx: Any) -> Any:
    """Address of room for SUMS vectors on the stack of the calling kernel."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(VECTOR, SUMS))
        # A cache line, as vectors are stored whole.
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), codegen


@njit(inline="always")
def _few_inputs(taps: int, args: Any) -> None:
    """Sum all rows of taps of a task, vector by vector of outputs, in parts of nearly equal size."""
    count = args[AT.tap_row1] - args[AT.tap_row0]
    most = max(1, SUMS // taps)
    # Parts of nearly equal size: a rest of one row would have too few sums to hide latency.
    parts = (count + most - 1) // most
    step = args[AT.vectors] * LANES
    for vector in range(args[AT.vectors]):
        gradient = args[AT.gradient] + 4 * vector * args[AT.gradient_block]
        first = args[AT.tap_row0]
        for part in range(parts):
            rows = 1  # the rest divided by the remaining parts, rounded up
            while rows * (parts - part) < args[AT.tap_row1] - first:
                rows += 1
            target = args[AT.target] + 4 * (first * taps * step + vector * LANES)
            _tap_rows(taps, args, args[AT.source], gradient, target, first, step, rows)
            first += rows


@njit(inline="always")
def _few_outputs(outputs: int, args: Any, sums: int, tile: int) -> None:
    """Sum all taps of a task, some at a time; sums go through a tile to the packed rows."""
    first, end = args[AT.tap_row0] * args[AT.taps_x], args[AT.tap_row1] * args[AT.taps_x]
    row = VECTOR_BYTES
    while first < end:
        # As many taps as registers hold for all outputs.
        count = min(SUMS // outputs, end - first)
        _taps(outputs, args, args[AT.source], args[AT.gradient], sums, first, count)
        for tap in range(count):
            for o in range(LANES):
                store(tile + row * o, splat(0.0))  # packed rows have zeros for missing outputs
            for o in range(outputs):
                store(tile + row * o, load(sums + row * (tap * outputs + o)))
            # From [output][lane of inputs] to [input][lane of outputs], as packed filters are.
            transpose_tile(tile, row, tile, row)
            target = args[AT.target] + row * (first + tap) * args[AT.channels]
            for i in range(args[AT.channels]):
                store(target + row * i, load(tile + row * i))
        first += count


def _of_inputs(taps: int) -> Kernel:
    """Declare the kernel for one planar input channel and so many taps along x."""

    @kernel(AT, name=f"few_inputs_gradient_{taps}")
    def few_inputs_gradient(args: Any, worker: int) -> None:
        """One planar input channel. Words: see the module."""
        _few_inputs(taps, args)

    return few_inputs_gradient


def _of_outputs(outputs: int) -> Kernel:
    """Declare the kernel for so many planar output channels."""

    @kernel(AT, name=f"few_outputs_gradient_{outputs}")
    def few_outputs_gradient(args: Any, worker: int) -> None:
        """A few planar output channels, a block of inputs. Words: see the module."""
        _few_outputs(outputs, args, _scratch_sums(), scratch_tile())

    return few_outputs_gradient


# By taps along x, and by number of outputs, from 1.
FEW_INPUTS: tuple[Kernel, ...] = tuple(_of_inputs(taps) for taps in range(1, 10))
FEW_OUTPUTS: tuple[Kernel, ...] = tuple(_of_outputs(outputs) for outputs in range(1, 9))
