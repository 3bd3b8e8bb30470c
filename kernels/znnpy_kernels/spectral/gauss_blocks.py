"""Register blocks of complex products as three real ones, one after the other (Gauss).

With numbers a + bi of rows, c + di of vectors, and p = sum of (a + b) c:

    sum of (a + bi) (c + di)  =  p - sum of b (c + d)  +  (p - sum of a (c - d)) i

where four multiplications are usual. What is added to numbers and vectors is made before, once for many register
blocks, so that each of the three sums has loops of multiply-adds alone, and all registers: three vectors of 4 rows or
two of 6. p waits in memory for the second one that begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import pack_array, unpack_tuple
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add,
    add_outer,
    counted_loop,
    first_lanes,
    float_pointer,
    load_vector,
    moved,
    store_masked,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS
from znnpy_kernels.spectral.register_blocks import STREAMS, asked, by_rows

SUMS = 12 if REGISTERS == 16 else 24
"""Vectors that are summed at once: rows times vectors at most."""
MOST_VECTORS = 3


class _Block:
    """Emits register blocks of some rows times `vectors` vectors; words as below."""

    def __init__(
        self, builder: ir.IRBuilder, vectors: int, filters: int, words: Sequence[list[Value]]
    ) -> None:
        self.builder, self.vectors, self.filters = builder, vectors, filters
        added, parts, factors, target, sums, self.paces, self.ahead = words
        self.added, *self.added_steps = added
        self.real, self.imaginary, *self.steps = parts
        self.factors, self.turn, self.step, self.of_imaginary, self.of_real = factors
        self.target, self.target_row, self.target_step, self.target_parts, self.lanes = target
        self.terms, self.accumulate, room = sums
        self.room = float_pointer(builder, room)

    def emit(self, rows: int) -> list[Value]:
        """Compute and store one register block; where the streams have arrived."""
        b, count = self.builder, rows * self.vectors
        rooms = [moved(b, self.room, index * LANES) for index in range(count)]
        own = word(self.vectors * LANES), word(LANES)
        first = (self.factors, self.turn, self.step)
        begun = [ZERO_VECTOR] * count
        shared = self._sums(rows, self.added, self.added_steps, first, begun, asking=True)
        for value, room in zip(shared, rooms, strict=True):
            store_vector(b, value, room)
        targets = self._targets(rows)
        begun = self._begun(targets, lambda: shared)
        following = (self.of_imaginary, *own)
        self._store(self._sums(rows, self.imaginary, self.steps, following, begun), targets)
        targets = [moved(b, target, self.target_parts) for target in targets]
        begun = self._begun(targets, lambda: [load_vector(b, room) for room in rooms])
        following = (self.of_real, *own)
        self._store(self._sums(rows, self.real, self.steps, following, begun), targets)
        return self.ahead

    def _targets(self, rows: int) -> list[Value]:
        """Return where the real parts go, row by row."""
        b, start = self.builder, float_pointer(self.builder, self.target)
        lines = [moved(b, start, b.mul(self.target_row, word(row))) for row in range(rows)]
        steps = [b.mul(self.target_step, word(vector)) for vector in range(self.vectors)]
        return [moved(b, line, step) for line in lines for step in steps]

    def _begun(self, targets: Sequence[Value], shared: Any) -> list[Value]:
        """Return what sums begin with: the shared one, and what stands there if it is added to."""
        b, values = self.builder, shared()

        def added() -> list[Value]:
            pairs = zip(values, targets, strict=True)
            return [add(b, value, load_vector(b, target)) for value, target in pairs]

        return when(b, b.icmp_signed("!=", self.accumulate, word(0)), values, added)

    def _sums(
        self,
        rows: int,
        scalars: Value,
        steps: Sequence[Value],
        factors: Sequence[Value],
        sums: Sequence[Value],
        *,
        asking: bool = False,
    ) -> list[Value]:
        """Return the sums after all terms; `asking` for lines of the streams, LANES terms by LANES."""
        b, (row, turn, jump), (place, along, step) = self.builder, steps, factors

        def term(_: Value, carried: list[Value]) -> list[Value]:
            scalars, vector, *sums = carried
            own = [
                load_vector(b, moved(b, vector, b.mul(step, word(j)))) for j in range(self.vectors)
            ]
            places = (moved(b, scalars, b.mul(row, word(index))) for index in range(rows))
            new = add_outer(b, own, places, sums)
            return [moved(b, scalars, turn), moved(b, vector, along), *new]

        starts = [float_pointer(b, scalars), float_pointer(b, place)]
        if self.filters and not asking:  # tiles have no blocks
            return counted_loop(b, self.terms, [*starts, *sums], term)[2:]

        def block(index: Value, carried: list[Value]) -> list[Value]:
            ahead = carried[:STREAMS]
            if asking:
                ahead = asked(b, ahead, self.paces)
            left = b.sub(self.terms, b.mul(index, word(LANES)))
            count = b.select(b.icmp_signed("<", left, word(LANES)), left, word(LANES))
            scalars, *rest = counted_loop(b, count, carried[STREAMS:], term)
            return [*ahead, moved(b, scalars, jump), *rest]

        blocks = b.ashr(b.add(self.terms, word(LANES - 1)), word(LANES.bit_length() - 1))
        after = counted_loop(b, blocks, [*self.ahead, *starts, *sums], block)
        self.ahead = after[:STREAMS]
        return after[STREAMS + 2 :]

    def _store(self, values: list[Value], targets: Sequence[Value]) -> None:
        """Store values: of the last vector of each row the lanes that hold channels, or zeros in the others."""
        b, last = self.builder, range(self.vectors - 1, len(values), self.vectors)
        if self.filters:
            # Gradients of filters have zeros in the lanes beyond the channels, as transforms back read whole vectors.
            inside = first_lanes(b, self.lanes)
            for index in last:
                values[index] = b.select(inside, values[index], ZERO_VECTOR)
            self._store_all(values, targets)
            return
        # With masks only where a vector is not whole: AVX2 takes some ten times as long for such stores.
        with b.if_else(b.icmp_signed(">=", self.lanes, word(LANES))) as (whole, cut):
            with whole:
                self._store_all(values, targets)
            with cut:
                inside = first_lanes(b, self.lanes)
                self._store_all(values, targets, skipped=last)
                for index in last:
                    store_masked(b, values[index], targets[index], inside)

    def _store_all(
        self, values: Sequence[Value], targets: Sequence[Value], skipped: Sequence[int] = ()
    ) -> None:
        for index, (value, target) in enumerate(zip(values, targets, strict=True)):
            if index not in skipped:
                store_vector(self.builder, value, target)


@intrinsic(prefer_literal=True)
def gauss_block(
    typingctx: Any,
    vectors: Any,
    filters: Any,
    added: Any,
    parts: Any,
    factors: Any,
    target: Any,
    sums: Any,
    paces: Any,
    ahead: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of `rows` <= SUMS // vectors rows; return where its streams have arrived.

    `vectors` and `filters` (whether lanes beyond the last vector's become 0, or are not written) are literals.
    added: address of sums of real and imaginary parts, steps from row to row and from term to term, further step after
    LANES terms; parts: addresses of real and of imaginary parts, and the same steps; factors: address of what sums are
    multiplied with, steps from term to term and from vector to vector, and addresses of what imaginary and real parts
    are multiplied with, negated, which lie dense; target: address, steps from row to row, from vector to vector and to
    imaginary parts, and lanes of the last vector;
    sums: terms, 1 to add to the target, room for SUMS vectors;
    paces: bytes for LANES terms and from request to request, of each stream; ahead: their addresses.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        words = [unpack_tuple(builder, arg) for arg in args[2:-1]]

        def emit(count: int) -> list[Value]:
            return _Block(builder, vectors.literal_value, filters.literal_value, words).emit(count)

        most = SUMS // vectors.literal_value
        return pack_array(builder, by_rows(builder, args[-1], most, words[-1], emit))

    given = (vectors, filters, added, parts, factors, target, sums, paces, ahead, types.int64)
    return types.UniTuple(types.int64, STREAMS)(*given), codegen
