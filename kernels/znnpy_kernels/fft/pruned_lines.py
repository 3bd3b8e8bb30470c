"""Pruned Fourier transforms of lines: few taps to many frequencies and back, as dense products.

A line's elements are vectors of neighbouring complex64 columns. Roots come in conjugate pairs, so
frequencies k and n - k, or voxels z and n - z, share their multiplications: half of the definition's.
All of it works in place, through a column of vectors on the stack.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.simd.codegen import (
    VECTOR,
    ZERO_VECTOR,
    Value,
    counted_loop,
    first_lanes,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vectors import below, load_masked, store_masked

# Room on the stack, 16 KiB with AVX-512; `expand` and `contract` need one pair for each tap of a line.
MOST_TAPS = 64

_I32 = ir.IntType(32)
# Neighbours exchanged: real and imaginary parts of each number.
_SWAPPED = ir.Constant(ir.VectorType(_I32, LANES), [lane ^ 1 for lane in range(LANES)])
# i (a + b i) = -b + a i: swapped neighbours, the first negated.
_TURN = ir.Constant(VECTOR, [-1.0, 1.0] * (LANES // 2))


@intrinsic
def column_store(typingctx: Any) -> Any:
    """Address of room for MOST_TAPS pairs of vectors on the stack of the calling kernel."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        place = cgutils.alloca_once(builder, ir.ArrayType(VECTOR, 2 * MOST_TAPS))
        place.align = 64
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), codegen


def _turned(builder: ir.IRBuilder, value: Value) -> Value:
    """i times a vector of complex64."""
    swapped = builder.shuffle_vector(value, ir.Constant(VECTOR, ir.Undefined), _SWAPPED)
    return builder.fmul(swapped, _TURN)


def _masked(builder: ir.IRBuilder, kind: str, result: Any, *values: Value) -> Value:
    # By the name that LLVM mangles: declared once a module.
    name = f"llvm.masked.{kind}.v{LANES}f32.p0"
    signature = ir.FunctionType(result, [value.type for value in values])
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    return builder.call(function, values)


class _Elements:
    """Loads and stores 2 neighbouring vectors, or with `count` only its first floats: masked."""

    def __init__(self, builder: ir.IRBuilder, vectors: int, count: Value | None) -> None:
        self.builder, self.vectors = builder, vectors
        self.align = ir.Constant(_I32, 4)
        self.masks: list[Value] = []
        # Masks are made once a column, as all its lines end at the same float.
        if count is not None:
            left = [builder.sub(count, word(v * LANES)) for v in range(vectors)]
            self.masks = [first_lanes(builder, few) for few in left]

    def _places(self, line: Value) -> list[Value]:
        return [moved(self.builder, line, v * LANES) for v in range(self.vectors)]

    def load(self, line: Value) -> list[Value]:
        places = self._places(line)
        if not self.masks:
            return [load_vector(self.builder, place) for place in places]
        return [
            _masked(
                self.builder, "load", VECTOR, self._vector(place), self.align, mask, ZERO_VECTOR
            )
            for place, mask in zip(places, self.masks, strict=True)
        ]

    def store(self, values: list[Value], line: Value) -> None:
        places = self._places(line)
        if not self.masks:
            for value, place in zip(values, places, strict=True):
                store_vector(self.builder, value, place)
        for value, place, mask in zip(values, places, self.masks, strict=False):
            pointer = self._vector(place)
            _masked(self.builder, "store", ir.VoidType(), value, pointer, self.align, mask)

    def _vector(self, place: Value) -> Value:
        return self.builder.bitcast(place, VECTOR.as_pointer())


def _elements(builder: ir.IRBuilder, vectors: int, masked: int, count: Value) -> _Elements:
    return _Elements(builder, vectors, count if masked else None)


def _literals(*given: Any) -> list[int] | None:
    if all(isinstance(kind, types.IntegerLiteral) for kind in given):
        return [kind.literal_value for kind in given]
    return None


@intrinsic(prefer_literal=True)
def spread_out(
    typingctx: Any, pairs: Any, vectors: Any, masked: Any, count: Any, column: Any, terms: Any,
    roots: Any, roots_step: Any, target: Any, target_step: Any, first: Any, outs: Any,
) -> Any:  # fmt: skip
    """target[k] and target[-k] = sum over t of roots[t][k] or its conjugate * column[t].

    For `pairs` (literal) frequencies k from `first` on; -k is taken modulo `outs`.
    """
    sizes = _literals(pairs, vectors, masked)
    if sizes is None:
        return None
    high, wide = sizes[:2]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        count, column, terms, roots, roots_step, target, target_step, first, outs = args[3:]
        elements = _elements(builder, wide, sizes[2], count)
        sums = _two_sums(builder, (high, wide), (column, terms, roots, roots_step))
        base = float_pointer(builder, target)
        for pair in range(high):
            # Frequency 0 is its own mate: it has no frequency `outs` beside it.
            k = builder.add(first, word(pair))
            mate = builder.select(
                builder.icmp_signed("==", k, word(0)), word(0), builder.sub(outs, k)
            )
            part = slice(pair * wide, (pair + 1) * wide)
            turned = [_turned(builder, value) for value in sums[1][part]]
            # Cosine sums are even in k, sine sums odd: both frequencies from the same products.
            plus = [builder.fadd(c, s) for c, s in zip(sums[0][part], turned, strict=True)]
            minus = [builder.fsub(c, s) for c, s in zip(sums[0][part], turned, strict=True)]
            # `minus` first: where k is its own mate, `plus` must be what remains.
            elements.store(minus, moved(builder, base, builder.mul(mate, target_step)))
            elements.store(plus, moved(builder, base, builder.mul(k, target_step)))
        return context.get_dummy_value()

    return types.void(pairs, vectors, masked, *[types.int64] * 9), codegen


