"""Direct transposed convolution with a stride along x into few output channels, which lie planar.

Lanes go over voxels of a row of the source. Its blocks of channels are brought to rows of one channel each, among
zeros, as rows of outputs come to need them; rows stay while others do. So along each lattice of x the outputs that
meet the same taps are sums of vectors times one filter each, and no lane is idle, nor summed across.

Argument words are those of `few_channels` for a source without zeros around its rows and a target that nothing is
added to, and

    scratch, scratch_worker     scratch of worker 0, `spread_scratch_floats` of a worker; floats to the next one's

Filters are those packed for a planar source: of the convolution that goes the other way, which reads the outputs.

Scratch of a worker: for each pair of taps along z and y the number of the row that its slot holds; address of the
voxels and number of the first tap of each pair that a row of outputs meets; sums of that row, lattice by lattice of
each output; the slots, [z][y][channel][x].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.correlation import (
    Triple,
    lattice_place,
    lattice_tap,
    lattice_taps,
    taps_inside,
)
from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.direct.few_channels import AT as FEW
from znnpy_kernels.direct.few_channels import SUMS
from znnpy_kernels.machine.abi import Kernel, declared, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
    argument,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    shuffled,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, transpose_tile

LEFT_OUT = ("halo", "accumulate", "output", "output_block", "output_z", "output_y", "bias_gradient")
AT = words(*(name for name in declared(FEW) if name not in LEFT_OUT), "scratch scratch_worker")
MOST = LANES // 2  # outputs: of more, lanes over outputs take fewer products
TOGETHER = 2 * LANES  # channels whose filters lie side by side
NONE = -1  # no row


def before_row(taps: int, apart: int, lattice: int) -> int:
    """Return the zeros before a row, which taps along x may meet: whole vectors, so that rows begin with one."""
    return ((taps - 1) * apart + lattice * LANES - 1) // (lattice * LANES) * LANES


def row_floats(before: int, width: int, origin: int, lattice: int, limit: int) -> int:
    """Return the floats of a row of one channel with the zeros around it: whole vectors."""
    # The last vector of positions may reach beyond the outputs.
    seen = (width - 1 + origin) // lattice + 1 + LANES
    return before + (max(limit, seen) + LANES - 1) // LANES * LANES


def sums_floats(width: int, lattice: int) -> int:
    """Return the floats of the sums of one lattice of a row of outputs."""
    return ((width + lattice - 1) // lattice + LANES - 1) // LANES * LANES


def spread_scratch_floats(
    outputs: int, channels: int, taps: Triple, width: int, words: Mapping[str, int]
) -> int:
    """Return the floats of scratch that each worker needs; `words`: of where taps are."""
    z, y, x = taps
    lattice, limit = words["lattice_x"], words["limit_x"]
    before = before_row(x, words["apart_x"], lattice)
    row = row_floats(before, width, words["origin_x"], lattice, limit)
    whole = -(-channels // LANES) * LANES
    # Three numbers of eight bytes for each slot.
    return z * y * (whole * row + 6) + outputs * lattice * sums_floats(width, lattice) + LANES


_before, _row_floats, _sums_floats = map(inlined, (before_row, row_floats, sums_floats))


class _Block:
    """Sums of all outputs at some vectors of positions of one lattice along x."""

    def __init__(self, builder: ir.IRBuilder, outputs: int, words: list[Value]) -> None:
        self.builder, self.outputs = builder, outputs
        (
            self.arguments,
            self.table,
            self.count,
            *self.along,
            place,
            self.step,
            target,
            self.apart,
        ) = words
        self.place, self.target = place, float_pointer(builder, target)

    def field(self, name: str) -> Value:
        """Return a word of the argument block, 0 for those of `epilogue` that this kernel has no use for."""
        if name in LEFT_OUT:
            return word(0)
        return argument(self.builder, self.arguments, getattr(AT, name))

    def emit(self, vectors: int) -> None:
        """Compute and store the sums of so many vectors."""
        b, bias = self.builder, float_pointer(self.builder, self.field("bias"))
        sums = self.groups([ZERO_VECTOR] * (self.outputs * vectors))
        values = finished(
            b,
            self.field,
            sums,
            lambda: [
                load_broadcast(b, moved(b, bias, output))
                for output in range(self.outputs)
                for _ in range(vectors)
            ],
            lambda: sums,
        )
        for number, value in enumerate(values):
            output, vector = divmod(number, vectors)
            place = moved(b, self.target, b.mul(self.apart, word(output)))
            store_vector(b, value, moved(b, place, vector * LANES))

    def groups(self, sums: list[Value]) -> list[Value]:
        """Add the channels whose filters lie side by side, group by group."""
        b, channels = self.builder, self.field("channels")
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), self.field("taps_x"))
        group = b.mul(taps, word(self.outputs * TOGETHER))
        count = b.sdiv(b.add(channels, word(TOGETHER - 1)), word(TOGETHER))

        def body(index: Value, carried: list[Value]) -> list[Value]:
            first = b.mul(index, word(TOGETHER))
            left = b.sub(channels, first)
            # The last group of an odd number of blocks is one of them.
            width = b.select(b.icmp_signed("<=", left, word(LANES)), word(LANES), word(TOGETHER))
            inner = b.select(b.icmp_signed("<", left, word(TOGETHER)), left, word(TOGETHER))
            filters = moved(b, float_pointer(b, self.field("filters")), b.mul(index, group))
            return self.rows(
                b.mul(first, self.step), filters, width, b.mul(taps, width), inner, carried
            )

        return counted_loop(b, count, sums, body)

    def rows(
        self,
        channel: Value,
        filters: Value,
        width: Value,
        output: Value,
        inner: Value,
        sums: list[Value],
    ) -> list[Value]:
        """Add one group's channels: all pairs of taps along z and y, and their taps along x."""
        b, (first, skip, shift, taps) = self.builder, self.along
        start = b.add(self.place, channel)

        def row(index: Value, carried: list[Value]) -> list[Value]:
            entry = b.gep(b.inttoptr(self.table, WORD.as_pointer()), [b.mul(index, word(2))])
            voxels = moved(b, float_pointer(b, b.load(entry)), start)
            number = b.add(b.load(b.gep(entry, [word(1)])), first)
            weights = moved(b, filters, b.mul(number, width))

            def tap(index: Value, carried: list[Value]) -> list[Value]:
                here = moved(b, voxels, b.mul(index, shift))
                own = moved(b, weights, b.mul(index, b.mul(skip, width)))
                return self.channels(here, own, output, inner, carried)

            return counted_loop(b, taps, carried, tap, maybe_empty=True)

        return counted_loop(b, self.count, sums, row, maybe_empty=True)

    def channels(
        self, voxels: Value, filters: Value, output: Value, inner: Value, sums: list[Value]
    ) -> list[Value]:
        """Add one tap of a group's channels: the innermost loop."""
        b, vectors = self.builder, len(sums) // self.outputs

        def body(_: Value, carried: list[Value]) -> list[Value]:
            voxels, filters, *sums = carried
            weights = [
                load_broadcast(b, moved(b, filters, b.mul(output, word(number))))
                for number in range(self.outputs)
            ]
            for vector in range(vectors):
                value = load_vector(b, moved(b, voxels, vector * LANES))
                for number, weight in enumerate(weights):
                    at = number * vectors + vector
                    sums[at] = multiply_add(b, weight, value, sums[at])
            return [moved(b, voxels, self.step), moved(b, filters, 1), *sums]

        return counted_loop(b, inner, [voxels, filters, *sums], body)[2:]


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    outputs: Any,
    arguments: Any,
    table: Any,
    count: Any,
    first: Any,
    skip: Any,
    shift: Any,
    taps: Any,
    place: Any,
    step: Any,
    target: Any,
    apart: Any,
    vectors: Any,
) -> tuple[Signature, Any]:
    """Compute the sums of some vectors of positions, from voxel `place` on of `count` rows of the table on.

    `first`, `skip`, `shift`, `taps`: along x; `step`: floats from channel to channel; `apart`: from output to output.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(builder, outputs.literal_value, list(args[1:-1]))
        by_count(builder, args[-1], range(1, SUMS // block.outputs + 1), block.emit)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 11), codegen


@intrinsic
def _zipped(typingctx: Any, one: Any, other: Any, target: Any) -> tuple[Signature, Any]:
    """Write a vector of one lattice and one of the other voxel by voxel in turns."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b = builder
        low, high = (load_vector(b, float_pointer(b, it)) for it in args[:2])
        place = float_pointer(b, args[2])
        for half in range(2):
            lanes = [
                half * LANES // 2 + lane // 2 + (LANES if lane % 2 else 0) for lane in range(LANES)
            ]
            store_vector(b, shuffled(b, low, high, lanes), moved(b, place, half * LANES))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@inlined
