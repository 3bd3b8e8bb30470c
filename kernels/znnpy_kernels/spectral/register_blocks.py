"""Register blocks of complex products: sums of some rows times one or two complex vectors.

A complex vector is LANES real parts, then LANES imaginary parts. Each term loads the vectors,
broadcasts real and imaginary part of one number a row, and multiplies and adds. Of 32 registers three times a pair, in
place of four (Gauss): with p = sum of (a + b) c, (a + bi) (c + di) adds up to p - sum of b (c + d) and
p - sum of a (c - d). Sums of two parts are rounded once more; cores that add beside their multiply-adds lose no time.
16 registers hold nine such sums: what is done beside multiply-adds takes longer than a fourth one, with twelve sums.

Spectra stream from memory, so a block asks for what the next ones need: every CHUNK terms for a few
cache lines of three streams. Asking for all at once would fill the buffers that the loads of the
sums themselves need; asking within the terms would take registers that the sums need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import pack_array, unpack_tuple
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
    add,
    counted_loop,
    first_lanes,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    prefetch,
    store_masked,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS

GAUSS = REGISTERS == 32
"""Whether a product takes three multiplications, not four."""
SUMS = 3 if GAUSS else 2  # registers of a complex sum
# Complex vectors of a register block: two where registers hold their factors beside the sums.
VECTORS = 2 if REGISTERS == 32 else 1
# Rows of a register block with one and with two vectors: 24 or 18 sums of 32 registers, 12 of 16. What is left holds
# the factors of each vector, and what a row multiplies them with.
ROWS: tuple[int, int] = (8, 3) if REGISTERS == 32 else (6, 2)
PAIR = 2 * LANES  # floats of a complex vector
# A power of two, as chunks are counted by a shift; a divisor of LANES, so that a block of channels ends with a
# chunk.
CHUNK = 4  # terms from request to request: a power of two that divides LANES
# Of all CPUs that kernels are compiled for.
LINE = 64  # bytes of a cache line
# Positions: `asked` takes the last one for writing.
STREAMS = 3  # that are asked for ahead: two are read, the last is written


def asked(b: ir.IRBuilder, ahead: Sequence[Value], paces: Sequence[Value]) -> list[Value]:
    """Return the streams after a request for the next lines of each; paces: bytes, and from request to request."""
    return [
        _lines(b, start, *paces[2 * i : 2 * i + 2], write=i == STREAMS - 1)
        for i, start in enumerate(ahead)
    ]


def _lines(b: ir.IRBuilder, start: Value, pace: Value, step: Value, *, write: bool) -> Value:
    """Ask for lines every `step` bytes of the next `pace` bytes; the address behind them."""
    end = b.add(start, pace)
    entry, line, done = b.block, b.append_basic_block("line"), b.append_basic_block("asked")
    b.branch(line)
    b.position_at_end(line)
    # At least one request, as a pace is at least a byte.
    here = b.phi(WORD)
    here.add_incoming(start, entry)
    # To the L2 cache: in L1 they would displace what the terms use. Written ones come by L1.
    prefetch(b, here, write=write, level=1 if write else 2)
    following = b.add(here, step)
    here.add_incoming(following, line)
    # A number of turns that LLVM cannot compute: it would unroll them.
    b.cbranch(b.icmp_unsigned("<", following, end), line, done)
    b.position_at_end(done)
    return end


class _Block:
    """Emits register blocks of some rows times `vectors` complex vectors; words as below."""

    def __init__(
        self, builder: ir.IRBuilder, vectors: int, conjugate: int, words: Sequence[list[Value]]
    ) -> None:
        self.builder, self.vectors, self.conjugate = builder, vectors, conjugate
        scalars, vector, target, sums, self.paces, self.ahead = words
        self.scalars, self.row, self.turn, self.jump, self.scalar_parts = scalars
        self.vector, self.vector_turn, self.vector_step, self.vector_parts = vector
        self.target, self.target_row, self.target_step, self.target_parts, self.lanes = target
        self.terms, self.accumulate = sums

    def emit(self, rows: int) -> list[Value]:
        """Compute and store one register block; where the streams have arrived."""
        b = self.builder
        targets = [
            moved(b, self._target(row, vector), part)
            for row in range(rows)
            for vector in range(self.vectors)
            for part in (0, self.target_parts)
        ]
        before = when(
            b,
            b.icmp_signed("!=", self.accumulate, word(0)),
            # Zeros unless it adds: one body for both, the choice is made once a block.
            [ZERO_VECTOR] * len(targets),
            lambda: [load_vector(b, target) for target in targets],
        )
        ahead, sums = self._sums(self._begun(before))
        values = self._values(sums)
        if self.conjugate:
            # Gradients of filters have zeros in the lanes beyond the channels, as transforms back read whole vectors.
            inside = first_lanes(b, self.lanes)
            for index in self._last(len(values)):
                values[index] = b.select(inside, values[index], ZERO_VECTOR)
            self._store(values, targets)
            return ahead
        # With masks only where a vector is not whole: AVX2 takes some ten times as long for such stores.
        with b.if_else(b.icmp_signed(">=", self.lanes, word(LANES))) as (whole, cut):
            with whole:
                self._store(values, targets)
            with cut:
                self._store(values, targets, self._last(len(values)))
        return ahead

    def _begun(self, before: Sequence[Value]) -> list[Value]:
        """Return the sums to begin with, of real and imaginary parts that are there."""
        if not GAUSS:
            return list(before)
        # Negated, as the sums that begin with it are subtracted.
        b, begun = self.builder, list[Value]()
        for real, imaginary in zip(before[::2], before[1::2], strict=True):
            begun += [ZERO_VECTOR, b.fneg(imaginary), b.fneg(real)]
        return begun

    def _values(self, sums: Sequence[Value]) -> list[Value]:
        """Return real and imaginary parts of the sums."""
        if not GAUSS:
            return list(sums)
        b, values = self.builder, list[Value]()
        for shared, imaginary, real in zip(sums[::3], sums[1::3], sums[2::3], strict=True):
            values += [b.fsub(shared, real), b.fsub(shared, imaginary)]
        return values

    def _last(self, parts: int) -> list[int]:
        """Return which of real and imaginary parts are of the last vector of a row: all others are whole."""
        return [part for part in range(parts) if part // 2 % self.vectors + 1 == self.vectors]

    def _store(
        self, values: Sequence[Value], targets: Sequence[Value], cut: Sequence[int] = ()
    ) -> None:
        """Store values; of those that are `cut` the lanes beyond are left alone: in packed tiles the next tile's."""
        b = self.builder
        inside = first_lanes(b, self.lanes) if cut else None
        for index, (value, target) in enumerate(zip(values, targets, strict=True)):
            if index in cut:
                store_masked(b, value, target, inside)
            else:
                store_vector(b, value, target)

    def _target(self, row: int, vector: int) -> Value:
        b = self.builder
        start = float_pointer(b, self.target)
        along = moved(b, start, b.mul(self.target_row, word(row)))
        return moved(b, along, b.mul(self.target_step, word(vector)))

    def _sums(self, sums: list[Value]) -> tuple[list[Value], list[Value]]:
        """Streams and sums after all terms, CHUNK by CHUNK."""
        b = self.builder

        def chunk(index: Value, carried: list[Value]) -> list[Value]:
            ahead, rest = asked(b, carried[:STREAMS], self.paces), carried[STREAMS:]
            first = b.mul(index, word(CHUNK))
            left = b.sub(self.terms, first)
            count = b.select(b.icmp_signed("<", left, word(CHUNK)), left, word(CHUNK))
            scalars, *rest = counted_loop(b, count, rest, self._term)
            # After LANES terms the next block begins: `jump` leads there.
            last = b.icmp_signed("==", b.and_(first, word(LANES - 1)), word(LANES - CHUNK))
            return [*ahead, moved(b, scalars, b.select(last, self.jump, word(0))), *rest]

        # Rounded up; the last chunk may be shorter.
        chunks = b.ashr(b.add(self.terms, word(CHUNK - 1)), word(CHUNK.bit_length() - 1))
        starts = [float_pointer(b, self.scalars), float_pointer(b, self.vector)]
        after = counted_loop(b, chunks, [*self.ahead, *starts, *sums], chunk)
        return after[:STREAMS], after[STREAMS + 2 :]

    def _term(self, _: Value, carried: list[Value]) -> list[Value]:
        """Add one term for all rows and vectors: the innermost loop."""
        b = self.builder
        scalars, vector, *sums = carried
        starts = [moved(b, vector, b.mul(self.vector_step, word(j))) for j in range(self.vectors)]
        factors = [self._factors(start) for start in starts]
        new: list[Value] = []
        others = moved(b, scalars, self.scalar_parts)
        # The three sums of each row and vector lie side by side in the list.
        for row in range(len(sums) // (SUMS * self.vectors)):
            along = b.mul(self.row, word(row))
            real = load_broadcast(b, moved(b, scalars, along))
            imaginary = load_broadcast(b, moved(b, others, along))
            for own in factors:
                new += self._added(own, real, imaginary, sums[len(new) : len(new) + SUMS])
        return [moved(b, scalars, self.turn), moved(b, vector, self.vector_turn), *new]

    def _factors(self, start: Value) -> tuple[Value, ...]:
        """What a vector's sums multiply: c, c - d and c + d, or c and d; of its conjugate with d negated."""
        b = self.builder
        real = load_vector(b, start)
        imaginary = load_vector(b, moved(b, start, self.vector_parts))
        if not GAUSS:
            return real, imaginary
        less, more = b.fsub(real, imaginary), add(b, real, imaginary)
        return (real, more, less) if self.conjugate else (real, less, more)

    def _added(
        self, own: Sequence[Value], real: Value, imaginary: Value, sums: Sequence[Value]
    ) -> list[Value]:
        """Return the sums of a row and vector after one term."""
        b = self.builder
        if GAUSS:
            scalars = (add(b, real, imaginary), real, imaginary)
            return list(map(multiply_add, [b] * SUMS, own, scalars, sums))
        c, d = own
        negated = b.fneg(d)
        one, other = (negated, d) if self.conjugate else (d, negated)
        first = multiply_add(b, real, c, sums[0]), multiply_add(b, real, one, sums[1])
        return [
            multiply_add(b, imaginary, other, first[0]),
            multiply_add(b, imaginary, c, first[1]),
        ]


def by_rows(
    b: ir.IRBuilder,
    rows: Value,
    most: int,
    streams: list[Value],
    emit: Callable[[int], list[Value]],
) -> list[Value]:
    """Emit a case of code for each number of rows up to `most`, whose sums are registers.

    Returns where `streams` have arrived: `emit` says it of each number of rows; unmoved of others.
    """
    entry, done = b.block, b.append_basic_block("stored")
    choice = b.switch(rows, done)
    arrived = [(streams, entry)]
    for count in range(1, most + 1):
        choice.add_case(word(count), b.append_basic_block(f"rows{count}"))
        b.position_at_end(choice.cases[-1][1])
        ends = emit(count)
        arrived.append((ends, b.block))
        b.branch(done)
    b.position_at_end(done)
    merged = [b.phi(WORD) for _ in streams]
    for ends, origin in arrived:
        for phi, end in zip(merged, ends, strict=True):
            phi.add_incoming(end, origin)
    return merged


@intrinsic(prefer_literal=True)
def register_block(
    typingctx: Any,
    vectors: Any,
    conjugate: Any,
    scalars: Any,
    vector: Any,
    target: Any,
    sums: Any,
    paces: Any,
    ahead: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """Compute one register block of `rows` <= ROWS[vectors - 1] rows; return where its streams have arrived.

    `vectors` and `conjugate`, of the vectors and not of the scalars, are literals.
    scalars: address, steps from row to row and from term to term, further step after LANES terms,
    and to imaginary parts; vector: address, steps from term to term, from the first to the second, and
    to imaginary parts; target: address, steps from row to row, from vector to vector and to imaginary
    parts, and lanes of the last vector: those beyond are not written, or become 0 in conjugate blocks;
    sums: terms, 1 to add to the target;
    paces: bytes a chunk and from request to request, of each stream; ahead: their addresses.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        words = [unpack_tuple(builder, arg) for arg in args[2:-1]]
        block = _Block(builder, vectors.literal_value, conjugate.literal_value, words)
        most = ROWS[vectors.literal_value - 1]
        return pack_array(builder, by_rows(builder, args[-1], most, words[-1], block.emit))

    given = (vectors, conjugate, scalars, vector, target, sums, paces, ahead, types.int64)
    return types.UniTuple(types.int64, STREAMS)(*given), codegen
