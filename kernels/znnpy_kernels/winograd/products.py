"""Products of one point of Winograd's transforms: tiles [tile][lane] times filters [input][vector][lane]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
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
from znnpy_kernels.simd.lanes import LANES, REGISTERS

# Rows of a register block with one and with two vectors: their sums, and the filters, fit the registers.
ROWS: tuple[int, int] = (28, 14) if REGISTERS == 32 else (12, 6)


def by_count(b: ir.IRBuilder, count: Value, most: int, emit: Callable[[int], None]) -> None:
    """Code of its own for each count from 1 to `most`; none runs for others."""
    done = b.append_basic_block("stored")
    choice = b.switch(count, done)
    for number in range(1, most + 1):
        choice.add_case(word(number), b.append_basic_block(f"count{number}"))
        b.position_at_end(choice.cases[-1][1])
        emit(number)
        b.branch(done)
    b.position_at_end(done)


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
        number, words = vectors.literal_value, list(args[1:-1])
        most = ROWS[number - 1]
        by_count(builder, args[-1], most, lambda rows: _emit(builder, number, rows, words))
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
