"""Products at the points of Winograd's transforms: one small matrix product a point.

Tiles times filters are summed over input channels, for one point or for the points of one column of planes; for weight
gradients see `gradient_products`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add_outer,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.winograd.asked_lines import AskedLines
from znnpy_kernels.winograd.early_requests import ask, turns_of

# Rows of a register block with one, two and three vectors: their sums, and the filters, fit the registers.
# 28 sums, a filter and a broadcast of 32 registers; with two vectors 14 * 2 sums and two filters. Of 16: 12
# sums, and the rest as before.
ROWS: tuple[int, int, int] = (28, 14, 9) if REGISTERS == 32 else (12, 6, 4)
TRIPLES = REGISTERS == 16
"""Whether the last three of an odd number of vectors are multiplied at once: 12 sums of one vector need 13 loads, for
which such CPUs take longer than for the products; of three vectors 7. With 32 registers voxels are operands in memory
of multiply-adds, and triples have not been measured."""

PAIR = 2  # vectors whose filters lie side by side, input by input


def _products_of(grown: bool) -> Any:
    """Return the intrinsic whose sums begin with what is there (`grown`) or with zeros."""

    def products(
        typingctx: Any,
        vectors: Any,
        source: Any,
        source_block: Any,
        filters: Any,
        blocks: Any,
        last: Any,
        target: Any,
        target_block: Any,
        rows: Any,
        asked: Any,
    ) -> tuple[Signature, Any]:
        """`rows` <= ROWS[vectors - 1] tiles times `vectors` vectors of outputs, summed over inputs.

        Inputs lie in `blocks` blocks of LANES, `last` of them in the last one. Of three vectors, filters of a
        pair come first, then those of the last one. Addresses and steps in bytes; tiles lie LANES floats apart. Each
        sum is taken in the order of the inputs. Sources are read before targets are written: these may lie in the same
        place. `asked`: what each input asks for (`asked_lines`), or None.
        """

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            number, words = vectors.literal_value, list(args[1:-2])
            early = AskedLines.of(builder, asked, args[-1])
            # A case of code for each count: sums are in registers, so their number is a constant.
            counts = range(1, ROWS[number - 1] + 1)

            def emit(rows: int) -> None:
                _over_inputs(builder, number, rows, words, grown, early)

            by_count(builder, args[-2], counts, emit)
            return context.get_dummy_value()

        return types.void(vectors, *[types.int64] * 8, asked), codegen

    return intrinsic(prefer_literal=True)(products)


products, grown_products = _products_of(False), _products_of(True)


def _over_inputs(
    b: ir.IRBuilder, vectors: int, rows: int, words: list[Value], grown: bool, early: AskedLines
) -> None:
    *own, target, target_block = words
    places = sum_places(b, vectors, rows, target, target_block)
    before = [load_vector(b, place) if grown else ZERO_VECTOR for place in places]
    sums = summed(b, vectors, rows, own, early, before)
    # Written when all is read: targets may be the place of the sources (`room`).
    for value, place in zip(sums, places, strict=True):
        store_vector(b, value, place)


def sum_places(
    b: ir.IRBuilder, vectors: int, rows: int, target: Value, target_block: Value
) -> list[Value]:
    """Return the places of the sums of a register block: those of a row one after the other."""
    starts = [float_pointer(b, b.add(target, b.mul(target_block, word(j)))) for j in range(vectors)]
    return [moved(b, start, row * LANES) for row in range(rows) for start in starts]


def summed(
    b: ir.IRBuilder,
    vectors: int,
    rows: int,
    words: list[Value],
    early: AskedLines,
    before: list[Value],
) -> list[Value]:
    """Return the sums of a register block after all inputs, which were `before`; words as those of `products`."""
    source, source_block, filters, blocks, last = words
    # Vectors that lie side by side, input by input: pairs, and a last one alone.
    widths = [PAIR, vectors - PAIR] if vectors > PAIR else [vectors]

    def block(index: Value, carried: list[Value]) -> list[Value]:
        start, *others = carried
        final = b.icmp_signed("==", b.add(index, word(1)), blocks)
        # Only the last block may have fewer channels than lanes.
        count = b.select(final, last, word(LANES))
        _, *others = counted_loop(b, count, [float_pointer(b, start), *others], term)
        return [b.add(start, source_block), *others]

    def term(_: Value, carried: list[Value]) -> list[Value]:
        scalars, filters = carried[0], carried[1 : 1 + len(widths)]
        asked, sums = early.ask(b, carried[1 + len(widths) :])
        weights = [
            load_vector(b, moved(b, start, j * LANES))
            for start, width in zip(filters, widths, strict=True)
            for j in range(width)
        ]
        new = add_outer(b, weights, (moved(b, scalars, row * LANES) for row in range(rows)), sums)
        further = [
            moved(b, *pair) for pair in zip(filters, [it * LANES for it in widths], strict=True)
        ]
        return [moved(b, scalars, 1), *further, *asked, *new]

    # Two loops, blocks and their channels, as channels of a block lie side by side and blocks far apart.
    inputs = b.add(b.mul(b.sub(blocks, word(1)), word(LANES)), last)
    behind = [b.mul(inputs, word(PAIR * VECTOR_BYTES * number)) for number in range(len(widths))]
    filters = [float_pointer(b, b.add(filters, by)) for by in behind]
    carried = [source, *filters, *early.starts, *before]
    return counted_loop(b, blocks, carried, block)[-len(before) :]


def odd_bytes(vectors: int) -> int:
    """A step over so many vectors: an odd number of lines, so that steps do not fall on one set of the caches."""
    return (vectors | 1) * VECTOR_BYTES


def room(inputs: int, outputs: int) -> Any:
    """Blocks of a point, and the first of its products: up to two may overwrite what they are made of."""
    # Up to two vectors of outputs are one register block over all inputs, so nothing reads the tiles after
    # them; with more, the next pair still needs them.
    return (max(inputs, outputs), 0) if outputs <= 2 else (inputs + outputs, inputs)


# Tiles of a march at once, two register blocks of products: with more, points and filters of a column leave the L1
# cache (docs/design/winograd.md, *One pass*); with fewer, filters are read more often.
GROUP = 2 * ROWS[0]
compiled_odd_bytes, compiled_room = inlined(odd_bytes), inlined(room)


@inlined
def triple_of(outputs: int) -> Any:
    """Return 1 if so many vectors of outputs end in three that are multiplied at once, else 0."""
    return 1 if TRIPLES and outputs % 2 and outputs > 2 else 0


@inlined
def _nothing(filters: int, bytes_: int, part: int, parts: int, inputs: int) -> None:
    """Nothing is asked for, as filters come from caches."""


@inlined
def _next_filters(filters: int, bytes_: int, part: int, parts: int, inputs: int) -> Any:
    """What each input of a part of a register block asks for: its share of the filters behind `bytes_` of these."""
    # One part reads filters all the time, in their order, which the hardware foresees.
    if parts == 1:
        return filters, 0
    # Evenly over all inputs of all parts: requests in bursts would keep all others waiting.
    return filters + bytes_ + part * bytes_ // parts, cover(bytes_, inputs * parts)


def _multiply_of(asked_of: Any, asked_alone: Any) -> Any:
    """The inlined products of blocks; `asked_of`: `(filters, bytes, part, parts, inputs)`, what products ask for.

    `asked_alone`: the same of single vectors.
    """

    @inlined
    def multiply(
        many: int,
        inputs: int,
        outputs: int,
        count: int,
        filters: int,
        points: int,
        point: int,
        block: int,
        behind: int,
        skipped: int,
        early: Any,
    ) -> None:
        """Products as `multiply` makes them, of blocks `block` bytes apart, `behind` bytes behind their tiles."""
        blocks, last = cover(inputs, LANES), inputs - (cover(inputs, LANES) - 1) * LANES
        # Equal parts rather than full ones and a rest: a small register block leaves multiply-adds waiting for each
        # other.
        singles, pairs, triples = (
            cover(count, ROWS[0]),
            cover(count, ROWS[1]),
            cover(count, ROWS[2]),
        )
        together, triple = turns_of(outputs), triple_of(outputs)
        for number in range(many):
            source = points + number * point
            target = source + behind
            # Two vectors of outputs at a time, for which a broadcast is used twice.
            for pair in range(outputs // 2 - triple):
                for part in range(pairs):
                    by, end = part * count // pairs, (part + 1) * count // pairs
                    ask(early, number * together + pair, by, end)
                    here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                    asked = asked_of(filters, 2 * inputs * VECTOR_BYTES, part, pairs, inputs)
                    products(2, here, block, filters, blocks, last, there, block, end - by, asked)
                filters += 2 * inputs * VECTOR_BYTES
                target += 2 * block
            if triple:
                for part in range(triples):
                    by, end = part * count // triples, (part + 1) * count // triples
                    ask(early, number * together + outputs // 2 - 1, by, end)
                    here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                    asked = asked_of(filters, 3 * inputs * VECTOR_BYTES, part, triples, inputs)
                    products(3, here, block, filters, blocks, last, there, block, end - by, asked)
                filters += 3 * inputs * VECTOR_BYTES
            elif outputs % 2:
                for part in range(singles):
                    by, end = part * count // singles, (part + 1) * count // singles
                    if outputs == 1:
                        ask(early, number, by, end)
                    here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                    asked = asked_alone(filters, inputs * VECTOR_BYTES, part, singles, inputs)
                    products(1, here, block, filters, blocks, last, there, block, end - by, asked)
                filters += inputs * VECTOR_BYTES
            filters += skipped

    return multiply


multiply_blocks = _multiply_of(_nothing, _nothing)
multiply_far = _multiply_of(_next_filters, _next_filters)
"""The same with filters that come from memory, each once: they are asked for evenly."""
multiply_next = _multiply_of(_next_filters, _nothing)
"""The same with filters that come from further caches; not of single vectors, whose loads take longer than products."""


@inlined
def multiply(
    many: int,
    inputs: int,
    outputs: int,
    count: int,
    filters: int,
    points: int,
    point: int,
    start: int,
    skipped: int,
    early: Any,
) -> None:
    """Products of `count` tiles with filters, from block `start` on, in the place of the tiles or behind them.

    Of `many` points, `point` bytes from each other, tiles side by side; `outputs` counts blocks. `skipped`: bytes of
    the filters of other outputs between those of one point and of the next. `early`: what is asked for meanwhile, or
    None (`early_requests`).
    """
    block = many * point
    multiply_blocks(
        many, inputs, outputs, count, filters, points, point, block, start * block, skipped, early
    )