def _two_sums(builder: ir.IRBuilder, sizes: tuple[int, int], args: Any) -> list[list[Value]]:
    """Return sums of cosine * element and of sine * element, for each pair and vector."""
    column, terms, roots, roots_step = args
    pairs, vectors = sizes
    lines, table = float_pointer(builder, column), float_pointer(builder, roots)
    count = pairs * vectors

    def body(term: Value, sums: list[Value]) -> list[Value]:
        # The column has two vectors a line, however many are used.
        line = moved(builder, lines, builder.mul(term, word(2 * LANES)))
        root = moved(builder, table, builder.mul(term, roots_step))
        values = [load_vector(builder, moved(builder, line, v * LANES)) for v in range(vectors)]
        following = list(sums)
        for half in range(2):
            for pair in range(pairs):
                factor = load_broadcast(builder, moved(builder, root, 2 * pair + half))
                for v in range(vectors):
                    # Cosine sums first, then sine sums, each by pair and vector.
                    at = half * count + pair * vectors + v
                    following[at] = multiply_add(builder, factor, values[v], following[at])
        return following

    sums = counted_loop(builder, terms, [ZERO_VECTOR] * (2 * count), body)
    return [sums[:count], sums[count:]]


@intrinsic(prefer_literal=True)
def gather_in(
    typingctx: Any, outs: Any, vectors: Any, masked: Any, count: Any, source: Any, source_step: Any,
    size: Any, roots: Any, roots_step: Any, column: Any,
) -> Any:  # fmt: skip
    """column[o] = sum over z of roots[z][o] * source[z], voxels z and size - z together.

    `outs` (literal) of them; `roots` has size // 2 + 1 rows, halved where a voxel is its own mate.
    """
    sizes = _literals(outs, vectors, masked)
    if sizes is None:
        return None
    high, wide = sizes[:2]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        elements = _elements(builder, wide, sizes[2], args[3])
        sums = _folded(builder, elements, high, args[4:9])
        base = float_pointer(builder, args[9])
        for at, value in enumerate(sums):
            out, v = divmod(at, wide)
            store_vector(builder, value, moved(builder, base, (2 * out + v) * LANES))
        return context.get_dummy_value()

    return types.void(outs, vectors, masked, *[types.int64] * 7), codegen


def _folded(builder: ir.IRBuilder, elements: _Elements, outs: int, args: Any) -> list[Value]:
    source, source_step, size, roots, roots_step = args
    lines, table = float_pointer(builder, source), float_pointer(builder, roots)

    def line(voxel: Value) -> list[Value]:
        return elements.load(moved(builder, lines, builder.mul(voxel, source_step)))

    # Voxel 0, and size / 2 where there is one, are their own mates; the table has half of the root for these.
    def body(voxel: Value, sums: list[Value]) -> list[Value]:
        own = builder.icmp_signed("==", voxel, word(0))
        mate = builder.select(own, word(0), builder.sub(size, voxel))
        both = list(zip(line(voxel), line(mate), strict=True))
        even = [builder.fadd(here, there) for here, there in both]
        odd = [_turned(builder, builder.fsub(here, there)) for here, there in both]
        root = moved(builder, table, builder.mul(voxel, roots_step))
        following = list(sums)
        for half, values in enumerate((even, odd)):
            for out in range(outs):
                factor = load_broadcast(builder, moved(builder, root, 2 * out + half))
                for v, value in enumerate(values):
                    at = out * elements.vectors + v
                    following[at] = multiply_add(builder, factor, value, following[at])
        return following

    rows = builder.add(builder.lshr(size, word(1)), word(1))
    return counted_loop(builder, rows, [ZERO_VECTOR] * (outs * elements.vectors), body)


