"""Direct convolution with filters of one tap: a product of matrices, voxels by channels, and its data gradient.

What is done for each register block of `direct.forward` beside products takes as long as ten of its turns, and with one
tap there are but as many turns as input channels. Here words are read, and taps are found, once for a run of register
blocks; rows that lie one behind the other are one run.

Argument words are those of `direct.forward`, for a source of blocks, neighbouring voxels, and taps that all lie inside:
`source` is the voxel that output (0, 0, 0) reads. Sums have the same order as there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.correlation import RegisterBlock
from znnpy_kernels.direct.epilogue import EPILOGUE
from znnpy_kernels.direct.forward import AT, POSITIONS, Block
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.codegen import (
    Value,
    add_outer,
    argument,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    word,
)
from znnpy_kernels.simd.lanes import LANES

_READ = ("source_block", "target_block", "filters", "accumulate", *EPILOGUE._fields)


class _Run(Block):
    """Register blocks side by side; words of the kernel are read once for all of them."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        arguments, *places, self.blocks, self.rest = words
        RegisterBlock.__init__(self, builder, AT, outputs, [arguments, *places, *[word(0)] * 7])
        self._begin = [self.source, self.target, self.output]
        self._fields = {name: argument(builder, arguments, getattr(AT, name)) for name in _READ}
        self._fields["lattice_x"] = word(1)

    def field(self, name: str) -> Value:
        return self._fields[name]

    def emit_run(self, positions: int, count: Value) -> None:
        """Compute and store `count` register blocks of so many positions."""

        def turn(_: Value, carried: list[Value]) -> list[Value]:
            self.source, self.target, self.output = carried
            self.emit(positions)
            return [moved(self.builder, place, positions * LANES) for place in carried]

        counted_loop(self.builder, count, self._begin, turn)

    def input_blocks(self, sums: list[Value]) -> list[Value]:
        b = self.builder
        carried = [self.source, float_pointer(b, self.field("filters")), *sums]
        whole = counted_loop(b, self.blocks, carried, self._whole_block, maybe_empty=True)
        return counted_loop(b, self.rest, whole, self._channel, maybe_empty=True)[2:]

    def _whole_block(self, _: Value, carried: list[Value]) -> list[Value]:
        b, (source, *_rest) = self.builder, carried
        voxels = (len(carried) - 2) // self.outputs * LANES
        # Blocks are far apart: more streams than the CPU sees coming by itself.
        self.ask_lines(moved(b, source, voxels), voxels)
        # A known number of turns, which need no loop where vectors have 8 lanes.
        filters, *sums = counted_loop(b, word(LANES), carried, self._channel)[1:]
        return [moved(b, source, self.field("source_block")), filters, *sums]

    def _channel(self, _: Value, carried: list[Value]) -> list[Value]:
        """Add one input channel."""
        b, (source, filters, *sums) = self.builder, carried
        weights = [load_vector(b, moved(b, filters, j * LANES)) for j in range(self.outputs)]
        voxels = (moved(b, source, t * LANES) for t in range(len(sums) // self.outputs))
        new = add_outer(b, weights, voxels, sums)
        return [moved(b, source, 1), moved(b, filters, self.outputs * LANES), *new]


@intrinsic(prefer_literal=True)
def _run(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    source: Any,
    target: Any,
    output: Any,
    blocks: Any,
    rest: Any,
    positions: Any,
    count: Any,
) -> tuple[Signature, Any]:
    """`count` register blocks, one at least, of `positions` <= POSITIONS[outputs - 1] voxels; see `_Run`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        run = _Run(builder, outputs.literal_value, list(args[1:-2]))
        numbers = range(1, POSITIONS[outputs.literal_value - 1] + 1)
        by_count(builder, args[-2], numbers, lambda number: run.emit_run(number, args[-1]))
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 7), codegen


@njit(inline="always")
def _row(outputs: int, args: Any, z: int, y: int, width: int) -> None:
    """Voxels of a row, or of some that lie one behind the other, in register blocks of nearly equal size."""
    source = args[AT.source] + 4 * (z * args[AT.source_z] + y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    parts = (width + POSITIONS[outputs - 1] - 1) // POSITIONS[outputs - 1]
    positions = 1  # rounded up; a loop, as a division by a variable might raise
    while positions * parts < width:
        positions += 1
    # So many parts are one shorter.
    short = positions * parts - width
    for count in (parts - short, short):
        if count > 0:
            _run(
                outputs,
                args,
                source,
                target,
                output,
                args[AT.channels] // LANES,
                args[AT.channels] % LANES,
                positions,
                count,
            )
        moved = 4 * LANES * positions * count
        source, target, output = source + moved, target + moved, output + moved
        positions -= 1


@njit(inline="always")
def _follow(args: Any, width: int) -> Any:
    """Whether rows of so many voxels lie one behind the other, everywhere."""
    row = width * LANES
    same = args[AT.source_y] == row and args[AT.target_y] == row
    return same and (args[AT.output] == 0 or args[AT.output_y] == row)


def _one_tap(outputs: int) -> Kernel:
    """Declare the kernel for so many output blocks."""

    @kernel(AT, name=f"direct_one_tap_{outputs}")
    def one_tap(args: Any, worker: int) -> None:
        """All rows of a group of output blocks. Words: see the module."""
        # Overwritten by the task, so zeros first; its rows are added in their order.
        if args[AT.bias_gradient]:
            for lane in range(outputs * LANES):
                floats(args[AT.bias_gradient])[lane] = 0.0
        width, rows = args[AT.width], args[AT.y1] - args[AT.y0]
        if _follow(args, width):
            width, rows = width * rows, 1
        for z in range(args[AT.z0], args[AT.z1]):
            for y in range(args[AT.y0], args[AT.y0] + rows):
                _row(outputs, args, z, y, width)

    return one_tap


KERNELS = tuple(_one_tap(outputs) for outputs in (1, 2))
"""By number of output blocks, less 1."""
