"""Weight gradient of direct convolution: sums over output positions, kept in registers.

    gradient[tap][input channel][output lane] += sum over output positions of
        output gradient[position][output lane] * source[position + tap][input channel]

A task takes one input block, one output group, some rows of taps and one slab of one channel of the
batch. The sums of some input channels (rows of the packed layout) stay in registers over the whole slab;
the slab should therefore fit the L2 cache. A planar source has one channel a block; there the
taps along x take the input channels' place. Where these are few, sums are kept for several positions, so
that the additions do not wait for each other.

Argument words. Addresses in bytes; steps and strides in floats; all else counts.

    source                      voxel of this input block read by tap 0 at output position (0, 0, 0)
    source_z, source_y, source_x    step between output positions: stride of the convolution times
                                stride of the tensor
    source_lanes, channels      LANES, or 1 for a planar source; input channels in this block
    taps_y, taps_x              filter size
    tap_z, tap_y, tap_x         step between taps: sparsity times stride of the tensor
    tap_row0, tap_row1          rows of taps to do: row z * taps_y + y holds the taps of all x
    gradient, gradient_block    output position (0, 0, 0) of the group's first block; step to the next
    gradient_z, gradient_y      strides of the output gradient; along x it is LANES
    z0, z1, y0, y1, width       the slab of output positions, not empty; whole rows
    zeros_z, size_z, dilation_z     along z, only voxels zeros_z to zeros_z + size_z of the source, counted from what
                                tap 0 reads at position 0, may be other than 0; voxels from tap to tap. Positions
                                where a tap sees zeros alone are left out. With size OPEN none are
    zeros_y, size_y, dilation_y     the same along y
    target                      packed weight gradient of this input block and output group, at tap 0
    earlier, earlier0 ...       how many sums of others, 0 to MOST_EARLIER, and where these lie as the target does:
                                the slab's sums are added to the first, what that gives to the second ...
                                The target may be one of them

Written are the packed rows of the given tap rows, nothing else. The result depends on the slab, not
on how the taps are cut into tasks. Around 1000 to 3000 positions a slab are fastest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add,
    argument,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    prefetch,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES

# Most packed rows in registers, by vectors of the output group.
# With AVX-512 and one vector, LANES = 16 channels of a block are whole; with two vectors 14 * 2 sums fit. Of 16
# registers 8, or 6 * 2.
ROWS: tuple[int, int] = (min(LANES, 16), min(LANES, 14)) if REGISTERS == 32 else (8, 6)
# Sums under way that hide the latency of multiply-add (4 cycles, two a cycle).
INDEPENDENT = 8
LINE_BYTES = 64  # of a cache line
# Of rows of positions that all taps and channels of a row of taps take, if these pass over them so often at least. With
# more registers, which take twice as long for what a position brings, this was not measured: no bound.
NEAR_BYTES, PASSES = 1 << 14 if REGISTERS == 16 else 1 << 40, 6
# A bound on the words of the argument block.
MOST_EARLIER = 4
"""Sums of others that a task adds its own to."""
OPEN = 1 << 40
"""The size of a source of which no voxels are known to be 0."""

AT = words(
    "source source_z source_y source_x source_lanes channels taps_y taps_x tap_z tap_y tap_x "
    "tap_row0 tap_row1 gradient gradient_block gradient_z gradient_y z0 z1 y0 y1 width "
    "zeros_z size_z dilation_z zeros_y size_y dilation_y target "
    "earlier earlier0 earlier1 earlier2 earlier3",
)


def zeros_words(z: Sequence[int], y: Sequence[int]) -> dict[str, int]:
    """Return the words of known zeros: by axis the voxels before the first that may be another, size, dilation."""
    names = ("zeros", "size", "dilation")
    axes = (("z", z), ("y", y))
    return {
        f"{name}_{axis}": it for axis, words in axes for name, it in zip(names, words, strict=True)
    }


def earlier_words(places: Sequence[int]) -> dict[str, int]:
    """Return the words of other slabs' sums, by their addresses, at most MOST_EARLIER."""
    # All words must be given; those beyond `earlier` are never read.
    padded = [*places, *[0] * (MOST_EARLIER - len(places))]
    words = {f"earlier{number}": place for number, place in enumerate(padded)}
    return words | {"earlier": len(places)}


