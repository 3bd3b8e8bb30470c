"""Sums of products of whole-image spectra: the convolution between its transforms, for all three passes.

All three passes of a valid cross-correlation of an image of n voxels with a filter of k taps, `s`
voxels apart (an axis; m = n - (k - 1) s outputs), come out right on any grid N >= n, with image,
output gradient and filter all at the grid's origin:

- forward, y[i] = sum_j x[i + j s] w[j]: X conj(W). i + j s <= n - 1 < N for i < m: nothing wraps.
- data gradient, dx[p] = sum_j dy[p - j s] w[j]: DY W. It ends at p = m - 1 + (k - 1) s = n - 1 < N.
- weight gradient, dw[j] = sum_i x[i + j s] dy[i]: X conj(DY), at voxel j s, again i + j s < N.

So the wanted voxels stand at the origin too: 0..m-1, 0..n-1 and, for taps, 0, s, 2s, ... (k - 1) s.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.simd.codegen import (
    VECTOR,
    ZERO_VECTOR,
    Value,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES

# A vector holds LANES / 2 complex numbers, real and imaginary parts in turn: both parts of a number take its
# imaginary part (_ODD) or its real one (_EVEN).
_ODD = [2 * (lane // 2) + 1 for lane in range(LANES)]
_EVEN = [2 * (lane // 2) for lane in range(LANES)]
# Neighbours exchanged: real and imaginary parts of each number.
_SWAPPED = [lane ^ 1 for lane in range(LANES)]


def _shuffled(builder: ir.IRBuilder, value: Value, lanes: list[int]) -> Value:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
    return builder.shuffle_vector(value, ir.Constant(VECTOR, ir.Undefined), mask)


class _Tile:
    """Emits out[p][q] (+)= sum_t a[t][p] * b[t][q] for `vectors` neighbouring vectors of complex64.

    Two accumulators each, Re(a) * b and Im(a) * b, so that b is never shuffled and all shuffles of a
    are shared by the columns. At the end neighbours of the second change places; signs then make it
    a product with b or with conj(b).
    """

    def __init__(self, builder: ir.IRBuilder, rows: int, columns: int, vectors: int) -> None:
        self.builder, self.rows, self.columns, self.vectors = builder, rows, columns, vectors

    def terms(self, a: Value, b: Value, steps: list[Value], count: Value) -> list[Value]:
        a_term, a_row, b_term, b_column = steps
        builder = self.builder
        # Two accumulators for each output vector: see the class.
        start = [ZERO_VECTOR] * (2 * self.rows * self.columns * self.vectors)

        def body(term: Value, sums: list[Value]) -> list[Value]:
            here_a = moved(builder, a, builder.mul(term, a_term))
            here_b = moved(builder, b, builder.mul(term, b_term))
            left = self._load(here_a, a_row, self.rows)
            right = self._load(here_b, b_column, self.columns)
            return self._multiply(left, right, sums)

        return counted_loop(builder, count, start, body)

    def _place(self, base: Value, step: Value, index: int, vector: int) -> Value:
        offset = self.builder.mul(step, word(index))
        return moved(self.builder, moved(self.builder, base, offset), vector * LANES)

    def _load(self, base: Value, step: Value, count: int) -> list[list[Value]]:
        return [
            [load_vector(self.builder, self._place(base, step, i, v)) for v in range(self.vectors)]
            for i in range(count)
        ]

    def _multiply(
        self, left: list[list[Value]], right: list[list[Value]], sums: list[Value]
    ) -> list[Value]:
        builder, following = self.builder, []
        waiting = iter(sums)
        for p in range(self.rows):
            real = [_shuffled(builder, value, _EVEN) for value in left[p]]
            imaginary = [_shuffled(builder, value, _ODD) for value in left[p]]
            for q in range(self.columns):
                for v in range(self.vectors):
                    following.append(multiply_add(builder, real[v], right[q][v], next(waiting)))
                    following.append(
                        multiply_add(builder, imaginary[v], right[q][v], next(waiting))
                    )
        return following

    def finish(
        self, sums: list[Value], conjugate: Value, out: Value, steps: list[Value], keep: Value
    ) -> None:
        builder, waiting = self.builder, iter(sums)
        # Once a tile, not once a term: signs and shuffles of the sums.
        first, second = _signs(builder, conjugate)
        for p in range(self.rows):
            row = moved(builder, out, builder.mul(steps[0], word(p)))
            for q in range(self.columns):
                for v in range(self.vectors):
                    product = builder.fmul(first, next(waiting))
                    swapped = _shuffled(builder, next(waiting), _SWAPPED)
                    product = multiply_add(builder, second, swapped, product)
                    self._write(self._place(row, steps[1], q, v), product, keep)

    def _write(self, place: Value, product: Value, keep: Value) -> None:
        builder = self.builder
        # A branch, not a selection: `out` is not read where it is overwritten.
        with builder.if_else(keep) as (onto, over):
            with onto:
                store_vector(builder, builder.fadd(load_vector(builder, place), product), place)
            with over:
                store_vector(builder, product, place)


# As (real, imaginary) for the sums of Re(a) * b and, exchanged, of Im(a) * b.
def _signs(builder: ir.IRBuilder, conjugate: Value) -> tuple[Value, Value]:
    """Signs of both accumulators: a b = (+, +), (-, +); a conj(b) = (+, -), (+, +)."""
    plain = builder.icmp_signed("==", conjugate, word(0))
    ones = ir.Constant(VECTOR, [1.0] * LANES)
    minus_plus = ir.Constant(VECTOR, [-1.0, 1.0] * (LANES // 2))
    plus_minus = ir.Constant(VECTOR, [1.0, -1.0] * (LANES // 2))
    return builder.select(plain, ones, plus_minus), builder.select(plain, minus_plus, ones)


@intrinsic(prefer_literal=True)
def product_tile(
    typingctx: Any, rows: Any, columns: Any, vectors: Any, a: Any, a_term: Any, a_row: Any,
    b: Any, b_term: Any, b_column: Any, out: Any, out_row: Any, out_column: Any, terms: Any,
    conjugate: Any, add: Any,
) -> Any:  # fmt: skip
    """`rows` x `columns` outputs of `vectors` vectors each (literals); the rest as in the kernel."""
    sizes = (rows, columns, vectors)
    # Without literals numba types the call again with them.
    if not all(isinstance(size, types.IntegerLiteral) for size in sizes):
        return None

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        a, a_term, a_row, b, b_term, b_column, out, out_row, out_column, terms = args[3:13]
        tile = _Tile(builder, *(size.literal_value for size in sizes))
        left, right = float_pointer(builder, a), float_pointer(builder, b)
        sums = tile.terms(left, right, [a_term, a_row, b_term, b_column], terms)
        keep = builder.icmp_signed("!=", args[14], word(0))
        steps = [out_row, out_column]
        tile.finish(sums, args[13], float_pointer(builder, out), steps, keep)
        return context.get_dummy_value()

    return types.void(*sizes, *[types.int64] * 12), codegen


@part
def product_row(
    rows: int, vectors: int, a: int, a_term: int, a_row: int, b: int, b_term: int, b_column: int,
    out: int, out_row: int, out_column: int, terms: int, columns: int, conjugate: int, add: int,
) -> None:  # fmt: skip
    """Multiply all columns of 1 or 2 rows, in one of the shapes that `multiply` chooses."""
    column = 0
    # Shapes with 8 to 16 accumulators beside their operands: enough to hide latency, few enough for the
    # registers.
    while column < columns:
        here_b = b + 4 * column * b_column
        here = out + 4 * column * out_column
        # Four columns share the shuffles of a; 8 vectors are for few columns.
        wide = columns - column >= 4 and vectors < 8
        if rows == 2 and wide:
            product_tile(2, 4, 1, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        elif rows == 2:
            product_tile(2, 1, 1, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        elif vectors == 8:
            product_tile(1, 1, 8, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        elif vectors == 2 and wide:
            product_tile(1, 4, 2, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        elif vectors == 2:
            product_tile(1, 1, 2, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        elif wide:
            product_tile(1, 4, 1, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        else:
            product_tile(1, 1, 1, a, a_term, a_row, here_b, b_term, b_column, here, out_row, out_column, terms, conjugate, add)  # fmt: skip # noqa: E501
        column += 4 if wide else 1


@part
def multiply(
    a: int, a_term: int, a_row: int, b: int, b_term: int, b_column: int, out: int, out_row: int,
    out_column: int, terms: int, rows: int, columns: int, count: int, conjugate: int, add: int,
) -> None:  # fmt: skip
    """Compute as `spectral_product`, for kernels that do more."""
    row = 0
    while row < rows:
        pair = 2 if rows - row >= 2 else 1
        at = 0
        while at < count:
            left = (count - at) // LANES
            # Two rows share the loads of b; one row takes more vectors in their place. `count` is a multiple of
            # 16 floats, so LANES divides it.
            vectors = 1 if pair == 2 or left < 2 else (8 if columns < 4 and left >= 8 else 2)
            product_row(
                pair, vectors, a + 4 * (row * a_row + at), a_term, a_row, b + 4 * at, b_term, b_column,
                out + 4 * (row * out_row + at), out_row, out_column, terms, columns, conjugate, add,
            )  # fmt: skip
            at += vectors * LANES
        row += pair


AT = words(
    "a a_term a_row b b_term b_column out out_row out_column terms rows columns floats "
    "conjugate add",
)


@kernel(AT)
def spectral_product(args: Any, worker: int) -> None:
    """out[p, q] = sum over t < terms of a[t, p] * b[t, q] for all p < rows, q < columns, per frequency.

    `a`, `b`, `out`: addresses of the first frequency of the first spectra; all strides (`_term`, `_row`,
    `_column`) in floats from spectrum to spectrum. `floats`: how many floats of each spectrum, a
    multiple of 16: a task may take a range of frequencies by moving all three addresses.
    `conjugate`: 1 multiplies with conj(b). `add`: 1 adds to what stands in out. terms >= 1.

    - forward: a = X (term: input channel, row: sample of the batch), b = W (term: input channel, column:
      output channel), conjugate = 1.
    - data gradient: a = DY (term: output channel, row: batch), b = W (term: output, column: input channel),
      conjugate = 0.
    - weight gradient: a = X (term: batch, row: input channel), b = DY (term: batch, column: output
      image), conjugate = 1.

    Terms are added in ascending order, whatever the range; with `add` the sum is added at last.
    """
    multiply(
        args[AT.a], args[AT.a_term], args[AT.a_row], args[AT.b], args[AT.b_term], args[AT.b_column],
        args[AT.out], args[AT.out_row], args[AT.out_column], args[AT.terms], args[AT.rows],
        args[AT.columns], args[AT.floats], args[AT.conjugate], args[AT.add],
    )  # fmt: skip
