"""Direct convolution where each voxel meets one tap: a product of matrices, voxels by channels, and its data gradient.

Filters have one tap, or voxels lie on as many lattices as filters have taps, as where layers grow by strides as long as
their filters. What is done for each register block of `direct.forward` beside products takes as long as ten of its
turns, and with one tap there are but as many turns as input channels. Here words are read, and taps are found, once for
a run of register blocks; rows that lie one behind the other are one run.

Argument words are those of `direct.forward`, for a source of blocks, neighbouring voxels, and taps that all lie inside:
along each axis as many as `lattice`, without dilation. Sums have the same order as there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.correlation import (
    RegisterBlock,
    lattice_place,
    lattice_tap,
    lattice_taps,
)
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

_READ = ("source_block", "target_block", "lattice_x", "accumulate", *EPILOGUE._fields)


class _Run(Block):
    """Register blocks side by side; words of the kernel are read once for all of them."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        arguments, *places, filters, last, self.filter_block, self.blocks, self.rest = words
        RegisterBlock.__init__(self, builder, AT, outputs, [arguments, *places, *[word(0)] * 7])
        self._begin = [self.source, self.target, self.output]
        self.filters, self.last = float_pointer(builder, filters), float_pointer(builder, last)
        self._fields = {name: argument(builder, arguments, getattr(AT, name)) for name in _READ}
        self._apart = builder.mul(self._fields["lattice_x"], word(LANES))

    def field(self, name: str) -> Value:
        return self._fields[name]

    def along(self) -> Value:
        return self._apart

    def emit_run(self, positions: int, count: Value) -> None:
        """Compute and store `count` register blocks of so many positions."""

        b = self.builder
        steps = [word(positions * LANES), *[b.mul(self._apart, word(positions))] * 2]

        def turn(_: Value, carried: list[Value]) -> list[Value]:
            self.source, self.target, self.output = carried
            self.emit(positions)
            return [moved(b, place, step) for place, step in zip(carried, steps, strict=True)]

        counted_loop(b, count, self._begin, turn)

    def input_blocks(self, sums: list[Value]) -> list[Value]:
        b = self.builder
        carried = [self.source, self.filters, *sums]
        source, _, *sums = counted_loop(
            b, self.blocks, carried, self._whole_block, maybe_empty=True
        )
        carried = [source, self.last, *sums]
        return counted_loop(b, self.rest, carried, self._channel, maybe_empty=True)[2:]

    def _whole_block(self, _: Value, carried: list[Value]) -> list[Value]:
        b, (source, filters, *_rest) = self.builder, carried
        voxels = (len(carried) - 2) // self.outputs * LANES
        # Blocks are far apart: more streams than the CPU sees coming by itself.
        self.ask_lines(moved(b, source, voxels), voxels)
        # A known number of turns, which need no loop where vectors have 8 lanes.
        sums = counted_loop(b, word(LANES), carried, self._channel)[2:]
        source = moved(b, source, self.field("source_block"))
        return [source, moved(b, filters, self.filter_block), *sums]

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
    filters: Any,
    last: Any,
    filter_block: Any,
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

    return types.void(outputs, arguments, *[types.int64] * 10), codegen


@njit(inline="always")
def _row(outputs: int, args: Any, z: int, y: int, place: int, first: int, width: int) -> None:
    """One row, lattice by lattice; plane `place` of the source, and tap `first` along z."""
    here, apart, lattice = y + args[AT.origin_y], args[AT.apart_y], args[AT.lattice_y]
    first_y = lattice_tap(here, apart, lattice, args[AT.taps_y])
    place_y = lattice_place(here, apart, lattice, first_y)
    source = args[AT.source] + 4 * (place * args[AT.source_z] + place_y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    apart, lattice = args[AT.apart_x], args[AT.lattice_x]
    for x in range(min(lattice, width)):
        first_x = lattice_tap(x + args[AT.origin_x], apart, lattice, args[AT.taps_x])
        place_x = lattice_place(x + args[AT.origin_x], apart, lattice, first_x)
        by = 4 * LANES * x
        _lattice_row(
            outputs,
            args,
            source + 4 * LANES * place_x,
            target + by,
            output + by,
            (first * args[AT.taps_y] + first_y) * args[AT.taps_x] + first_x,
            lattice_taps(x, lattice, width),
        )


@njit(inline="always")
def _lattice_row(
    outputs: int, args: Any, source: int, target: int, output: int, tap: int, width: int
) -> None:
    """Voxels of a lattice of a row, or of rows one behind the other, in register blocks of nearly equal size."""
    taps, vectors = args[AT.taps_z] * args[AT.taps_y] * args[AT.taps_x], 4 * outputs * LANES
    blocks, rest = args[AT.channels] // LANES, args[AT.channels] % LANES
    # Pieces of filters are [block][tap][channel]; the last block may have fewer channels.
    filters = args[AT.filters] + tap * LANES * vectors
    last = args[AT.filters] + (blocks * taps * LANES + tap * rest) * vectors
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
                filters,
                last,
                taps * LANES * outputs * LANES,
                blocks,
                rest,
                positions,
                count,
            )
        moved = 4 * LANES * positions * count
        source += moved
        target, output = target + moved * args[AT.lattice_x], output + moved * args[AT.lattice_x]
        positions -= 1


@njit(inline="always")
def _follow(args: Any, width: int) -> Any:
    """Whether rows of so many voxels lie one behind the other, everywhere, and meet the same tap."""
    if args[AT.lattice_z] * args[AT.lattice_y] * args[AT.lattice_x] > 1:
        return False
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
            here, apart, lattice = z + args[AT.origin_z], args[AT.apart_z], args[AT.lattice_z]
            first = lattice_tap(here, apart, lattice, args[AT.taps_z])
            place = lattice_place(here, apart, lattice, first)
            for y in range(args[AT.y0], args[AT.y0] + rows):
                _row(outputs, args, z, y, place, first, width)

    return one_tap


KERNELS = tuple(_one_tap(outputs) for outputs in (1, 2))
"""By number of output blocks, less 1."""
