"""Direct convolution: the forward pass, and the data gradient by the same kernel with transposed filters.

A register block holds the sums of OUTPUTS vectors of output channels at up to POSITIONS
neighbouring x positions. Every turn of the innermost loop takes one input channel at one tap: it loads
OUTPUTS filter vectors, broadcasts one input voxel per position and multiplies and adds.

The data gradient is the correlation of the output gradient with transposed filters
(`packed_filters.transpose_filters`) and negative tap steps. Taps that fall outside the gradient along z and
y are left out; along x the gradient may stand between zero halos of `gradient_halo` voxels: a tap is then
left out where it lies outside for all positions of a register block.

With a stride the data gradient is polyphase: voxel i of the target meets tap k only where
i + origin - k * apart is a multiple of the stride, and then reads voxel (i + origin - k * apart) / stride of
the gradient. Along each axis the taps of a voxel are `first`, `first` + skip, ..., the same for all voxels
of a lattice, and read neighbours: on each lattice it is a dense correlation with some of the taps.
Rows are made in their order, each lattice of a row after the other, so that sources are read from
near caches. A lattice without taps gets zeros. Transposed convolution is the same.

Argument words. Addresses in bytes; steps and strides in floats; all else counts.

    source, source_block        voxel read by tap 0 at output position (0, 0, 0); step between blocks
    source_z, source_y, source_x    step between output positions: stride of the convolution times
                                stride of the tensor
    source_lanes, channels      LANES, or 1 for a planar source; input channels
    taps_z, taps_y, taps_x      filter size
    tap_z, tap_y, tap_x         step between taps of a lattice: sparsity times stride of the tensor;
                                in the data gradient its `shift` times that
    filters                     packed filters of one output group, at its first input block
    target, target_block        output position (0, 0, 0) of the group's first block; step to the next
    target_z, target_y          strides of the output; along x it is LANES
    z0, z1, y0, y1, width       output rows of this task, and their length in voxels
    lattice_*, skip_*, origin_*, apart_*    forward (1, 1, 0, 0); data gradient (stride, stride / g,
                                voxels of padding before the image, sparsity), with g the greatest
                                common divisor of stride and sparsity. Planar sources and `few`: 1, 1 along x
    limit_*, shift_*            tap number k of a lattice is taken at place p only if
                                0 <= p + k * shift < limit: forward (NO_LIMIT, 0); data gradient (size of
                                the output gradient without halo, -sparsity / g); see `full_words`
    halo                        1: zeros stand round the rows of the source (`gradient_halo`); 0: no
                                voxel outside of them is read
    accumulate                  0: overwrite the target; 1: add to it before bias and transfer
    bias, slope, slopes, output*, bias_gradient     see `direct.epilogue`

In the data gradient `source` is voxel (0, 0, 0) of the output gradient (the halo lies before it) and
`channels` counts the layer's output channels. Nothing but the target rows is written. Tasks may run
concurrently if their targets are disjoint. A voxel's sum has the same order (input block, tap, image)
however a layer is cut into tasks.
"""

from __future__ import annotations

from functools import partial, reduce
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
from znnpy_kernels.direct.epilogue import EPILOGUE
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
    add,
    add_outer,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    prefetch,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS

# Register blocks: sums, filter vectors and one broadcast value fit the registers.
# 14 positions, or 14 times two vectors: 28 sums, two filters, a broadcast of 32 registers; with one vector 14
# sums hide the latency already. Of 16: 12 or 6 * 2.
POSITIONS: tuple[int, int] = (14, 14) if REGISTERS == 32 else (12, 6)
# Independent sums that hide the latency of multiply-add (4 cycles).
# Below that a register block waits for its own additions.
INDEPENDENT = 4
UNROLLED = REGISTERS == 16
LINE_FLOATS = 16  # of a cache line
NEAR_FLOATS = 1 << 13  # of an L1 cache

