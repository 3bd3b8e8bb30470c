"""Direct transposed convolution with a stride along x into few output channels, which lie planar.

As `few_channels`, whose argument words these are, along each lattice of x: the outputs that meet the same taps lie
`lattice_x` floats apart, and their voxels of the source side by side. No zeros stand round the rows that are read.
Filters are those packed for a planar source: of the convolution that goes the other way, which reads the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.correlation import (
    lattice_place,
    lattice_tap,
    lattice_taps,
    rows_of,
    taps_inside,
)
from znnpy_kernels.direct.few_channels import AT, SUMS, FewBlock, position_counts
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    float_pointer,
    moved,
    word,
)
from znnpy_kernels.simd.lanes import LANES


class _Block(FewBlock):
    """Neighbouring positions lie `lattice_x` floats apart in memory."""

    def load(self, place: Value, positions: int) -> Value:
        found = ZERO_VECTOR
        for lane, at in enumerate(self._apart(place, positions)):
            found = self.builder.insert_element(found, self.builder.load(at), _lane(lane))
        return found

    def store(self, value: Value, place: Value, positions: int) -> None:
        for lane, at in enumerate(self._apart(place, positions)):
            self.builder.store(self.builder.extract_element(value, _lane(lane)), at)

    def input_blocks(self, positions: int) -> list[Value]:
        """As in `few_channels`, but two blocks at each tap: a lattice has a few taps, and loops over them cost time."""
        b, taps_x, source_block = self.builder, self.field("taps_x"), self.field("source_block")
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), taps_x)

        def some(count: int) -> Callable[[Value, list[Value]], list[Value]]:
            width = word(count * LANES)

            def tap(source: Value, filters: Value, sums: list[Value]) -> list[Value]:
                for block in range(count):
                    here = moved(b, source, b.mul(source_block, word(block)))
                    weights = moved(b, filters, block * LANES)
                    sums = self.add_tap(b.mul(taps, width), here, weights, sums)
                return sums

            def body(_: Value, carried: list[Value]) -> list[Value]:
                source, filters, *sums = carried
                sums = self.taps(source, filters, width, taps_x, sums, tap)
                beyond = b.mul(b.mul(taps, width), word(self.outputs))
                source = moved(b, source, b.mul(source_block, word(count)))
                return [source, moved(b, filters, beyond), *sums]

            return body

        carried = [self.source, float_pointer(b, self.field("filters"))]
        carried += [ZERO_VECTOR] * (positions * self.outputs)
        pairs, alone = b.lshr(self.blocks, word(1)), b.and_(self.blocks, word(1))
        carried = counted_loop(b, pairs, carried, some(2), maybe_empty=True)
        # The last of an odd number lies alone.
        return counted_loop(b, alone, carried, some(1), maybe_empty=True)[2:]

    def _apart(self, place: Value, positions: int) -> list[Value]:
        b, step = self.builder, self.field("lattice_x")
        return [moved(b, place, b.mul(step, word(lane))) for lane in range(positions)]


def _lane(number: int) -> Value:
    return ir.Constant(ir.IntType(32), number)


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    source: Any,
    target: Any,
    output: Any,
    blocks: Any,
    first: Any,
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    x0: Any,
    x1: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of some of `position_counts`; see `_Block`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(builder, outputs.literal_value, list(args[1:-1]))
        by_count(builder, args[-1], position_counts(outputs.literal_value), block.emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 12), codegen


@njit(inline="always")
def _row(
    outputs: int, dense: int, args: Any, z: int, y: int, place: int, first: int, z0: int, z1: int
) -> None:
    """Compute one output row, lattice by lattice; along z the taps z0..z1 of those from `first` on."""
    here, apart, lattice = y + args[AT.origin_y], args[AT.apart_y], args[AT.lattice_y]
    first_y = lattice_tap(here, apart, lattice, args[AT.taps_y])
    place_y = lattice_place(here, apart, lattice, first_y)
    taps = lattice_taps(first_y, args[AT.skip_y], args[AT.taps_y])
    y0, y1 = taps_inside(place_y, place_y, args[AT.shift_y], args[AT.limit_y], taps)
    source = args[AT.source] + 4 * (place * args[AT.source_z] + place_y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    tap_row = (first * args[AT.taps_y] + first_y) * args[AT.taps_x]
    some = z0 < z1 and y0 < y1
    for start in range(min(args[AT.lattice_x], args[AT.width])):
        _lattice_row(outputs, args, start, source, target, output, tap_row, some, z0, z1, y0, y1)


@njit(inline="always")
def _lattice_row(
    outputs: int,
    args: Any,
    start: int,
    source: int,
    target: int,
    output: int,
    tap_row: int,
    some: bool,
    z0: int,
    z1: int,
    y0: int,
    y1: int,
) -> None:
    """Voxels `start`, `start` + lattice, ... of a row, in register blocks; `tap_row`: its first tap's."""
    shift, limit, lattice = args[AT.shift_x], args[AT.limit_x], args[AT.lattice_x]
    blocks = (args[AT.channels] + LANES - 1) // LANES
    at, apart = start + args[AT.origin_x], args[AT.apart_x]
    first = lattice_tap(at, apart, lattice, args[AT.taps_x])
    taps = lattice_taps(first, args[AT.skip_x], args[AT.taps_x])
    origin = lattice_place(at, apart, lattice, first)
    # From the first to the last place at which all taps meet voxels, which need not be looked for one by one.
    beyond = (taps - 1) * shift
    low, high = max(0, -beyond), limit - 1 - max(0, beyond)
    x, width = 0, lattice_taps(start, lattice, args[AT.width])
    while x < width:
        positions = min(LANES, SUMS // outputs)
        while positions > width - x:
            positions //= 2
        here = x + origin
        last = here + positions - 1
        x0, x1 = 0, taps
        if here < low or last > high:
            x0, x1 = taps_inside(here, here, shift, limit, taps)
            # The same taps for all positions: what others meet lies outside of the row. Between two that meet none
            # some may meet one, where taps are further apart than the row is long.
            while positions > 1 and (
                taps_inside(last, last, shift, limit, taps) != (x0, x1)
                or taps_inside(here, last, shift, limit, taps) != (x0, x1)
            ):
                positions //= 2
                last = here + positions - 1
        place = 4 * (start + x * lattice)
        _register_block(
            outputs,
            args,
            source + 4 * here * LANES,
            target + place,
            output + place,
            # No tap meets the block: it becomes bias and function of 0.
            blocks if some and x0 < x1 else 0,
            tap_row + first,
            z0,
            z1,
            y0,
            y1,
            x0,
            x1,
            positions,
        )
        x += positions


_rows = rows_of(AT, _row)


def _spread(outputs: int) -> Kernel:
    """Declare the kernel for so many output channels."""

    @kernel(AT, name=f"direct_few_spread_{outputs}")
    def spread(args: Any, worker: int) -> None:
        """All rows of a few output channels. Words: see the module."""
        _rows(outputs, 1, args)

    return spread


MOST = LANES // 2  # outputs: of more, lanes over outputs take fewer products
# By number of output channels, from 1.
KERNELS: tuple[Kernel, ...] = tuple(_spread(outputs) for outputs in range(1, MOST + 1))


def spread_kernel(outputs: int) -> Kernel:
    """Return the kernel for 1 to MOST output channels."""
    return KERNELS[outputs - 1]
