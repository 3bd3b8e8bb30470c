"""Direct convolution into few output channels, which lie planar: forward, and as data gradient.

A vector holds LANES input channels of one voxel, so no lane is idle for missing outputs. A
register block keeps one vector of partial sums for each of the outputs at some neighbouring x
positions; every filter vector and voxel is loaded once a tap. In the end a tree of shuffles and
additions sums each vector to one number.

Argument words are those of `forward` with another meaning of

    source, source_block        blocked channels, x positions LANES floats apart (no stride along x)
    channels                    input channels
    filters                     [group of one or two input blocks][output][z][y][x][lane of the group]
    target, output              planar channels; `target_block` from channel to channel; x positions one float apart
    bias_gradient               LANES floats for each output channel: sums of every LANES-th position, to be
                                added up (`reduction.sum_lanes`)

Forward, filters are those of `packed_filters.transpose_filters` for planar outputs; in the data gradient those
packed for a planar source.
"""

from __future__ import annotations

from functools import partial
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
    rows_of,
    taps_inside,
)
from znnpy_kernels.direct.forward import AT as DIRECT
from znnpy_kernels.machine.abi import Kernel, declared, kernel, words
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_first,
    load_vector,
    moved,
    multiply_add,
    shuffled,
    store_first,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS

# Channels: their sums by lanes of inputs are exchanged in a square of LANES vectors.
FEW = min(8, LANES)
# Partial sums in registers; the others hold filters and a voxel.
# With FEW outputs, 24 // 8 = 3 positions each.
SUMS = 24 if REGISTERS == 32 else 12

AT = words(*(name for name in declared(DIRECT) if name not in ("source_x", "source_lanes")))