def _clear(args: Any, before: int, row: int, target: int) -> None:
    """Zeros around the rows of one slot, before and behind what `_fill` writes."""
    blocks, limit = (args[AT.channels] + LANES - 1) // LANES, args[AT.limit_x]
    end = before + (limit + LANES - 1) // LANES * LANES
    for channel in range(blocks * LANES):
        here = floats(target + 4 * channel * row)
        for x in range(before):
            here[x] = 0.0
        for x in range(end, row):
            here[x] = 0.0


@inlined
def _fill(args: Any, source: int, row: int, target: int, tile: int) -> None:
    """Bring a row of voxels to rows of one channel each; vectors end with zeros."""
    blocks, limit = (args[AT.channels] + LANES - 1) // LANES, args[AT.limit_x]
    for block in range(blocks):
        voxels = source + 4 * block * args[AT.source_block]
        place = target + 4 * block * LANES * row
        for x in range(0, limit, LANES):
            here = voxels + VECTOR_BYTES * x
            if limit - x < LANES:
                load_tile(here, VECTOR_BYTES, limit - x, LANES, tile)
                here = tile
            transpose_tile(here, VECTOR_BYTES, place + 4 * x, 4 * row)


@inlined
def _finish(outputs: int, args: Any, sums: int, z: int, y: int) -> None:
    """Bring the sums of a row's lattices to the target."""
    lattice, width = args[AT.lattice_x], args[AT.width]
    own = _sums_floats(width, lattice)
    for output in range(outputs):
        place = output * args[AT.target_block] + z * args[AT.target_z] + y * args[AT.target_y]
        target, start = args[AT.target] + 4 * place, sums + 4 * output * lattice * own
        done = 0
        if lattice == 2:
            done = width - width % (2 * LANES)
            for x in range(0, done, 2 * LANES):
                _zipped(start + 2 * x, start + 4 * own + 2 * x, target + 4 * x)
        for first in range(lattice):
            some, number = floats(start + 4 * first * own), done // lattice
            for x in range(done + first, width, lattice):
                floats(target)[x] = some[number]
                number += 1


