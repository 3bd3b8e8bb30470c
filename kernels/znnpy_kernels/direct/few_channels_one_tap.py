"""Forward pass of filters of one tap into few output channels, which lie planar: the last layer of many nets.

Of such a layer `few_channels` spends ten times as long on loops over taps, masks of lanes and sums over lanes as on
products. Here a register block has whole vectors of positions, which need no masks, in parts of as many positions as
registers have sums for; words and values are those of `few_channels`, bit by bit, for a source without lattices and
without rows of zeros that are left out. There is no bias gradient.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.few_channels import AT, FEW, SUMS, FewBlock
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    float_pointer,
    moved,
    shuffled,
    word,
)
from znnpy_kernels.simd.lanes import LANES

# Whole vectors, then halves as a row ends.
COUNTS = [LANES >> half for half in range(LANES.bit_length())]


class _Point(FewBlock):
    """Sums of whole vectors of positions, part by part."""

    def made(self, positions: int) -> list[Value]:
        most = max(count for count in COUNTS if count * self.outputs <= SUMS)
        part = min(positions, most)
        found: list[Value] = []
        for first in range(0, positions, part):
            sums = self._over_blocks(moved(self.builder, self.source, first * LANES), part)
            totals = self.totals(sums, part)
            # Totals of a part are in its lanes already, as they are repeated over all of them.
            own = [lane + LANES * (first <= lane < first + part) for lane in range(LANES)]
            found = [
                shuffled(self.builder, before, new, own)
                for before, new in zip(found or totals, totals, strict=True)
            ]
        return found

    def _over_blocks(self, source: Value, positions: int) -> list[Value]:
        """Vectors of partial sums of some positions, output by output."""
        b, pair = self.builder, 2 * self.outputs * LANES
        source_block = self.field("source_block")

        # Filters of two blocks lie side by side, output by output; the last of an odd number lies alone.
        def two(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            for number in range(2):
                weights = moved(b, filters, number * LANES)
                sums = self.add_tap(word(2 * LANES), source, weights, sums)
                source = moved(b, source, source_block)
            return [source, moved(b, filters, pair), *sums]

        def last(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            return [source, filters, *self.add_tap(word(LANES), source, filters, sums)]

        filters = float_pointer(b, self.field("filters"))
        carried = [source, filters, *[ZERO_VECTOR] * (positions * self.outputs)]
        carried = counted_loop(b, b.lshr(self.blocks, word(1)), carried, two, maybe_empty=True)
        return counted_loop(b, b.and_(self.blocks, word(1)), carried, last, maybe_empty=True)[2:]


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    source: Any,
    target: Any,
    output: Any,
    blocks: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of some of `COUNTS`; see `_Point`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Point(builder, outputs.literal_value, [*args[1:-1], *[word(0)] * 7])
        by_count(builder, args[-1], COUNTS, block.emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 5), codegen


@njit(inline="always")
def _row(outputs: int, args: Any, source: int, target: int, output: int) -> None:
    """Compute one output row."""
    blocks = (args[AT.channels] + LANES - 1) // LANES
    x, positions = 0, LANES
    while x < args[AT.width]:
        while positions > args[AT.width] - x:
            positions //= 2
        here = source + 4 * x * LANES
        _register_block(outputs, args, here, target + 4 * x, output + 4 * x, blocks, positions)
        x += positions


def _one_tap(outputs: int) -> Kernel:
    """Declare the kernel for so many output channels."""

    @kernel(AT, name=f"direct_few_one_tap_{outputs}")
    def one_tap(args: Any, worker: int) -> None:
        """All rows of a few output channels. Words: see the module."""
        for z in range(args[AT.z0], args[AT.z1]):
            for y in range(args[AT.y0], args[AT.y1]):
                source = args[AT.source] + 4 * (z * args[AT.source_z] + y * args[AT.source_y])
                target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
                output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
                _row(outputs, args, source, target, output)

    return one_tap


KERNELS = tuple(_one_tap(outputs) for outputs in range(1, FEW + 1))
"""By number of output channels, less 1."""
