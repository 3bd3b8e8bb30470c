"""Products of one place of strided tiles (`strided`, `strided_back`): terms that are added up in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.asked_lines import AskedLines
from znnpy_kernels.winograd.products import PAIR, ROWS, sum_places, summed, triple_of


@intrinsic(prefer_literal=True)
def _products(
    typingctx: Any,
    vectors: Any,
    table: Any,
    terms: Any,
    by: Any,
    behind: Any,
    source_block: Any,
    blocks: Any,
    last: Any,
    target: Any,
    target_block: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """`rows` tiles times `vectors` vectors of outputs, summed over the inputs of all `terms`.

    `table`: addresses of voxels and of filters of each term, to which `by` and `behind` are added, and of the filters
    that come next; else as `products.products`.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, number = builder, vectors.literal_value
        _, table, terms, by, behind, source_block, blocks, last, target, target_block, _ = args

        def emit(rows: int) -> None:
            def term(index: Value, sums: list[Value]) -> list[Value]:
                entry = b.add(table, b.shl(index, word(4)))
                source, filters, following = (
                    b.add(b.load(b.inttoptr(b.add(entry, word(at)), WORD.as_pointer())), more)
                    for at, more in ((0, by), (8, behind), (24, behind))
                )
                # Nothing else sees the filters of the next term coming, which lie elsewhere.
                asked = AskedLines([following], [word(min(number, PAIR) * VECTOR_BYTES)])
                own = [source, source_block, filters, blocks, last]
                return summed(b, number, rows, own, asked, sums)

            places = sum_places(b, number, rows, target, target_block)
            sums = counted_loop(b, terms, [ZERO_VECTOR] * len(places), term)
            for value, place in zip(sums, places, strict=True):
                store_vector(b, value, place)

        by_count(b, args[-1], range(1, ROWS[number - 1] + 1), emit)
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 10), codegen


@inlined
def _parts(
    vectors: Any,
    table: int,
    terms: int,
    behind: int,
    step: int,
    blocks: int,
    last: int,
    target: int,
    target_block: int,
    count: int,
) -> None:
    """`_products` of all tiles, in equal parts rather than full ones and a rest."""
    parts = cover(count, ROWS[vectors - 1])
    for part in range(parts):
        first, end = part * count // parts, (part + 1) * count // parts
        by = first * VECTOR_BYTES
        _products(
            vectors, table, terms, by, behind, step, blocks, last, target + by, target_block, end - first
        )  # fmt: skip


@inlined
def sum_terms(
    table: int,
    terms: int,
    inputs: int,
    outputs: int,
    step: int,
    target: int,
    target_block: int,
    count: int,
) -> None:
    """Products of one place of `count` tiles and `outputs` vectors, of all `inputs` and `terms`, from `target` on.

    `table`: addresses of voxels and of filters of each term, two words, and room for one more; `step`,
    `target_block`: bytes from block to block of voxels and of sums.
    """
    blocks = cover(inputs, LANES)
    last, behind = inputs - (blocks - 1) * LANES, 0
    # Behind the last term's filters follow the first one's of the next outputs.
    entries = longs(table)
    entries[2 * terms + 1] = entries[1] + 2 * inputs * VECTOR_BYTES
    triple = triple_of(outputs)
    for _ in range(outputs // 2 - triple):
        _parts(2, table, terms, behind, step, blocks, last, target, target_block, count)
        behind += 2 * inputs * VECTOR_BYTES
        target += 2 * target_block
    if triple:
        _parts(3, table, terms, behind, step, blocks, last, target, target_block, count)
    elif outputs % 2:
        _parts(1, table, terms, behind, step, blocks, last, target, target_block, count)