@inlined
def _lattices(outputs: int, args: Any, table: int, count: int, row: int, sums: int) -> None:
    """Compute the sums of all lattices of a row of outputs, which `count` rows of the table meet."""
    lattice, apart, taps = args[AT.lattice_x], args[AT.apart_x], args[AT.taps_x]
    own, most = _sums_floats(args[AT.width], lattice), SUMS // outputs
    for start in range(min(lattice, args[AT.width])):
        at = start + args[AT.origin_x]
        first = lattice_tap(at, apart, lattice, taps)
        place = lattice_place(at, apart, lattice, first)
        vectors = (lattice_taps(start, lattice, args[AT.width]) + LANES - 1) // LANES
        parts, done = (vectors + most - 1) // most, 0
        for part in range(parts):
            some = 1
            while some * (parts - part) < vectors - done:
                some += 1
            _register_block(
                outputs,
                args,
                table,
                count,
                first,
                args[AT.skip_x],
                args[AT.shift_x],
                lattice_taps(first, args[AT.skip_x], taps),
                place + done * LANES,
                row,
                sums + 4 * (start * own + done * LANES),
                lattice * own,
                some,
            )
            done += some


@inlined
def _meets(taps: int, apart: int, lattice: int) -> Any:
    """Return whether rows, or planes, that meet one of the target are no more than `taps` in a row.

    Then each has a slot by its number, where it stays for the next one of the target.
    """
    return (taps - 1) * apart // lattice < taps


