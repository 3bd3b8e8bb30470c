"""Products of one point of Winograd's transforms: tiles [tile][lane] times filters [input][vector][lane]."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.lanes import LANES, REGISTERS
from znnpy_kernels.simd import (
    ZERO_VECTOR,
    Value,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)

# Rows of a register block with one and with two vectors: their sums, and the filters, fit the registers.
ROWS: tuple[int, int] = (28, 14) if REGISTERS == 32 else (12, 6)


@intrinsic(prefer_literal=True)
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
) -> tuple[Signature, Any]:
    """`rows` <= ROWS[vectors - 1] tiles times `vectors` vectors of outputs, summed over inputs.

    Inputs lie in `blocks` blocks of LANES, `last` of them in the last one. Addresses and steps in
    bytes; tiles lie LANES floats apart. Each sum is taken in the order of the inputs. Sources are
    read before targets are written: these may lie in the same place.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        done = builder.append_basic_block("stored")
        choice = builder.switch(args[-1], done)
        for count in range(1, ROWS[vectors.literal_value - 1] + 1):
            choice.add_case(word(count), builder.append_basic_block(f"rows{count}"))
            builder.position_at_end(choice.cases[-1][1])
            _emit(builder, vectors.literal_value, count, list(args[1:-1]))
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 8), codegen


def _emit(b: ir.IRBuilder, vectors: int, rows: int, words: list[Value]) -> None:
    source, source_block, filters, blocks, last, target, target_block = words

    def block(index: Value, carried: list[Value]) -> list[Value]:
        start, filters, *sums = carried
        final = b.icmp_signed("==", b.add(index, word(1)), blocks)
        count = b.select(final, last, word(LANES))
        inner = [float_pointer(b, start), filters, *sums]
        _, filters, *sums = counted_loop(b, count, inner, term)
        return [b.add(start, source_block), filters, *sums]

    def term(_: Value, carried: list[Value]) -> list[Value]:
        scalars, filters, *sums = carried
        weights = [load_vector(b, moved(b, filters, j * LANES)) for j in range(vectors)]
        new = []
        for row in range(rows):
            voxel = load_broadcast(b, moved(b, scalars, row * LANES))
            for j, weight in enumerate(weights):
                new.append(multiply_add(b, weight, voxel, sums[row * vectors + j]))
        return [moved(b, scalars, 1), moved(b, filters, vectors * LANES), *new]

    zeros = [ZERO_VECTOR] * (rows * vectors)
    _, _, *sums = counted_loop(b, blocks, [source, float_pointer(b, filters), *zeros], block)
    for j in range(vectors):
        start = float_pointer(b, b.add(target, b.mul(target_block, word(j))))
        for row in range(rows):
            store_vector(b, sums[row * vectors + j], moved(b, start, row * LANES))