AT = words(
    "source source_block source_z source_y source_x source_lanes channels taps_z taps_y taps_x "
    "tap_z tap_y tap_x filters target target_block target_z target_y z0 z1 y0 y1 width "
    "lattice_z lattice_y lattice_x skip_z skip_y skip_x origin_z origin_y origin_x "
    "apart_z apart_y apart_x limit_z limit_y limit_x shift_z shift_y shift_x halo accumulate",
    EPILOGUE,
)


def gradient_halo(taps_x: int, dilation_x: int, planar: bool = False) -> int:
    """Return the zero voxels needed on both x sides of an output gradient's rows, for `taps_x` dilated taps.

    In a planar gradient no tap along x is left out.
    """
    # Planar: taps along x take the channels' place in the innermost loop, which has no test.
    if planar:
        return (taps_x - 1) * dilation_x
    # A block covers at most so many positions: with one position inside, the others read so far beyond.
    return min((taps_x - 1) * dilation_x, max(*POSITIONS, LANES) - 1)


class Block(RegisterBlock):
    """A vector holds LANES output channels of one position: sums [position][vector of channels]."""

    def __init__(
        self, builder: ir.IRBuilder, outputs: int, dense: bool, words: list[Value]
    ) -> None:
        arguments, source, target, output, self.inner_step, *inner = words[:8]
        self.blocks, self.inner, self.inner_last = inner
        *taps, self.taps_x = words[8:]
        super().__init__(builder, AT, outputs, [arguments, source, target, output, *taps])
        self.dense, self.step = dense, word(LANES) if dense else self.field("source_x")

    def places(self, pointer: Value, block: str, positions: int) -> list[Value]:
        b, stride = self.builder, self.field(block)
        along = self.along()
        return [
            moved(b, moved(b, pointer, b.mul(stride, word(j))), b.mul(along, word(t)))
            for t in range(positions)
            for j in range(self.outputs)
        ]

    def along(self) -> Value:
        """Return the floats from position to position in the target: `lattice_x` voxels."""
        return self.builder.mul(self.field("lattice_x"), word(LANES))

    def load(self, place: Value, positions: int) -> Value:
        return load_vector(self.builder, place)

    def store(self, value: Value, place: Value, positions: int) -> None:
        store_vector(self.builder, value, place)

    def sums(self, positions: int) -> list[Value]:
        b, target_block = self.builder, self.field("target_block")
        for number in range(self.outputs):
            start = moved(b, self.target, b.mul(target_block, word(number)))
            self.ask_ahead(start, positions, self.along(), write=True)
        # What is there is the start of the sums, so their order is that of the blocks.
        before = when(
            self.builder,
            self.asked("accumulate"),
            [ZERO_VECTOR] * (positions * self.outputs),
            lambda: self.loaded(self.target, "target_block", positions),
        )
        return self.input_blocks(before)

    def biases(self, bias: Value, positions: int) -> list[Value]:
        b = self.builder
        return [load_vector(b, moved(b, bias, j * LANES)) for j in range(self.outputs)] * positions

    def bias_sums(self, values: list[Value], positions: int) -> list[Value]:
        return [
            # In the order of positions.
            reduce(partial(add, self.builder), values[j :: self.outputs])
            for j in range(self.outputs)
        ]

    def input_blocks(self, sums: list[Value]) -> list[Value]:
        """Add what all input blocks contribute."""
        b = self.builder
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), self.taps_x)
        filters = float_pointer(b, self.field("filters"))
        vectors = word(self.outputs * LANES)
        filter_block = b.mul(b.mul(taps, self.inner), vectors)
        source_block = self.field("source_block")
        unseen, (one, number, first) = self.unseen(taps), self.one_tap(self.taps_x)

        # Loops over taps, whose addresses do not fit the registers, take a quarter of the time of one tap: where layers
        # grow, by strides as long as their filters, and where filters have one.
        def tap_of_block(index: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            inner = self.inner_of(index)
            here = moved(b, filters, b.mul(number, b.mul(inner, vectors)))
            with b.if_then(apart):
                self.ask_lines(moved(b, here, filter_block), LANES * self.outputs * LANES)
                if self.dense:
                    positions = len(sums) // self.outputs
                    self.ask_lines(moved(b, source, source_block), positions * LANES)
            sums = self.channels(inner, unseen, source, here, sums)
            return [moved(b, source, source_block), moved(b, filters, filter_block), *sums]

        # Filters of one tap of the next block lie behind those of its other taps: nothing sees them coming where the
        # near cache does not hold all.
        floats = b.mul(filter_block, self.blocks)
        apart = b.and_(
            b.icmp_signed(">", taps, word(1)), b.icmp_signed(">", floats, word(NEAR_FLOATS))
        )
        whole = self.whole_rows(taps)

        def tap_row(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            sums = self.channels(b.mul(self.inner, self.taps_x), None, source, filters, sums)
            return [moved(b, source, source_block), moved(b, filters, filter_block), *sums]

        def block(inner: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            # Of dense positions that see no voxels twice filters have one tap.
            tap = partial(self.channels, inner, None if self.dense else unseen)
            sums = self.taps(source, filters, b.mul(inner, vectors), self.taps_x, sums, tap)
            return [moved(b, source, source_block), moved(b, filters, filter_block), *sums]

        def full(_: Value, carried: list[Value]) -> list[Value]:
            return block(word(LANES), carried)

        def body(index: Value, carried: list[Value]) -> list[Value]:
            return block(self.inner_of(b.add(index, done)), carried)

        def taken_alone() -> list[Value]:
            carried = [first, filters, *sums]
            return counted_loop(b, self.blocks, carried, tap_of_block, maybe_empty=True)[2:]

        sums = when(b, one, sums, taken_alone)
        # Maybe empty: no block where no tap lies inside, or when all are done.
        rest = b.select(one, word(0), b.sub(self.blocks, whole))
        carried = [self.source, filters, *sums]
        if not self.dense:
            carried = counted_loop(b, whole, carried, tap_row, maybe_empty=True)
        done = whole
        if UNROLLED and self.outputs > 1:
            # A known number of turns needs no loop.
            fulls = b.sub(rest, self.fewer())
            some = b.and_(
                b.icmp_signed("==", self.inner, word(LANES)), b.icmp_signed(">", fulls, word(0))
            )
            fulls = b.select(some, fulls, word(0))
            carried = counted_loop(b, fulls, carried, full, maybe_empty=True)
            done, rest = b.add(whole, fulls), b.sub(rest, fulls)
        return counted_loop(b, rest, carried, body, maybe_empty=True)[2:]

    def fewer(self) -> Value:
        """Return 1 if the last block has fewer channels than the others, else 0."""
        b = self.builder
        return b.zext(b.icmp_signed("<", self.inner_last, self.inner), WORD)

    def whole_rows(self, taps: Value) -> Value:
        """Return how many blocks' channels and taps lie one behind the other, as those of fully connected layers.

        They are one loop then: one over the channels of each tap alone has but LANES turns.
        """
        b = self.builder
        if self.dense:
            return word(0)
        equal = [
            (taps, self.taps_x),
            (self.field("tap_x"), word(LANES)),
            (self.inner, word(LANES)),
            (self.first, word(0)),
            (self.x0, word(0)),
            (self.x1, self.taps_x),
        ]
        several = b.icmp_signed(">", self.taps_x, word(1))
        row = reduce(b.and_, (b.icmp_signed("==", *pair) for pair in equal), several)
        # The last block may have fewer channels. There are no blocks where no tap lies inside.
        blocks = b.sub(self.blocks, self.fewer())
        some = b.icmp_signed(">", blocks, word(0))
        return b.select(b.and_(row, some), blocks, word(0))

    def ask_lines(self, place: Value, floats: int, *, write: bool = False) -> None:
        """Ask for the lines of so many floats."""
        b = self.builder
        for first in range(0, floats, LINE_FLOATS):
            prefetch(b, b.ptrtoint(moved(b, place, first), WORD), write=write, level=1)

    def inner_of(self, index: Value) -> Value:
        """Channels, or planar taps, of an input block."""
        # Only the last block may have fewer channels; its filters are packed without padding.
        b = self.builder
        last = b.icmp_signed("==", b.add(index, word(1)), self.blocks)
        return b.select(last, self.inner_last, self.inner)

    def unseen(self, taps: Value) -> Value:
        """Whether no two positions see the same voxels: others are in a cache when the next register block comes."""
        b = self.builder
        if self.dense:
            return b.icmp_signed("==", taps, word(1))
        # With a stride of as many voxels as there are taps along x, or of more. Planar voxels share their lines.
        apart = b.icmp_signed(">=", self.step, b.mul(self.taps_x, self.field("tap_x")))
        return b.and_(apart, b.icmp_signed(">=", self.step, word(LANES)))

    def ask_ahead(self, start: Value, positions: int, step: Value, *, write: bool) -> None:
        """Ask for the lines of one vector at each position of the next register block."""
        b = self.builder
        # Many blocks of channels are more streams than a CPU sees by itself: 128 channels of 32^3, one tap, take
        # 6.4 ms without, 5.2 with. So are rows with a stride: the data gradient of a layer that grows 48 -> 24
        # channels onto 20 x 128^2 takes 7.9 ms in place of 17 to 25. Offsets are those of the products.
        following = moved(b, start, b.mul(step, word(positions)))
        for position in range(positions):
            place = moved(b, following, b.mul(step, word(position)))
            prefetch(b, b.ptrtoint(place, WORD), write=write, level=1)

    def channels(
        self, inner: Value, unseen: Value | None, source: Value, filters: Value, sums: list[Value]
    ) -> list[Value]:
        """Add one tap of all channels of one input block: the innermost loop."""
        b = self.builder
        if unseen is not None:
            with b.if_then(unseen):
                self.ask_ahead(source, len(sums) // self.outputs, self.step, write=False)

        def body(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            weights = [load_vector(b, moved(b, filters, j * LANES)) for j in range(self.outputs)]
            # Voxels are broadcast straight from memory: no register holds them.
            positions = range(len(sums) // self.outputs)
            voxels = (moved(b, source, b.mul(self.step, word(t))) for t in positions)
            new = add_outer(b, weights, voxels, sums)
            following = moved(b, filters, self.outputs * LANES)
            return [moved(b, source, self.inner_step), following, *new]

        return counted_loop(b, inner, [source, filters, *sums], body)[2:]


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    outputs: Any,
    dense: Any,
    arguments: Any,
    source: Any,
    target: Any,
    output: Any,
    inner_step: Any,
    blocks: Any,
    inner: Any,
    inner_last: Any,
    first: Any,
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    x0: Any,
    x1: Any,
    taps_x: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of `positions` <= POSITIONS[outputs - 1] x positions; see `Block`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = Block(builder, outputs.literal_value, bool(dense.literal_value), list(args[2:-1]))
        most = POSITIONS[outputs.literal_value - 1]
        # A case of code for each number of positions up to the most.
        by_count(builder, args[-1], range(1, most + 1), block.emit)
        return context.get_dummy_value()

    return types.void(outputs, dense, arguments, *[types.int64] * 16), codegen


@part
def _next_cut(x: int, end: int, outputs: int, shift: int, limit: int, taps: int, halo: int) -> int:
    """Return where to cut a data gradient's row next, so that all voxels between need the same taps.

    Blocks too small to hide the latency of multiply-add cost more than taps on zeros: then no cut.
    """
    cut = end
    # Few voxels between edges: the small blocks that a cut would leave cost more than taps on the halo's zeros.
    # Without a halo a cut is needed.
    if halo and shift * outputs > -INDEPENDENT:
        return cut
    for tap in range(taps):
        # Where a tap comes in, and where it goes out.
        for edge in (-tap * shift, limit - tap * shift):
            if x < edge < cut:
                cut = edge
    return cut


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
    target = 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    # Lattices of a row one after the other: the row of the gradient is in near caches for all but the first.
    for x in range(min(args[AT.lattice_x], args[AT.width])):
        _lattice_row(
            outputs,
            dense,
            args,
            x,
            source,
            args[AT.target] + target + 4 * x * LANES,
            args[AT.output] + output + 4 * x * LANES,
            first * args[AT.taps_y] + first_y,
            z0,
            z1,
            y0,
            y1,
        )


@njit(inline="always")
def _lattice_row(
    outputs: int,
    dense: int,
    args: Any,
    start: int,
    source: int,
    target: int,
    output: int,
    tap_row: int,
    z0: int,
    z1: int,
    y0: int,
    y1: int,
) -> None:
    """Voxels `start`, `start` + lattice, ... of a row, in register blocks; `tap_row`: its first tap's."""
    channels, shift_x, lattice = args[AT.channels], args[AT.shift_x], args[AT.lattice_x]
    # Planar sources have one channel a block: there the taps along x take the channels' place.
    planar = args[AT.source_lanes] == 1
    blocks = channels if planar else (channels + LANES - 1) // LANES
    inner = args[AT.taps_x] if planar else min(channels, LANES)
    inner_last = inner if planar else channels - (blocks - 1) * LANES
    inner_step = args[AT.tap_x] if planar else 1
    all_x = 1 if planar else args[AT.taps_x]
    here, apart = start + args[AT.origin_x], args[AT.apart_x]
    first = lattice_tap(here, apart, lattice, all_x)
    taps_x = lattice_taps(first, args[AT.skip_x], all_x)
    x = lattice_place(here, apart, lattice, first)
    end = x + lattice_taps(start, lattice, args[AT.width])
    # Back to where place 0 would be: x counts places of the source.
    target -= 4 * x * lattice * LANES
    output -= 4 * x * lattice * LANES
    cut, parts = x, 0
    # Cuts first, then equal parts between them: no block has but few positions.
    while x < end:
        if x == cut:
            cut = _next_cut(x, end, outputs, shift_x, args[AT.limit_x], taps_x, args[AT.halo])
            parts = (cut - x + POSITIONS[outputs - 1] - 1) // POSITIONS[outputs - 1]
        # The rest divided by the parts, rounded up, by subtraction: a division by a variable might raise.
        positions = 1
        while positions * parts < cut - x:
            positions += 1
        parts -= 1
        last = x + positions - 1
        x0, x1 = taps_inside(x, last, shift_x, args[AT.limit_x], taps_x)
        some = z0 < z1 and y0 < y1 and x0 < x1
        _register_block(
            outputs,
            dense,
            args,
            source + 4 * x * args[AT.source_x],
            target + 4 * x * lattice * LANES,
            output + 4 * x * lattice * LANES,
            inner_step,
            # No block where no tap meets it: sums are then 0, or what stood there.
            blocks if some else 0,
            inner,
            inner_last,
            tap_row * all_x + first,
            z0,
            z1,
            y0,
            y1,
            x0,
            x1,
            all_x,
            positions,
        )
        x += positions


_rows = rows_of(AT, _row)


def _forward(outputs: int, dense: int) -> Kernel:
    """Declare the kernel for so many output blocks; `dense`: x positions are neighbouring voxels."""
    name = f"direct_forward_{outputs}" if dense else f"direct_forward_strided_{outputs}"

    @kernel(AT, name=name)
    def forward(args: Any, worker: int) -> None:
        """All rows of a group of output blocks. Words: see the module."""
        _rows(outputs, dense, args)

    return forward


# By number of output blocks, and whether x positions are neighbouring voxels.
KERNELS = {(outputs, dense): _forward(outputs, dense) for outputs in (1, 2) for dense in (1, 0)}


def forward_kernel(outputs: int, source_x: int) -> Kernel:
    """Return the kernel for a group of 1 or 2 output blocks (`outputs`) and x positions `source_x` floats apart."""
    # A constant step is part of an address; any other is a multiplication a position.
    return KERNELS[outputs, int(source_x == LANES)]