class Slab(ABC):
    """Emits sums of products over one slab of output positions; subclasses define the products.

    `at`: the offsets of the kernel's words. `words`: pointers to the argument block, and addresses of the source and
    the gradient at position (0, 0, 0). Fields read: those of steps and positions.
    """

    gradient_x = LANES  # step of the gradient between x positions
    maybe_empty = False  # whether there may be no positions

    def __init__(self, builder: ir.IRBuilder, at: Any, words: list[Value]) -> None:
        self.builder = builder
        self.at = at
        self.arguments, source, gradient = words
        self.source = float_pointer(builder, source)
        self.gradient = float_pointer(builder, gradient)
        self.gradient_block = self.field("gradient_block")
        self.source_x = self.field("source_x")

    def field(self, name: str) -> Value:
        """Return one word of the kernel's argument block."""
        return argument(self.builder, self.arguments, getattr(self.at, name))

    def bounds(self) -> list[Value]:
        """Return z0, z1, y0, y1 of the positions."""
        return [self.field(name) for name in ("z0", "z1", "y0", "y1")]

    @abstractmethod
    def products(self, source: Value, gradient: Value) -> list[tuple[Value, Value]]:
        """Emit the loads of one position: two factors for each sum."""

    def emit(self, targets: list[Value]) -> None:
        """Store the sums over the slab, as `finished` returns them."""
        b, count = self.builder, len(targets)
        # Where there are fewer sums than hide the latency, each is kept several times, for neighbouring
        # positions.
        spread = -(-INDEPENDENT // count)
        sums = self.slab(self.beginning(targets, spread), count, spread)
        # Added up in one order at the end, whatever the compiler would prefer.
        totals = [reduce(partial(add, b), sums[index::count]) for index in range(count)]
        for total, target in zip(self.finished(totals, targets), targets, strict=True):
            store_vector(b, total, target)

    def beginning(self, targets: list[Value], spread: int) -> list[Value]:
        """Return what the sums begin with, `spread` for each target."""
        return [ZERO_VECTOR] * len(targets) * spread

    def finished(self, totals: list[Value], targets: list[Value]) -> list[Value]:
        """Return the values to store in place of the slab's sums."""
        return totals

    def slab(self, sums: list[Value], count: int, spread: int) -> list[Value]:
        """Add all positions z0..z1, y0..y1 of the slab."""
        b = self.builder
        steps = {a: [self.field(f"{side}_{a}") for side in ("source", "gradient")] for a in "zy"}
        z0, z1, y0, y1 = self.bounds()
        # Pointers step by planes and rows: no multiplication within the loops.
        corner = [
            moved(b, moved(b, pointer, b.mul(z0, along_z)), b.mul(y0, along_y))
            for pointer, along_z, along_y in zip(
                (self.source, self.gradient), steps["z"], steps["y"], strict=True
            )
        ]

        def plane(_: Value, carried: list[Value]) -> list[Value]:
            following = [moved(b, *pair) for pair in zip(carried[:2], steps["z"], strict=True)]
            lines = counted_loop(b, b.sub(y1, y0), carried, line, maybe_empty=self.maybe_empty)
            return following + lines[2:]

        def line(_: Value, carried: list[Value]) -> list[Value]:
            following = [moved(b, *pair) for pair in zip(carried[:2], steps["y"], strict=True)]
            return following + self.positions(carried, count, spread)

        planes, empty = b.sub(z1, z0), self.maybe_empty
        return counted_loop(b, planes, corner + sums, plane, maybe_empty=empty)[2:]

    def positions(self, carried: list[Value], count: int, spread: int) -> list[Value]:
        """Add the positions of one row: `spread` at a time, then the rest one by one."""
        b = self.builder
        width = self.field("width")

        def body(together: int) -> Any:
            return lambda _, values: self.step_along(values, count, together)

        if spread > 1:
            # `width` // `spread`, unsigned and by a constant: no check for zero.
            turns = b.udiv(width, word(spread))
            carried = counted_loop(b, turns, carried, body(spread), maybe_empty=True)
            width = b.urem(width, word(spread))
        return counted_loop(b, width, carried, body(1), maybe_empty=True)[2:]

    def step_along(self, carried: list[Value], count: int, together: int) -> list[Value]:
        """Add `together` neighbouring positions, each to its own sums."""
        b = self.builder
        source, gradient, *sums = carried
        for part in range(together):
            # Products of one position, each with sums of its own.
            for index, (one, other) in enumerate(self.products(source, gradient), part * count):
                sums[index] = multiply_add(b, one, other, sums[index])
            source = moved(b, source, self.source_x)
            gradient = moved(b, gradient, self.gradient_x)
        return [source, gradient, *sums]


class _PackedRows(Slab):
    """Sums of `rows` packed rows: input channels, `step` floats apart, times vectors of outputs."""

    maybe_empty = True

    def __init__(self, builder: ir.IRBuilder, outputs: int, step: int, words: list[Value]) -> None:
        arguments, source, target, inner_step, self._grown, self._earlier, *self._bounds = words
        self.outputs, self.rows = outputs, 0
        # A constant step of 1 is part of the address; planar sources take taps, which are any step apart.
        self.step = word(step) if step else inner_step
        self._target, self.target = target, float_pointer(builder, target)
        gradient = argument(builder, arguments, AT.gradient)
        super().__init__(builder, AT, [arguments, source, gradient])

    def bounds(self) -> list[Value]:
        return self._bounds

    def emit_rows(self, rows: int) -> None:
        """Sum `rows` packed rows over the slab and store them."""
        b, self.rows = self.builder, rows
        # Of few positions stores would wait for their lines: those of the next rows are asked for, which follow these.
        bytes_ = rows * self.outputs * VECTOR_BYTES
        for place in range(bytes_, 2 * bytes_, LINE_BYTES):
            ahead = b.add(self._target, word(place))
            prefetch(b, ahead, write=True, level=1)
        self.emit([moved(b, self.target, index * LANES) for index in range(rows * self.outputs)])

    def beginning(self, targets: list[Value], spread: int) -> list[Value]:
        zeros = super().beginning(targets, spread)
        if spread > 1:  # such sums are of whole slabs
            return zeros
        b = self.builder
        grown = b.icmp_signed("!=", self._grown, word(0))
        return when(b, grown, zeros, lambda: [load_vector(b, target) for target in targets])

    def finished(self, totals: list[Value], targets: list[Value]) -> list[Value]:
        """Return the sums of others plus the slab's own."""
        b = self.builder
        first = moved(b, self.arguments, AT.earlier0)

        def body(index: Value, totals: list[Value]) -> list[Value]:
            # The distance to the target: others' sums lie as the target does.
            away = b.sub(b.load(moved(b, first, index)), self.field("target"))
            floats = b.ashr(away, word(2))
            # Others first, then ours: the order in which slabs are numbered.
            others = (load_vector(b, moved(b, target, floats)) for target in targets)
            return [add(b, other, total) for other, total in zip(others, totals, strict=True)]

        return counted_loop(b, self._earlier, totals, body, maybe_empty=True)

    def products(self, source: Value, gradient: Value) -> list[tuple[Value, Value]]:
        b = self.builder
        vectors = [
            load_vector(b, moved(b, gradient, b.mul(self.gradient_block, word(j))))
            for j in range(self.outputs)
        ]
        found = []
        # Each row's voxel is broadcast from memory and used for both vectors.
        for row in range(self.rows):
            voxel = load_broadcast(b, moved(b, source, b.mul(self.step, word(row))))
            found += [(vector, voxel) for vector in vectors]
        return found


@intrinsic(prefer_literal=True)
def _packed_rows(
    typingctx: Any,
    outputs: Any,
    step: Any,
    arguments: Any,
    source: Any,
    target: Any,
    inner_step: Any,
    grown: Any,
    earlier: Any,
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """The sums of `rows` <= ROWS[outputs - 1] packed rows over some positions of the task's slab; see `Slab`.

    `grown`: to be added to what lies at the target. `earlier`: how many sums of others are added.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        slab = _PackedRows(builder, outputs.literal_value, step.literal_value, list(args[2:-1]))
        most = ROWS[outputs.literal_value - 1]
        by_count(builder, args[-1], range(1, most + 1), slab.emit_rows)
        return context.get_dummy_value()

    return types.void(outputs, step, arguments, *[types.int64] * 10), codegen


@inlined
def _rows_at_once(outputs: int, args: Any, inner: int, passes: int) -> Any:
    """Return how many rows of positions all taps and channels of a row of taps take before the next ones; 0: all.

    So that these come from an L1 cache: `passes` times, of `inner` channels or planar taps.
    """
    parts = (inner + ROWS[outputs - 1] - 1) // ROWS[outputs - 1]
    # Fewer sums are kept several times, over the whole slab; sums of others may lie where parts of it would wait.
    if passes < PASSES or inner // parts * outputs < INDEPENDENT or args[AT.earlier] > 0:
        return 0
    row = 4 * (outputs * LANES + args[AT.source_x]) * args[AT.width]
    return max(1, NEAR_BYTES // row)


@njit(inline="always")
def _tap_rows(outputs: int, step: int, args: Any) -> None:
    """Sum all rows of taps of a task; each falls into parts of nearly equal numbers of packed rows."""
    planar = args[AT.source_lanes] == 1
    inner = args[AT.taps_x] if planar else args[AT.channels]
    inner_step = args[AT.tap_x] if planar else 1
    taps_x = 1 if planar else args[AT.taps_x]
    # Channels of taps that lie one behind the other, as packed rows do: parts need not end where a block does, so that
    # they fill the registers.
    if not planar and args[AT.tap_x] == inner:
        inner, taps_x = inner * taps_x, 1
    parts = (inner + ROWS[outputs - 1] - 1) // ROWS[outputs - 1]
    row_bytes = 4 * outputs * LANES
    near = _rows_at_once(outputs, args, inner, parts * taps_x)
    tap_z, tap_y = 0, args[AT.tap_row0]  # by steps: a division by a variable might raise
    while tap_y >= args[AT.taps_y]:
        tap_y -= args[AT.taps_y]
        tap_z += 1
    begin = args[AT.target] + args[AT.tap_row0] * taps_x * inner * row_bytes
    for _ in range(args[AT.tap_row0], args[AT.tap_row1]):
        # Where this row of taps sees what may be other than 0.
        before_z = args[AT.zeros_z] - tap_z * args[AT.dilation_z]
        before_y = args[AT.zeros_y] - tap_y * args[AT.dilation_y]
        z0, z1 = max(args[AT.z0], before_z), min(args[AT.z1], before_z + args[AT.size_z])
        y0, y1 = max(args[AT.y0], before_y), min(args[AT.y1], before_y + args[AT.size_y])
        offset = tap_z * args[AT.tap_z] + tap_y * args[AT.tap_y]
        # Of no positions one turn, which stores zeros, or what others have left.
        deep, high = max(1, z1 - z0), max(1, y1 - y0)
        if near and near < (z1 - z0) * (y1 - y0):
            deep, high = (near // high, high) if high <= near else (1, near)
        z, y, more = z0, y0, True
        while more:
            end_z, end_y = min(z1, z + deep), min(y1, y + high)
            last = end_z >= z1 and end_y >= y1
            target = begin
            for tap_x in range(taps_x):
                start = 0
                for share in range(parts):
                    rows = 1  # the rest divided by the remaining parts, rounded up
                    # A loop, as a division by a variable might raise.
                    while rows * (parts - share) < inner - start:
                        rows += 1
                    source = args[AT.source] + 4 * (
                        offset + tap_x * args[AT.tap_x] + start * inner_step
                    )
                    _packed_rows(
                        outputs,
                        step,
                        args,
                        source,
                        target,
                        inner_step,
                        int(z > z0 or y > y0),
                        args[AT.earlier] if last else 0,
                        z,
                        end_z,
                        y,
                        end_y,
                        rows,
                    )
                    target += rows * row_bytes
                    start += rows
            more = not last
            y = end_y
            if y >= y1:
                z, y = end_z, y0
        begin += taps_x * inner * row_bytes
        tap_y += 1
        if tap_y == args[AT.taps_y]:
            tap_y = 0
            tap_z += 1


def _weight_gradient(outputs: int, blocked: int) -> Kernel:
    """Declare the kernel for so many output blocks; `blocked`: the source has a vector for each voxel."""
    name = f"direct_weight_gradient{'' if blocked else '_planar'}_{outputs}"

    @kernel(AT, name=name)
    def weight_gradient(args: Any, worker: int) -> None:
        """All rows of taps of a group of output blocks. Words: see the module."""
        _tap_rows(outputs, blocked, args)

    return weight_gradient


# By number of output blocks, and whether the source is blocked.
KERNELS = {
    (outputs, blocked): _weight_gradient(outputs, blocked)
    for outputs in (1, 2)
    for blocked in (1, 0)
}


def weight_gradient_kernel(outputs: int, source_lanes: int) -> Kernel:
    """Return the kernel for a group of 1 or 2 output blocks (`outputs`) and a blocked or planar source."""
    return KERNELS[outputs, int(source_lanes > 1)]
