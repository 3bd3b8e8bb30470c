"""Forward pass of filters of three taps along x from few planar inputs: the first layer of many nets.

From one image such a layer has nine or 27 products for an output, fewer than what `direct.forward` does for each
register block beside them. Here what is known of a row is worked out once, and the three taps along x need no loop.
Words are those of `direct.forward`, for a planar source of neighbouring voxels, taps side by side along x that all meet
voxels or zeros around them, and no lattices. Sums have the same order as there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.correlation import RegisterBlock, rows_of, taps_inside
from znnpy_kernels.direct.forward import AT, POSITIONS, Block
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.simd.codegen import (
    Value,
    add_outer,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    word,
)
from znnpy_kernels.simd.lanes import LANES

TAPS_X = 3
# Register blocks ahead whose lines are asked for, beside the next one: outputs are most of what memory moves.
AHEAD = 4


class _Block(Block):
    """Register blocks whose taps are planes and rows of three."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        *places, self.images, z0, z1, y0, y1 = words
        none = word(0)
        RegisterBlock.__init__(
            self, builder, AT, outputs, [*places, none, z0, z1, y0, y1, none, none]
        )

    def along(self) -> Value:
        return word(LANES)

    def ask_ahead(self, start: Value, positions: int, step: Value, *, write: bool) -> None:
        further = moved(self.builder, start, AHEAD * positions * LANES)
        super().ask_ahead(further, positions, step, write=write)

    def input_blocks(self, sums: list[Value]) -> list[Value]:
        b, row = self.builder, TAPS_X * self.outputs * LANES
        tap_z, tap_y = self.field("tap_z"), self.field("tap_y")
        plane = b.mul(self.field("taps_y"), word(row))
        image = b.mul(self.field("taps_z"), plane)
        # Steps of source and filters from image to image, plane to plane, row to row; which of them.
        axes = [
            (word(0), self.images, self.field("source_block"), image),
            (self.z0, self.z1, tap_z, plane),
            (self.y0, self.y1, tap_y, word(row)),
        ]

        def along(axis: int, source: Value, filters: Value, sums: list[Value]) -> list[Value]:
            if axis == len(axes):
                return self._row(source, filters, sums)
            first, end, tap, step = axes[axis]

            def turn(_: Value, carried: list[Value]) -> list[Value]:
                source, filters, *sums = carried
                sums = along(axis + 1, source, filters, sums)
                return [moved(b, source, tap), moved(b, filters, step), *sums]

            start = [moved(b, source, b.mul(first, tap)), moved(b, filters, b.mul(first, step))]
            return counted_loop(b, b.sub(end, first), [*start, *sums], turn, maybe_empty=True)[2:]

        return along(0, self.source, float_pointer(b, self.field("filters")), sums)

    def _row(self, source: Value, filters: Value, sums: list[Value]) -> list[Value]:
        """Add the taps of a row."""
        b, positions = self.builder, range(len(sums) // self.outputs)
        for tap in range(TAPS_X):
            vectors = range(tap * self.outputs, (tap + 1) * self.outputs)
            weights = [load_vector(b, moved(b, filters, j * LANES)) for j in vectors]
            sums = add_outer(b, weights, (moved(b, source, t + tap) for t in positions), sums)
        return sums


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    source: Any,
    target: Any,
    output: Any,
    images: Any,
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of `positions` <= POSITIONS[outputs - 1] voxels; see `_Block`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(builder, outputs.literal_value, list(args[1:-1]))
        numbers = range(1, POSITIONS[outputs.literal_value - 1] + 1)
        by_count(builder, args[-1], numbers, block.emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 9), codegen


@njit(inline="always")
def _row(
    outputs: int, dense: int, args: Any, z: int, y: int, place: int, first: int, z0: int, z1: int
) -> None:
    """Compute one output row, in register blocks of nearly equal size; along z the taps z0..z1."""
    place_y = y + args[AT.origin_y]
    y0, y1 = taps_inside(place_y, place_y, args[AT.shift_y], args[AT.limit_y], args[AT.taps_y])
    source = args[AT.source] + 4 * (place * args[AT.source_z] + place_y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    width, most = args[AT.width], POSITIONS[outputs - 1]
    parts = (width + most - 1) // most
    for part in range(parts):
        begin, end = part * width // parts, (part + 1) * width // parts
        _register_block(
            outputs,
            args,
            source + 4 * begin,
            target + 4 * begin * LANES,
            output + 4 * begin * LANES,
            args[AT.channels],
            z0,
            z1,
            y0,
            y1,
            end - begin,
        )


_rows = rows_of(AT, _row)


def _planar(outputs: int) -> Kernel:
    """Declare the kernel for so many output blocks."""

    @kernel(AT, name=f"direct_planar_source_{outputs}")
    def planar(args: Any, worker: int) -> None:
        """All rows of a group of output blocks. Words: see the module."""
        _rows(outputs, 1, args)

    return planar


KERNELS = tuple(_planar(outputs) for outputs in (1, 2))
"""By number of output blocks, less 1."""
