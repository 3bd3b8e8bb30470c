"""Direct convolution into few output images, which lie planar: forward, and as data gradient.

A vector holds LANES input images of one voxel, so no lane is spent on outputs that are not there. A
register block keeps one vector of partial sums for each of the outputs at some neighbouring x
positions; every filter vector and voxel is loaded once a tap. In the end a tree of shuffles and
additions makes one number of each vector.

Argument words are those of `forward` with another meaning of

    source, source_block        blocked images, x positions LANES floats apart (no stride along x)
    channels                    input images
    filters                     [group of one or two input blocks][output][z][y][x][lane of the group]
    target, output              planar images; `target_block` from image to image; x positions one float apart
    bias_gradient               LANES floats for each output image: sums of every LANES-th position, to be
                                added up (`reduction.sum_lanes`)

Forward, filters are those of `filters.transpose_filters` for planar outputs; in the data gradient those
packed for a planar source.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.direct.forward import AT as DIRECT
from znnpy_kernels.direct.forward import end_tap, first_tap
from znnpy_kernels.machine.abi import Kernel, declared, kernel, words
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_first,
    load_vector,
    moved,
    multiply_add,
    shuffled,
    store_first,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS

FEW = 8
# Partial sums in registers; the others hold filters and a voxel.
SUMS = 24 if REGISTERS == 32 else 12

AT = words(*(name for name in declared(DIRECT) if name not in ("source_x", "source_lanes")))


def position_counts(outputs: int) -> list[int]:
    """Numbers of x positions that register blocks may have: the most, and halves down to 1."""
    count = min(LANES, SUMS // outputs)
    counts = [count]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


class _Block:
    """Emits register blocks: `outputs` images times some number of neighbouring x positions."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        self.builder = builder
        self.outputs = outputs
        self.arguments, source, target, output, self.blocks = words[:5]
        self.z0, self.z1, self.y0, self.y1, self.x0, self.x1 = words[5:]
        self.source = float_pointer(builder, source)
        self.target = float_pointer(builder, target)
        self.output = float_pointer(builder, output)

    def field(self, name: str) -> Value:
        """One word of the kernel's argument block."""
        return self.builder.load(self.builder.gep(self.arguments, [word(getattr(AT, name))]))

    def emit(self, positions: int) -> None:
        """Compute and store one register block."""
        b = self.builder
        values = self.totals(self.input_blocks(positions), positions)
        targets = self.places(self.target, "target_block")
        values = when(
            b,
            b.icmp_signed("!=", self.field("accumulate"), word(0)),
            values,
            lambda: [
                add(b, value, load_first(b, target, positions))
                for value, target in zip(values, targets, strict=True)
            ],
        )
        values = self.finish(values, positions)
        for value, target in zip(values, targets, strict=True):
            store_first(b, value, target, positions)
        wanted = b.icmp_signed("!=", self.field("bias_gradient"), word(0))
        when(b, wanted, [], lambda: self.add_to_bias(values, positions))

    def places(self, pointer: Value, block: str) -> list[Value]:
        """Pointers to the block's first position in every image; `block` names their distance."""
        b, stride = self.builder, self.field(block)
        return [moved(b, pointer, b.mul(stride, word(o))) for o in range(self.outputs)]

    def finish(self, values: list[Value], positions: int) -> list[Value]:
        """Bias and transfer, or the transfer's gradient."""
        b = self.builder
        bias = float_pointer(b, self.field("bias"))
        return finished(
            b,
            self.field,
            values,
            lambda: [load_broadcast(b, moved(b, bias, o)) for o in range(self.outputs)],
            lambda: [
                load_first(b, place, positions)
                for place in self.places(self.output, "output_block")
            ],
        )

    def add_to_bias(self, values: list[Value], positions: int) -> list[Value]:
        """Add the first lanes of the values to the task's bias gradient."""
        b = self.builder
        held = [lane if lane < positions else LANES for lane in range(LANES)]
        for o, value in enumerate(values):
            place = moved(b, float_pointer(b, self.field("bias_gradient")), o * LANES)
            inside = shuffled(b, value, ZERO_VECTOR, held)
            store_vector(b, add(b, load_vector(b, place), inside), place)
        return []

    def totals(self, sums: list[Value], positions: int) -> list[Value]:
        """One vector for each output, whose first lanes are the totals of the positions."""
        b, room = self.builder, 1
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
            lanes = [first % LANES + lane % room for lane in range(LANES)]
            found.append(shuffled(b, whole[first // LANES], ZERO_VECTOR, lanes))
        return found

    def input_blocks(self, positions: int) -> list[Value]:
        """Vectors of partial sums, output by output: what all input blocks contribute."""
        b = self.builder
        filters = float_pointer(b, self.field("filters"))
        source_block = self.field("source_block")
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), self.field("taps_x"))
        group = b.mul(taps, word(2 * self.outputs * LANES))
        single = b.icmp_signed("!=", b.and_(self.blocks, word(1)), word(0))

        def body(index: Value, carried: list[Value]) -> list[Value]:
            source, *sums = carried
            last = b.and_(single, b.icmp_signed("==", b.add(index, word(1)), self.blocks))
            width = b.select(last, word(LANES), word(2 * LANES))
            odd = b.mul(b.and_(index, word(1)), word(LANES))
            start = moved(b, moved(b, filters, b.mul(b.lshr(index, word(1)), group)), odd)
            sums = self.taps(source, start, width, b.mul(taps, width), sums, positions)
            return [moved(b, source, source_block), *sums]

        carried = [self.source, *[ZERO_VECTOR] * (positions * self.outputs)]
        return counted_loop(b, self.blocks, carried, body, maybe_empty=True)[1:]

    def taps(
        self,
        source: Value,
        filters: Value,
        filter_x: Value,
        step: Value,
        sums: list[Value],
        positions: int,
    ) -> list[Value]:
        """Add the taps z0..z1, y0..y1, x0..x1 of one input block; `step` from output to output."""
        b = self.builder
        tap_z, tap_y, tap_x = (self.field(f"tap_{axis}") for axis in "zyx")
        filter_y = b.mul(filter_x, self.field("taps_x"))
        filter_z = b.mul(filter_y, self.field("taps_y"))

        def at(first: Value, source: Value, tap: Value, filters: Value, by: Value) -> list[Value]:
            return [moved(b, source, b.mul(first, tap)), moved(b, filters, b.mul(first, by))]

        def along_z(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            start = at(self.y0, source, tap_y, filters, filter_y)
            sums = counted_loop(b, b.sub(self.y1, self.y0), [*start, *sums], along_y)[2:]
            return [moved(b, source, tap_z), moved(b, filters, filter_z), *sums]

        def along_y(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            start = at(self.x0, source, tap_x, filters, filter_x)
            sums = counted_loop(b, b.sub(self.x1, self.x0), [*start, *sums], along_x)[2:]
            return [moved(b, source, tap_y), moved(b, filters, filter_y), *sums]

        def along_x(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            weights = [
                load_vector(b, moved(b, filters, b.mul(step, word(o)))) for o in range(self.outputs)
            ]
            new = list(sums)
            for t in range(positions):
                voxel = load_vector(b, moved(b, source, t * LANES))
                for o, weight in enumerate(weights):
                    at = o * positions + t
                    new[at] = multiply_add(b, weight, voxel, sums[at])
            return [moved(b, source, tap_x), moved(b, filters, filter_x), *new]

        start = at(self.z0, source, tap_z, filters, filter_z)
        return counted_loop(b, b.sub(self.z1, self.z0), [*start, *sums], along_z)[2:]


def lane_totals(builder: ir.IRBuilder, vectors: list[Value]) -> Value:
    """A vector whose lane i is the sum of all lanes of vector i, of LANES vectors."""
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
    """Which lane of a pair goes to `lane`: halves of the first to even halves, of the second to odd."""
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
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    x0: Any,
    x1: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """One register block of some of `position_counts`; see `_Block`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(builder, outputs.literal_value, list(args[1:-1]))
        done = builder.append_basic_block("stored")
        choice = builder.switch(args[-1], done)
        for count in position_counts(outputs.literal_value):
            choice.add_case(word(count), builder.append_basic_block(f"positions{count}"))
            builder.position_at_end(choice.cases[-1][1])
            block.emit(count)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 11), codegen


@njit(inline="always")
def _row(outputs: int, args: Any, z: int, y: int, z0: int, z1: int) -> None:
    """One output row, in register blocks; z0..z1 are the taps to take along z."""
    source = args[AT.source] + 4 * (z * args[AT.source_z] + y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    width, shift_x, taps_x = args[AT.width], args[AT.shift_x], args[AT.taps_x]
    blocks = (args[AT.channels] + LANES - 1) // LANES
    y0 = first_tap(y, y, args[AT.shift_y], args[AT.limit_y], args[AT.taps_y])
    y1 = end_tap(y, y, args[AT.shift_y], args[AT.limit_y], y0, args[AT.taps_y])
    x, positions = 0, min(LANES, SUMS // outputs)
    while x < width:
        while positions > width - x:
            positions //= 2
        last = x + positions - 1
        x0 = first_tap(x, last, shift_x, args[AT.limit_x], taps_x)
        x1 = end_tap(x, last, shift_x, args[AT.limit_x], x0, taps_x)
        some = z0 < z1 and y0 < y1 and x0 < x1
        _register_block(
            outputs,
            args,
            source + 4 * x * LANES,
            target + 4 * x,
            output + 4 * x,
            blocks if some else 0,
            z0,
            z1,
            y0,
            y1,
            x0,
            x1,
            positions,
        )
        x += positions


@njit(inline="always")
def _rows(outputs: int, args: Any) -> None:
    """All output rows of a task."""
    if args[AT.bias_gradient]:
        for lane in range(outputs * LANES):
            floats(args[AT.bias_gradient])[lane] = 0.0
    for z in range(args[AT.z0], args[AT.z1]):
        z0 = first_tap(z, z, args[AT.shift_z], args[AT.limit_z], args[AT.taps_z])
        z1 = end_tap(z, z, args[AT.shift_z], args[AT.limit_z], z0, args[AT.taps_z])
        for y in range(args[AT.y0], args[AT.y1]):
            _row(outputs, args, z, y, z0, z1)


@kernel(AT)
def direct_few_1(args: Any, worker: int) -> None:
    """One output image. Words: see the module."""
    _rows(1, args)


@kernel(AT)
def direct_few_2(args: Any, worker: int) -> None:
    """Two output images. Words: see the module."""
    _rows(2, args)


@kernel(AT)
def direct_few_3(args: Any, worker: int) -> None:
    """Three output images. Words: see the module."""
    _rows(3, args)


@kernel(AT)
def direct_few_4(args: Any, worker: int) -> None:
    """Four output images. Words: see the module."""
    _rows(4, args)


@kernel(AT)
def direct_few_5(args: Any, worker: int) -> None:
    """Five output images. Words: see the module."""
    _rows(5, args)


@kernel(AT)
def direct_few_6(args: Any, worker: int) -> None:
    """Six output images. Words: see the module."""
    _rows(6, args)


@kernel(AT)
def direct_few_7(args: Any, worker: int) -> None:
    """Seven output images. Words: see the module."""
    _rows(7, args)


@kernel(AT)
def direct_few_8(args: Any, worker: int) -> None:
    """Eight output images. Words: see the module."""
    _rows(8, args)


# By number of output images, from 1.
KERNELS: tuple[Kernel, ...] = (
    direct_few_1,
    direct_few_2,
    direct_few_3,
    direct_few_4,
    direct_few_5,
    direct_few_6,
    direct_few_7,
    direct_few_8,
)


def few_kernel(outputs: int) -> Kernel:
    """The kernel for 1 to FEW output images."""
    return KERNELS[outputs - 1]