@part
def spread_column(
    vectors: int, masked: int, count: int, column: int, terms: int, roots: int, target: int,
    step: int, outs: int,
) -> None:  # fmt: skip
    """Write all frequencies of one column of vectors."""
    half = outs // 2 + 1
    k = 0
    while k < half:
        here = roots + 8 * k
        # Pairs of frequencies at once: 4 * 2 * 2 sums of two vectors; the rest by 2 and 1. Written out, as
        # sizes must be literals.
        few = 4 if half - k >= 4 else (2 if half - k >= 2 else 1)
        if vectors == 2 and masked == 0:
            if few == 4:
                spread_out(4, 2, 0, count, column, terms, here, 2 * half, target, step, k, outs)
            elif few == 2:
                spread_out(2, 2, 0, count, column, terms, here, 2 * half, target, step, k, outs)
            else:
                spread_out(1, 2, 0, count, column, terms, here, 2 * half, target, step, k, outs)
        elif vectors == 2:
            if few == 4:
                spread_out(4, 2, 1, count, column, terms, here, 2 * half, target, step, k, outs)
            elif few == 2:
                spread_out(2, 2, 1, count, column, terms, here, 2 * half, target, step, k, outs)
            else:
                spread_out(1, 2, 1, count, column, terms, here, 2 * half, target, step, k, outs)
        else:
            if few == 4:
                spread_out(4, 1, 1, count, column, terms, here, 2 * half, target, step, k, outs)
            elif few == 2:
                spread_out(2, 1, 1, count, column, terms, here, 2 * half, target, step, k, outs)
            else:
                spread_out(1, 1, 1, count, column, terms, here, 2 * half, target, step, k, outs)
        k += few


@part
def gather_column(
    vectors: int, masked: int, count: int, source: int, step: int, size: int, roots: int,
    column: int, outs: int,
) -> None:  # fmt: skip
    """Write all taps of one column of vectors."""
    done = 0
    while done < outs:
        here, to, left = roots + 8 * done, column + 8 * LANES * done, outs - done
        # 7, 5 and 3 are the usual numbers of taps, so these take one pass over the line.
        few = 7 if left >= 7 else (5 if left >= 5 else (3 if left >= 3 else left))
        if vectors == 2 and masked == 0:
            if few == 7:
                gather_in(7, 2, 0, count, source, step, size, here, 2 * outs, to)
            elif few == 5:
                gather_in(5, 2, 0, count, source, step, size, here, 2 * outs, to)
            elif few == 3:
                gather_in(3, 2, 0, count, source, step, size, here, 2 * outs, to)
            elif few == 2:
                gather_in(2, 2, 0, count, source, step, size, here, 2 * outs, to)
            else:
                gather_in(1, 2, 0, count, source, step, size, here, 2 * outs, to)
        elif vectors == 2:
            # With masks fewer at once: these take registers too.
            few = min(few, 3)
            if few == 3:
                gather_in(3, 2, 1, count, source, step, size, here, 2 * outs, to)
            elif few == 2:
                gather_in(2, 2, 1, count, source, step, size, here, 2 * outs, to)
            else:
                gather_in(1, 2, 1, count, source, step, size, here, 2 * outs, to)
        else:
            # One vector alone is always masked: rows are padded, but not to whole vectors.
            few = min(few, 3)
            if few == 3:
                gather_in(3, 1, 1, count, source, step, size, here, 2 * outs, to)
            elif few == 2:
                gather_in(2, 1, 1, count, source, step, size, here, 2 * outs, to)
            else:
                gather_in(1, 1, 1, count, source, step, size, here, 2 * outs, to)
        done += few


@part
def copy_lines(
    source: int, source_step: int, target: int, target_step: int, lines: int, count: int
) -> None:
    """Copy `count` <= 2 LANES floats of each of some lines; steps in floats."""
    for line in range(lines):
        old, new = source + 4 * line * source_step, target + 4 * line * target_step
        # Both vectors, the second perhaps empty: a column always has two.
        for start in range(0, 2 * LANES, LANES):
            mask = below(max(0, count - start))
            store_masked(new + 4 * start, mask, load_masked(old + 4 * start, mask))


@part
def expand(base: int, step: int, terms: int, roots: int, outs: int, width: int) -> None:
    """Turn, in place, the first `terms` lines of `width` floats into all `outs` lines, `step` floats apart."""
    column = column_store()
    for at in range(0, width, 2 * LANES):
        count = min(width - at, 2 * LANES)
        vectors, masked = 2 if count > LANES else 1, 1 if count < 2 * LANES else 0
        here = base + 4 * at
        # Copied first: the frequencies overwrite the lines of the taps.
        copy_lines(here, step, column, 2 * LANES, terms, count)
        spread_column(vectors, masked, count, column, terms, roots, here, step, outs)


@part
def contract(base: int, step: int, terms: int, roots: int, outs: int, width: int) -> None:
    """Turn, in place, all `terms` lines of `width` floats into the first `outs` lines."""
    column = column_store()
    for at in range(0, width, 2 * LANES):
        count = min(width - at, 2 * LANES)
        vectors, masked = 2 if count > LANES else 1, 1 if count < 2 * LANES else 0
        here = base + 4 * at
        gather_column(vectors, masked, count, here, step, terms, roots, column, outs)
        # Copied last: taps are gathered from all lines, which the first of them would overwrite.
        copy_lines(column, 2 * LANES, here, step, outs, count)