@inlined
def _row(
    outputs: int, args: Any, z: int, y: int, scratch: int, row: int, rows: int, tile: int
) -> None:
    """Compute one row of outputs; `row`: floats of a row of one channel, `rows`: address of the slots."""
    taps_z, taps_y = args[AT.taps_z], args[AT.taps_y]
    apart_z, apart_y = args[AT.apart_z], args[AT.apart_y]
    blocks = (args[AT.channels] + LANES - 1) // LANES
    slot, table = 4 * blocks * LANES * row, scratch + 8 * taps_z * taps_y
    before = 4 * _before(args[AT.taps_x], args[AT.apart_x], args[AT.lattice_x])
    first_z = lattice_tap(z + args[AT.origin_z], apart_z, args[AT.lattice_z], taps_z)
    place_z = lattice_place(z + args[AT.origin_z], apart_z, args[AT.lattice_z], first_z)
    taps = lattice_taps(first_z, args[AT.skip_z], taps_z)
    z0, z1 = taps_inside(place_z, place_z, args[AT.shift_z], args[AT.limit_z], taps)
    first_y = lattice_tap(y + args[AT.origin_y], apart_y, args[AT.lattice_y], taps_y)
    place_y = lattice_place(y + args[AT.origin_y], apart_y, args[AT.lattice_y], first_y)
    taps = lattice_taps(first_y, args[AT.skip_y], taps_y)
    y0, y1 = taps_inside(place_y, place_y, args[AT.shift_y], args[AT.limit_y], taps)
    few_z = _meets(taps_z, apart_z, args[AT.lattice_z])
    few_y = _meets(taps_y, apart_y, args[AT.lattice_y])
    count = 0
    for tap_z in range(z0, z1):
        for tap_y in range(y0, y1):
            plane, line = place_z + tap_z * args[AT.shift_z], place_y + tap_y * args[AT.shift_y]
            at = (plane % taps_z if few_z else tap_z) * taps_y + (line % taps_y if few_y else tap_y)
            voxels, number = rows + at * slot + before, plane * args[AT.limit_y] + line
            if longs(scratch)[at] != number:
                longs(scratch)[at] = number
                source = plane * args[AT.source_z] + line * args[AT.source_y]
                _fill(args, args[AT.source] + 4 * source, row, voxels, tile)
            tap = (first_z + tap_z * args[AT.skip_z]) * taps_y + first_y + tap_y * args[AT.skip_y]
            longs(table)[2 * count], longs(table)[2 * count + 1] = voxels, tap * args[AT.taps_x]
            count += 1
    lattice = args[AT.lattice_x]
    sums = rows - 4 * outputs * lattice * _sums_floats(args[AT.width], lattice)
    _lattices(outputs, args, table, count, row, sums)
    _finish(outputs, args, sums, z, y)


@inlined
def _rows(outputs: int, args: Any, scratch: int, tile: int) -> None:
    """Compute all rows of a task."""
    width, lattice, slots = args[AT.width], args[AT.lattice_x], args[AT.taps_z] * args[AT.taps_y]
    before = _before(args[AT.taps_x], args[AT.apart_x], lattice)
    row = _row_floats(before, width, args[AT.origin_x], lattice, args[AT.limit_x])
    blocks = (args[AT.channels] + LANES - 1) // LANES
    rows = scratch + 24 * slots
    rows += -rows % VECTOR_BYTES + 4 * outputs * lattice * _sums_floats(width, lattice)
    for number in range(slots):
        longs(scratch)[number] = NONE
        _clear(args, before, row, rows + 4 * number * blocks * LANES * row)
    # Planes between which those of the source lie share their rows.
    for low in range(args[AT.z0], args[AT.z1], args[AT.lattice_z]):
        for y in range(args[AT.y0], args[AT.y1]):
            for z in range(low, min(low + args[AT.lattice_z], args[AT.z1])):
                _row(outputs, args, z, y, scratch, row, rows, tile)


def _spread(outputs: int) -> Kernel:
    """Declare the kernel for so many output channels."""

    @kernel(AT, name=f"direct_few_spread_{outputs}")
    def spread(args: Any, worker: int) -> None:
        """All rows of a few output channels. Words: see the module."""
        scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        _rows(outputs, args, scratch, scratch_tile())

    return spread


# By number of output channels, from 1.
KERNELS: tuple[Kernel, ...] = tuple(_spread(outputs) for outputs in range(1, MOST + 1))


def spread_kernel(outputs: int) -> Kernel:
    """Return the kernel for 1 to MOST output channels."""
    return KERNELS[outputs - 1]
