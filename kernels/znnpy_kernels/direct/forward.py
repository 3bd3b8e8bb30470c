"""Direct convolution: the forward pass, and the data gradient as the same kernel run backwards.

A register block holds the sums of OUTPUTS vectors of output images at up to POSITIONS
neighbouring x positions. Every turn of the innermost loop takes one input image at one tap: it loads
OUTPUTS filter vectors, broadcasts one input voxel per position and multiplies and adds.

The data gradient is the correlation of the output gradient with transposed filters
(`filters.transpose_filters`) and negative tap steps. Taps that fall outside the gradient along z and
y are left out; along x the gradient stands between zero halos of `gradient_halo` voxels, and a tap
is left out where it lies outside for all positions of a register block.

Argument words. Addresses in bytes; steps and strides in floats; all else counts.

    source, source_block        voxel read by tap 0 at output position (0, 0, 0); step between blocks
    source_z, source_y, source_x    step between output positions: stride of the convolution times
                                stride of the tensor
    source_lanes, channels      LANES, or 1 for a planar source; input images
    taps_z, taps_y, taps_x      filter size
    tap_z, tap_y, tap_x         step between taps: sparsity times stride of the tensor; negative in
                                the data gradient
    filters                     packed filters of one output group, at its first input block
    target, target_block        output position (0, 0, 0) of the group's first block; step to the next
    target_z, target_y          strides of the output; along x it is LANES
    z0, z1, y0, y1, width       output rows of this task, and their length in voxels
    limit_*, shift_*            tap k is taken at output position p only if 0 <= p + k * shift < limit:
                                forward (NO_LIMIT, 0); data gradient (size of the output gradient
                                without halo, -sparsity)
    accumulate                  0: overwrite the target; 1: add to it before bias and transfer
    bias, slope, output*, bias_gradient     see `direct.epilogue`

In the data gradient `source` is voxel (0, 0, 0) of the output gradient (the halo lies before it) and
`channels` counts the layer's output images. Nothing but the target rows is written. Tasks may run
concurrently if their targets are disjoint. A voxel's sum has the same order (input block, tap, image)
however a layer is cut into tasks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import EPILOGUE, finished
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS

# Register blocks: sums, filter vectors and one broadcast value fit the registers.
POSITIONS: tuple[int, int] = (14, 14) if REGISTERS == 32 else (12, 6)
NO_LIMIT = 1 << 40
# Sums under way that hide the latency of multiply-add (4 cycles).
INDEPENDENT = 4

AT = words(
    "source source_block source_z source_y source_x source_lanes channels taps_z taps_y taps_x "
    "tap_z tap_y tap_x filters target target_block target_z target_y z0 z1 y0 y1 width limit_z "
    "limit_y limit_x shift_z shift_y shift_x accumulate",
    EPILOGUE,
)


def gradient_halo(taps_x: int, dilation_x: int, planar: bool = False) -> int:
    """Zero voxels needed on both x sides of an output gradient's rows, for `taps_x` dilated taps.

    In a planar gradient no tap along x is left out.
    """
    if planar:
        return (taps_x - 1) * dilation_x
    return min((taps_x - 1) * dilation_x, max(*POSITIONS, LANES) - 1)


class _Block:
    """Emits register blocks: `outputs` vectors times some number of neighbouring x positions."""

    def __init__(
        self, builder: ir.IRBuilder, outputs: int, dense: bool, words: list[Value]
    ) -> None:
        self.builder = builder
        self.outputs = outputs
        self.arguments, source, target, output, self.inner_step, *inner = words[:8]
        self.blocks, self.inner, self.inner_last = inner
        self.z0, self.z1, self.y0, self.y1, self.x0, self.x1, self.taps_x = words[8:]
        self.source = float_pointer(builder, source)
        self.target = float_pointer(builder, target)
        self.output = float_pointer(builder, output)
        self.step = word(LANES) if dense else self.field("source_x")

    def field(self, name: str) -> Value:
        """One word of the kernel's argument block."""
        return self.builder.load(self.builder.gep(self.arguments, [word(getattr(AT, name))]))

    def emit(self, positions: int) -> None:
        """Compute and store one register block."""
        b = self.builder
        targets = self.places(self.target, "target_block", positions)
        sums = when(
            b,
            b.icmp_signed("!=", self.field("accumulate"), word(0)),
            [ZERO_VECTOR] * len(targets),
            lambda: [load_vector(b, target) for target in targets],
        )
        values = self.finish(self.input_blocks(sums), positions)
        for value, target in zip(values, targets, strict=True):
            store_vector(b, value, target)
        wanted = b.icmp_signed("!=", self.field("bias_gradient"), word(0))
        when(b, wanted, [], lambda: self.add_to_bias(values))

    def places(self, pointer: Value, block: str, positions: int) -> list[Value]:
        """Pointers to all vectors of the register block in one image; `block` names its stride."""
        b, stride = self.builder, self.field(block)
        return [
            moved(b, moved(b, pointer, b.mul(stride, word(j))), t * LANES)
            for t in range(positions)
            for j in range(self.outputs)
        ]

    def finish(self, sums: list[Value], positions: int) -> list[Value]:
        """Bias and transfer, or the transfer's gradient."""
        b = self.builder
        bias = float_pointer(b, self.field("bias"))
        return finished(
            b,
            self.field,
            sums,
            lambda: (
                [load_vector(b, moved(b, bias, j * LANES)) for j in range(self.outputs)] * positions
            ),
            lambda: [
                load_vector(b, place)
                for place in self.places(self.output, "output_block", positions)
            ],
        )

    def add_to_bias(self, values: list[Value]) -> list[Value]:
        """Add the register block's sum over positions to the task's bias gradient."""
        b = self.builder
        for j in range(self.outputs):
            place = moved(b, float_pointer(b, self.field("bias_gradient")), j * LANES)
            total = values[j]
            for value in values[j + self.outputs :: self.outputs]:
                total = add(b, total, value)
            store_vector(b, add(b, load_vector(b, place), total), place)
        return []

    def input_blocks(self, sums: list[Value]) -> list[Value]:
        """Add what all input blocks contribute."""
        b = self.builder
        taps = b.mul(b.mul(self.field("taps_z"), self.field("taps_y")), self.taps_x)
        filters = float_pointer(b, self.field("filters"))
        filter_block = b.mul(b.mul(taps, self.inner), word(self.outputs * LANES))
        source_block = self.field("source_block")

        def body(index: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            last = b.icmp_signed("==", b.add(index, word(1)), self.blocks)
            inner = b.select(last, self.inner_last, self.inner)
            sums = self.taps(source, filters, inner, sums)
            return [moved(b, source, source_block), moved(b, filters, filter_block), *sums]

        carried = [self.source, filters, *sums]
        return counted_loop(b, self.blocks, carried, body, maybe_empty=True)[2:]

    def taps(self, source: Value, filters: Value, inner: Value, sums: list[Value]) -> list[Value]:
        """Add the taps z0..z1, y0..y1, x0..x1 of one input block."""
        b = self.builder
        tap_z, tap_y, tap_x = (self.field(f"tap_{axis}") for axis in "zyx")
        filter_x = b.mul(inner, word(self.outputs * LANES))
        filter_y = b.mul(filter_x, self.taps_x)
        filter_z = b.mul(filter_y, self.field("taps_y"))

        def at(first: Value, source: Value, tap: Value, filters: Value, step: Value) -> list[Value]:
            return [moved(b, source, b.mul(first, tap)), moved(b, filters, b.mul(first, step))]

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
            sums = self.channels(source, filters, inner, sums)
            return [moved(b, source, tap_x), moved(b, filters, filter_x), *sums]

        start = at(self.z0, source, tap_z, filters, filter_z)
        return counted_loop(b, b.sub(self.z1, self.z0), [*start, *sums], along_z)[2:]

    def channels(
        self, source: Value, filters: Value, inner: Value, sums: list[Value]
    ) -> list[Value]:
        """Add one tap of all channels of one input block: the innermost loop."""
        b = self.builder

        def body(_: Value, carried: list[Value]) -> list[Value]:
            source, filters, *sums = carried
            weights = [load_vector(b, moved(b, filters, j * LANES)) for j in range(self.outputs)]
            new = []
            for t in range(len(sums) // self.outputs):
                voxel = load_broadcast(b, moved(b, source, b.mul(self.step, word(t))))
                for j, weight in enumerate(weights):
                    new.append(multiply_add(b, weight, voxel, sums[t * self.outputs + j]))
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
    z0: Any,
    z1: Any,
    y0: Any,
    y1: Any,
    x0: Any,
    x1: Any,
    taps_x: Any,
    positions: Any,
) -> tuple[Signature, Any]:
    """One register block of `positions` <= POSITIONS[outputs] x positions; see `_Block`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(builder, outputs.literal_value, bool(dense.literal_value), list(args[2:-1]))
        done = builder.append_basic_block("stored")
        choice = builder.switch(args[-1], done)
        for count in range(1, POSITIONS[outputs.literal_value - 1] + 1):
            choice.add_case(word(count), builder.append_basic_block(f"positions{count}"))
            builder.position_at_end(choice.cases[-1][1])
            block.emit(count)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(outputs, dense, arguments, *[types.int64] * 15), codegen


@part
def first_tap(low: int, high: int, shift: int, limit: int, taps: int) -> int:
    """The first tap k for which some of low..high, moved by k * shift, lies in [0, limit)."""
    tap = 0
    while tap < taps and (high + tap * shift < 0 or low + tap * shift >= limit):
        tap += 1
    return tap


@part
def end_tap(low: int, high: int, shift: int, limit: int, first: int, taps: int) -> int:
    """One past the last such tap; `first` where there is none."""
    end = taps
    while end > first and (high + (end - 1) * shift < 0 or low + (end - 1) * shift >= limit):
        end -= 1
    return end


@part
def _next_cut(x: int, width: int, outputs: int, shift: int, limit: int, taps: int) -> int:
    """Where a data gradient's row is to be cut next, so that all voxels between need the same taps.

    Blocks too small to hide the latency of multiply-add cost more than taps on zeros: then no cut.
    """
    cut = width
    if shift * outputs > -INDEPENDENT:
        return cut
    for tap in range(taps):
        for edge in (-tap * shift, limit - tap * shift):
            if x < edge < cut:
                cut = edge
    return cut


@njit(inline="always")
def _row(outputs: int, dense: int, args: Any, z: int, y: int, z0: int, z1: int) -> None:
    """One output row, in register blocks; z0..z1 are the taps to take along z."""
    source = args[AT.source] + 4 * (z * args[AT.source_z] + y * args[AT.source_y])
    target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
    output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    channels, width, shift_x = args[AT.channels], args[AT.width], args[AT.shift_x]
    # Planar sources have one channel a block: there the taps along x take the channels' place.
    planar = args[AT.source_lanes] == 1
    blocks = channels if planar else (channels + LANES - 1) // LANES
    inner = args[AT.taps_x] if planar else min(channels, LANES)
    inner_last = inner if planar else channels - (blocks - 1) * LANES
    inner_step = args[AT.tap_x] if planar else 1
    taps_x = 1 if planar else args[AT.taps_x]
    y0 = first_tap(y, y, args[AT.shift_y], args[AT.limit_y], args[AT.taps_y])
    y1 = end_tap(y, y, args[AT.shift_y], args[AT.limit_y], y0, args[AT.taps_y])
    x, cut, parts = 0, 0, 0
    while x < width:
        if x == cut:
            cut = _next_cut(x, width, outputs, shift_x, args[AT.limit_x], taps_x)
            parts = (cut - x + POSITIONS[outputs - 1] - 1) // POSITIONS[outputs - 1]
        positions = 1
        while positions * parts < cut - x:
            positions += 1
        parts -= 1
        last = x + positions - 1
        x0 = first_tap(x, last, shift_x, args[AT.limit_x], taps_x)
        x1 = end_tap(x, last, shift_x, args[AT.limit_x], x0, taps_x)
        some = z0 < z1 and y0 < y1 and x0 < x1
        _register_block(
            outputs,
            dense,
            args,
            source + 4 * x * args[AT.source_x],
            target + 4 * x * LANES,
            output + 4 * x * LANES,
            inner_step,
            blocks if some else 0,
            inner,
            inner_last,
            z0,
            z1,
            y0,
            y1,
            x0,
            x1,
            taps_x,
            positions,
        )
        x += positions


@njit(inline="always")
def _rows(outputs: int, dense: int, args: Any) -> None:
    """All output rows of a task."""
    if args[AT.bias_gradient]:
        for lane in range(outputs * LANES):
            floats(args[AT.bias_gradient])[lane] = 0.0
    for z in range(args[AT.z0], args[AT.z1]):
        z0 = first_tap(z, z, args[AT.shift_z], args[AT.limit_z], args[AT.taps_z])
        z1 = end_tap(z, z, args[AT.shift_z], args[AT.limit_z], z0, args[AT.taps_z])
        for y in range(args[AT.y0], args[AT.y1]):
            _row(outputs, dense, args, z, y, z0, z1)


@kernel(AT)
def direct_forward_1(args: Any, worker: int) -> None:
    """One output block; x positions are neighbouring voxels. Words: see the module."""
    _rows(1, 1, args)


@kernel(AT)
def direct_forward_2(args: Any, worker: int) -> None:
    """Two output blocks; x positions are neighbouring voxels. Words: see the module."""
    _rows(2, 1, args)


@kernel(AT)
def direct_forward_strided_1(args: Any, worker: int) -> None:
    """One output block; any step between x positions, planar sources. Words: see the module."""
    _rows(1, 0, args)


@kernel(AT)
def direct_forward_strided_2(args: Any, worker: int) -> None:
    """Two output blocks; any step between x positions, planar sources. Words: see the module."""
    _rows(2, 0, args)


def forward_kernel(outputs: int, source_x: int) -> Kernel:
    """The kernel for a group of `outputs` (1 or 2) output blocks and x positions `source_x` floats apart."""
    dense, strided = (
        (direct_forward_1, direct_forward_strided_1),
        (direct_forward_2, direct_forward_strided_2),
    )[outputs - 1]
    return dense if source_x == LANES else strided
