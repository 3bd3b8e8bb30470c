"""Data gradient of fully connected layers, whose filters see all of an image: filters are read as they lie.

    dx[sample][vector of inputs] = sum over outputs of dy[sample][output] * filters[output][vector of inputs]

A vector of inputs is a block of channels at one tap; of a last block of channels that are at most half of the lanes
and divide them, it is several taps, each of which gets a vector of its own once all is summed. Its filters are
exchanged into a worker's scratch, [output][lane], just before all samples multiply them: no exchanged copy of all
filters is written, and read again, at each update. Two vectors are done at once, and as many outputs as the L1 cache
holds filters of, beside what these are multiplied with.
Sums have the order of `direct.forward` with exchanged filters: by output.

Argument words. Addresses in bytes; steps in floats; all else counts.

    gradient, gradient_block    first output of the first sample; step from block to block. Samples of a block lie side
                                by side
    filters                     packed for the forward pass (`packed_filters`), of all channels
    target, target_block        first sample, block and tap; step from block to block. [sample][tap][lane] in a block
    samples, outputs, inputs, taps  real counts
    vector0, vector1            vectors of this task, numbered by block, then tap; `vectors_of` are all
    scratch, scratch_worker     64-byte aligned; worker w owns SCRATCH floats from w * scratch_worker

Nothing but the target's vectors is written. Tasks on different vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.forward import POSITIONS
from znnpy_kernels.direct.weight_gradient import LINE_BYTES
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
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
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, transpose_tile
from znnpy_kernels.simd.vectors import below, load, load_masked, store

TOGETHER = 2  # vectors of inputs: each float of the gradient is broadcast once for both
SCRATCH = 1 << 12
"""Floats of exchanged filters at once: half of an L1 cache of 32 KiB."""
AT = words(
    "gradient gradient_block filters target target_block samples outputs inputs taps vector0 vector1 scratch "
    "scratch_worker"
)


def _together(inputs: int) -> int:
    # Of no channels in a last block that is not whole: one tap as well.
    held = inputs % LANES
    return LANES // held if held and LANES % held == 0 else 1


def vectors_of(inputs: int, taps: int) -> int:
    """Return how many vectors so many inputs of a sample are at so many taps."""
    together = _together(inputs)
    return inputs // LANES * taps + (-(-taps // together) if inputs % LANES else 0)


_taps_together = inlined(_together)


@inlined
def _place(args: Any, vector: int) -> Any:
    """Return block, first tap, number of taps and channels of a vector."""
    inputs, taps = args[AT.inputs], args[AT.taps]
    whole = inputs // LANES
    if vector < whole * taps:
        block = vector // taps
        return block, vector - block * taps, 1, LANES
    together = _taps_together(inputs)
    tap = (vector - whole * taps) * together
    return whole, tap, min(together, taps - tap), inputs - whole * LANES


@intrinsic
def _ask(typingctx: Any, place: Any, lines: Any) -> tuple[Signature, Any]:
    """Ask for some lines from a place on, into the L2 cache."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        start, count = args

        def line(_: Value, carried: list[Value]) -> list[Value]:
            prefetch(builder, carried[0], write=False, level=2)
            return [builder.add(carried[0], ir.Constant(WORD, LINE_BYTES))]

        counted_loop(builder, count, [start], line, maybe_empty=True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def _products(
    typingctx: Any,
    vectors: Any,
    filters: Any,
    gradient: Any,
    gradient_block: Any,
    outputs: Any,
    target: Any,
    second: Any,
    step: Any,
    accumulate: Any,
    samples: Any,
) -> tuple[Signature, Any]:
    """Write up to POSITIONS samples of one or two vectors, at `target` and `second`; `step`: from sample to sample.

    `filters`: [output][vector][lane]; `accumulate`: 1 adds to what stands there, 0 overwrites.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, count = builder, vectors.literal_value
        _, filters, gradient, gradient_block, outputs, target, second, step, more, samples = args
        starts = [float_pointer(b, it) for it in (target, second)[:count]]
        begin = [float_pointer(b, gradient), float_pointer(b, filters)]
        blocks = b.sdiv(outputs, word(LANES))
        rest = b.sub(outputs, b.mul(blocks, word(LANES)))

        def emit(together: int) -> None:
            def output(_: Value, carried: list[Value]) -> list[Value]:
                here, filters, *sums = carried
                own = [load_vector(b, moved(b, filters, j * LANES)) for j in range(count)]
                places = (moved(b, here, t * LANES) for t in range(together))
                new = add_outer(b, own, places, sums)
                return [moved(b, here, 1), moved(b, filters, count * LANES), *new]

            def block(_: Value, carried: list[Value]) -> list[Value]:
                following = moved(b, carried[0], gradient_block)
                return [following, *counted_loop(b, word(LANES), carried, output)[1:]]

            places = [
                moved(b, start, b.mul(step, word(t))) for t in range(together) for start in starts
            ]
            sums = when(
                b,
                b.icmp_signed("!=", more, word(0)),
                [ZERO_VECTOR] * len(places),
                lambda: [load_vector(b, place) for place in places],
            )
            sums = counted_loop(b, blocks, [*begin, *sums], block, maybe_empty=True)
            sums = counted_loop(b, rest, sums, output, maybe_empty=True)[2:]
            for total, place in zip(sums, places, strict=True):
                store_vector(b, total, place)

        by_count(b, samples, range(1, POSITIONS[count - 1] + 1), emit)
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 9), codegen


@inlined
def _exchange(args: Any, vector: int, vectors: int, low: int, high: int, target: int) -> None:
    """Write a vector's filters of blocks low..high of outputs, [output][vector][lane]; ask for the next vectors'."""
    outputs, inputs, taps = args[AT.outputs], args[AT.inputs], args[AT.taps]
    step, (block, tap, together, channels) = VECTOR_BYTES * vectors, _place(args, vector)
    # Rows of packed filters: taps lie one behind the other, channels within.
    first, held = block * LANES * taps + tap * channels, together * channels
    blocks, border = cover(outputs, LANES), scratch_tile()
    for number in range(low, high):
        group = number // 2
        width = LANES * min(2, blocks - 2 * group)
        start = group * 2 * LANES * inputs * taps + first * width
        source = args[AT.filters] + 4 * (start + (number - 2 * group) * LANES)
        here, left = target + step * LANES * (number - low), min(LANES, outputs - number * LANES)
        if number == 2 * group:
            _ask(source + 4 * vectors * held * width, 4 * held * width // LINE_BYTES)
        if left == LANES and held == LANES:
            transpose_tile(source, 4 * width, here, step)
        else:
            # By a tile on the stack: lanes beyond the last input become zeros.
            load_tile(source, 4 * width, held, left, border)
            transpose_tile(border, VECTOR_BYTES, border, VECTOR_BYTES)
            for output in range(left):
                store(here + step * output, load(border + VECTOR_BYTES * output))


@inlined
def _target(args: Any, vector: int) -> Any:
    """Return where the first sample's vector goes: to its first tap."""
    block, tap, _, _ = _place(args, vector)
    return args[AT.target] + 4 * (block * args[AT.target_block] + tap * LANES)


@inlined
def _multiply(vectors: int, args: Any, vector: int, low: int, high: int, scratch: int) -> None:
    """Add the products of blocks low..high of outputs, for all samples; the first ones overwrite the target."""
    step, samples = args[AT.taps] * LANES, args[AT.samples]
    first, second = _target(args, vector), _target(args, vector + vectors - 1)
    gradient = args[AT.gradient] + 4 * low * args[AT.gradient_block]
    outputs = min(high * LANES, args[AT.outputs]) - low * LANES
    parts, sample = cover(samples, POSITIONS[vectors - 1]), 0
    for part in range(parts):
        count = 1  # the rest divided by the remaining parts, rounded up
        while count * (parts - part) < samples - sample:
            count += 1
        _products(
            vectors,
            scratch,
            gradient + VECTOR_BYTES * sample,
            args[AT.gradient_block],
            outputs,
            first + 4 * step * sample,
            second + 4 * step * sample,
            step,
            low,
            count,
        )
        sample += count


@inlined
def _spread(args: Any, vector: int) -> None:
    """Write each tap's channels of a vector of several, and zeros behind them."""
    _, _, together, channels = _place(args, vector)
    if together == 1:
        return
    step, target, room = 4 * args[AT.taps] * LANES, _target(args, vector), scratch_tile()
    inside = below(channels)
    for sample in range(args[AT.samples]):
        place = target + step * sample
        store(room, load(place))
        for tap in range(together):
            own = load_masked(room + 4 * tap * channels, inside)
            store(place + VECTOR_BYTES * tap, own)


@inlined
def _panel(vectors: int, args: Any, vector: int, scratch: int) -> None:
    """Compute one or two vectors of inputs of all samples."""
    blocks, most = cover(args[AT.outputs], LANES), SCRATCH // (vectors * LANES * LANES)
    for low in range(0, blocks, most):
        high = min(blocks, low + most)
        for own in range(vectors):
            _exchange(args, vector + own, vectors, low, high, scratch + VECTOR_BYTES * own)
        _multiply(vectors, args, vector, low, high, scratch)
    for own in range(vectors):
        _spread(args, vector + own)


@kernel(AT)
def dense_gradient(args: Any, worker: int) -> None:
    """Some vectors of inputs of all samples. Words: see the module."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    pairs = (args[AT.vector1] - args[AT.vector0]) // TOGETHER
    for pair in range(pairs):
        _panel(2, args, args[AT.vector0] + TOGETHER * pair, scratch)
    for vector in range(args[AT.vector0] + TOGETHER * pairs, args[AT.vector1]):
        _panel(1, args, vector, scratch)