def position_counts(outputs: int) -> list[int]:
    """Return the numbers of x positions that register blocks may have: the most, and halves down to 1."""
    # At most LANES positions, as one vector holds them when they are summed.
    count = min(LANES, SUMS // outputs)
    # Halves, not all numbers: each is a block of code, and rests of rows are short.
    counts = [count]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


class FewBlock(RegisterBlock):
    """A vector holds neighbouring positions of one output channel in its first lanes."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        arguments, source, target, output, self.blocks, *taps = words
        super().__init__(builder, AT, outputs, [arguments, source, target, output, *taps])

    # Positions lie in the lanes of one vector, so there is one place an output.
    def places(self, pointer: Value, block: str, positions: int) -> list[Value]:
        b, stride = self.builder, self.field(block)
        return [moved(b, pointer, b.mul(stride, word(o))) for o in range(self.outputs)]

    def load(self, place: Value, positions: int) -> Value:
        return load_first(self.builder, place, positions)

    def store(self, value: Value, place: Value, positions: int) -> None:
        store_first(self.builder, value, place, positions)

    def sums(self, positions: int) -> list[Value]:
        values = self.made(positions)
        return when(
            self.builder,
            self.asked("accumulate"),
            values,
            lambda: [
                add(self.builder, value, before)
                for value, before in zip(
                    values, self.loaded(self.target, "target_block", positions), strict=True
                )
            ],
        )

    def made(self, positions: int) -> list[Value]:
        """Return one vector for each output, whose first lanes are the sums of the positions over all inputs."""
        return self.totals(self.input_blocks(positions), positions)

    def biases(self, bias: Value, positions: int) -> list[Value]:
        b = self.builder
        return [load_broadcast(b, moved(b, bias, o)) for o in range(self.outputs)]

    def bias_sums(self, values: list[Value], positions: int) -> list[Value]:
        # Lanes beyond the positions hold no sums: they become zeros before they are added.
        held = [lane if lane < positions else LANES for lane in range(LANES)]
        return [shuffled(self.builder, value, ZERO_VECTOR, held) for value in values]

    def totals(self, sums: list[Value], positions: int) -> list[Value]:
        """Return one vector for each output, whose first lanes are the totals of the positions."""
        b, room = self.builder, 1
        # Rooms of a power of two: outputs then never straddle a vector of totals.
        while room < positions:
            room *= 2
        slots: list[Value] = []
        for o in range(self.outputs):
            slots += sums[o * positions : (o + 1) * positions]
            slots += [ZERO_VECTOR] * (room - positions)
        slots += [ZERO_VECTOR] * (-len(slots) % LANES)
        whole = [lane_totals(b, slots[s : s + LANES]) for s in range(0, len(slots), LANES)]
        found = []
        for first in range(0, self.outputs * room, room):
            # The output's room within the vector, brought to its first lanes.
            lanes = [first % LANES + lane % room for lane in range(LANES)]
            found.append(shuffled(b, whole[first // LANES], ZERO_VECTOR, lanes))
        return found

    def input_blocks(self, positions: int) -> list[Value]:
        """Vectors of partial sums, output by output: what all input blocks contribute."""
        b = self.builder
        filters = float_pointer(b, self.field("filters"))
        source_block = self.field("source_block")
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), self.field("taps_x"))
        # Filters of a group of two blocks: the last group of an odd number is shorter, but nothing follows it.
        group = b.mul(taps, word(2 * self.outputs * LANES))
        single = b.icmp_signed("!=", b.and_(self.blocks, word(1)), word(0))

        def body(index: Value, carried: list[Value]) -> list[Value]:
            source, *sums = carried
            # Filters of two blocks lie side by side at each tap; the last of an odd number lies alone.
            last = b.and_(single, b.icmp_signed("==", b.add(index, word(1)), self.blocks))
            width = b.select(last, word(LANES), word(2 * LANES))
            odd = b.mul(b.and_(index, word(1)), word(LANES))
            start = moved(b, moved(b, filters, b.mul(b.lshr(index, word(1)), group)), odd)
            tap = partial(self.add_tap, b.mul(taps, width))
            sums = self.taps(source, start, width, self.field("taps_x"), sums, tap)
            return [moved(b, source, source_block), *sums]

        carried = [self.source, *[ZERO_VECTOR] * (positions * self.outputs)]
        return counted_loop(b, self.blocks, carried, body, maybe_empty=True)[1:]

    def add_tap(self, step: Value, source: Value, filters: Value, sums: list[Value]) -> list[Value]:
        """Add one tap of one input block; `step` from output to output."""
        b, new = self.builder, list(sums)
        # Filters of all outputs first, then each voxel once for all of them.
        weights = [
            load_vector(b, moved(b, filters, b.mul(step, word(o)))) for o in range(self.outputs)
        ]
        positions = len(sums) // self.outputs
        for t in range(positions):
            voxel = load_vector(b, moved(b, source, t * LANES))
            for o, weight in enumerate(weights):
                at = o * positions + t
                new[at] = multiply_add(b, weight, voxel, sums[at])
        return new


def lane_totals(builder: ir.IRBuilder, vectors: list[Value]) -> Value:
    """Return a vector whose lane i is the sum of all lanes of vector i, of LANES vectors."""
    # log2(LANES) rounds; each halves the number of vectors: LANES - 1 additions for LANES sums, in a fixed
    # order.
    half = LANES // 2
    while half:
        low = [_lane(lane, half, 0) for lane in range(LANES)]
        high = [_lane(lane, half, half) for lane in range(LANES)]
        vectors = [
            add(builder, *(shuffled(builder, one, other, lanes) for lanes in (low, high)))
            for one, other in zip(vectors[:half], vectors[half:], strict=True)
        ]
        half //= 2
    return vectors[0]


def _lane(lane: int, half: int, shift: int) -> int:
    """Return which lane of a pair goes to `lane`: halves of the first to even halves, of the second to odd ones."""
    start, inside = lane // (2 * half) * 2 * half, lane % half
    return start + inside + shift + (LANES if lane & half else 0)


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
    """Compute one register block of some of `position_counts`; see `FewBlock`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = FewBlock(builder, outputs.literal_value, list(args[1:-1]))
        by_count(builder, args[-1], position_counts(outputs.literal_value), block.emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 12), codegen


@njit(inline="always")
def _row(
    outputs: int, dense: int, args: Any, z: int, y: int, place: int, first: int, z0: int, z1: int
) -> None:
    """Compute one output row, in register blocks; along z the taps z0..z1 of those from `first` on."""
    # As in `forward._row`, without a lattice along x.
    here, apart, lattice = y + args[AT.origin_y], args[AT.apart_y], args[AT.lattice_y]
    first_y = lattice_tap(here, apart, lattice, args[AT.taps_y])
    place_y = lattice_place(here, apart, lattice, first_y)
    taps = lattice_taps(first_y, args[AT.skip_y], args[AT.taps_y])
    y0, y1 = taps_inside(place_y, place_y, args[AT.shift_y], args[AT.limit_y], taps)
    source = args[AT.source] + 4 * (place * args[AT.source_z] + place_y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    width, origin, taps_x = args[AT.width], args[AT.origin_x], args[AT.taps_x]
    blocks = (args[AT.channels] + LANES - 1) // LANES
    # The most positions, then halves as the row ends: widths are cut the same for any task.
    x, positions = 0, min(LANES, SUMS // outputs)
    while x < width:
        while positions > width - x:
            positions //= 2
        start, last = x + origin, x + origin + positions - 1
        x0, x1 = taps_inside(start, last, args[AT.shift_x], args[AT.limit_x], taps_x)
        # No tap meets the block: no input block is taken, and it becomes bias and function of 0.
        some = z0 < z1 and y0 < y1 and x0 < x1
        _register_block(
            outputs,
            args,
            source + 4 * start * LANES,
            target + 4 * x,
            output + 4 * x,
            blocks if some else 0,
            (first * args[AT.taps_y] + first_y) * taps_x,
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


def _few(outputs: int) -> Kernel:
    """Declare the kernel for so many output channels."""

    @kernel(AT, name=f"direct_few_{outputs}")
    def few(args: Any, worker: int) -> None:
        """All rows of a few output channels. Words: see the module."""
        _rows(outputs, 1, args)

    return few


# By number of output channels, from 1.
KERNELS: tuple[Kernel, ...] = tuple(_few(outputs) for outputs in range(1, FEW + 1))


def few_kernel(outputs: int) -> Kernel:
    """Return the kernel for 1 to FEW output channels."""
    return KERNELS[outputs - 1]
