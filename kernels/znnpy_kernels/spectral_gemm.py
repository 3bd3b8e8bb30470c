"""Complex products of tiled spectral convolution: one small matrix product for each frequency.

    spectral_forward_*   Y[f][tile][block] = sum over input images i of X[f][tile][i] * W[f][i][block]
    spectral_weight_*    DW[f][i][block] = sum over tiles of X[f][tile][i] * conj(DY[f][tile][block])

A complex vector is LANES real parts, then LANES imaginary parts. A register block holds the sums of
ROWS tiles (or input images) times one or two vectors of output images: each turn loads the vectors,
broadcasts real and imaginary part of one number a row, and multiplies and adds four times a pair.

Argument words: addresses in bytes, strides in floats, all else counts.

    x, x_frequency, x_tile, x_block     spectra of images; image i is lane i % LANES of block i // LANES
    w, w_frequency, w_input, w_block    forward: spectra of filters, by input image and output block
                                        weight: sums, the only memory written
    y, y_frequency, y_tile, y_block     forward: sums, the only memory written; weight: output gradient
    frequencies, tiles, inputs, blocks  real counts; `blocks` counts vectors of output images
    accumulate                          0: overwrite; 1: add to what stands there

Output vectors are the outer loop, so that one frequency's filters of two vectors stay in the L1
cache while tiles stream past. Each sum is taken in the order of its index, whatever is cut. Tasks that
write disjoint frequencies, tiles or blocks may run concurrently.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.abi import Kernel, kernel
from znnpy_kernels.inlining import inlined
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
    when,
    word,
)

# Rows of a register block with one and with two vectors: 24 sums of 32 registers, 10 or 8 of 16.
ROWS: tuple[int, int] = (12, 6) if REGISTERS == 32 else (5, 2)
PAIR = 2 * LANES  # floats of a complex vector

FIELDS = (
    "x",
    "x_frequency",
    "x_tile",
    "x_block",
    "w",
    "w_frequency",
    "w_input",
    "w_block",
    "y",
    "y_frequency",
    "y_tile",
    "y_block",
    "frequencies",
    "tiles",
    "inputs",
    "blocks",
    "accumulate",
)


class _Block:
    """Emits register blocks of some rows times `vectors` complex vectors."""

    def __init__(
        self, builder: ir.IRBuilder, vectors: int, conjugate: bool, words: list[Value]
    ) -> None:
        self.builder, self.vectors, self.conjugate = builder, vectors, conjugate
        scalars, self.row, self.turn, self.outer, vector, *rest = words
        self.scalars = float_pointer(builder, scalars)
        self.vector = float_pointer(builder, vector)
        self.vector_turn, self.vector_block, target, *rest = rest
        self.target = float_pointer(builder, target)
        self.target_row, self.target_block, self.blocks, self.inner, self.inner_last, *rest = rest
        (self.accumulate,) = rest

    def emit(self, rows: int) -> None:
        """Compute and store one register block."""
        b = self.builder
        targets = [
            moved(b, self._target(row, vector), part)
            for row in range(rows)
            for vector in range(self.vectors)
            for part in (0, LANES)
        ]
        sums = when(
            b,
            b.icmp_signed("!=", self.accumulate, word(0)),
            [ZERO_VECTOR] * len(targets),
            lambda: [load_vector(b, target) for target in targets],
        )
        for value, target in zip(self._sums(rows, sums), targets, strict=True):
            store_vector(b, value, target)

    def _target(self, row: int, vector: int) -> Value:
        b = self.builder
        along = moved(b, self.target, b.mul(self.target_row, word(row)))
        return moved(b, along, b.mul(self.target_block, word(vector)))

    def _sums(self, rows: int, sums: list[Value]) -> list[Value]:
        """Add all terms: `blocks` runs of `inner` terms, `outer` floats apart."""
        b = self.builder

        def body(index: Value, carried: list[Value]) -> list[Value]:
            scalars, vector, *sums = carried
            last = b.icmp_signed("==", b.add(index, word(1)), self.blocks)
            inner = b.select(last, self.inner_last, self.inner)
            _, vector, *sums = counted_loop(b, inner, [scalars, vector, *sums], self._term)
            return [moved(b, scalars, self.outer), vector, *sums]

        return counted_loop(b, self.blocks, [self.scalars, self.vector, *sums], body)[2:]

    def _term(self, _: Value, carried: list[Value]) -> list[Value]:
        """One term for all rows and vectors: the innermost loop."""
        b = self.builder
        scalars, vector, *sums = carried
        starts = [moved(b, vector, b.mul(self.vector_block, word(j))) for j in range(self.vectors)]
        pairs = []
        for start in starts:
            imaginary = load_vector(b, moved(b, start, LANES))
            pairs.append((load_vector(b, start), imaginary, b.fneg(imaginary)))
        new: list[Value] = []
        for row in range(len(sums) // (2 * self.vectors)):
            at = moved(b, scalars, b.mul(self.row, word(row)))
            real, imaginary = load_broadcast(b, at), load_broadcast(b, moved(b, at, LANES))
            for pair in pairs:
                new += self._product(real, imaginary, pair, sums[len(new) : len(new) + 2])
        return [moved(b, scalars, self.turn), moved(b, vector, self.vector_turn), *new]

    def _product(
        self, real: Value, imaginary: Value, pair: tuple[Value, Value, Value], sums: list[Value]
    ) -> list[Value]:
        b = self.builder
        c, d, minus_d = pair
        into_real, into_imaginary = (d, minus_d) if self.conjugate else (minus_d, d)
        first = multiply_add(b, c, real, sums[0])
        second = multiply_add(b, c, imaginary, sums[1])
        return [
            multiply_add(b, into_real, imaginary, first),
            multiply_add(b, into_imaginary, real, second),
        ]


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    vectors: Any,
    conjugate: Any,
    scalars: Any,
    row: Any,
    turn: Any,
    outer: Any,
    vector: Any,
    vector_turn: Any,
    vector_block: Any,
    target: Any,
    target_row: Any,
    target_block: Any,
    blocks: Any,
    inner: Any,
    inner_last: Any,
    accumulate: Any,
    rows: Any,
) -> tuple[Signature, Any]:
    """One register block of `rows` <= ROWS[vectors - 1] rows; see `_Block`.

    Scalars: address, step from row to row, from term to term, from a run of `inner` terms to the
    next. Vectors and targets: address and steps.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        block = _Block(
            builder, vectors.literal_value, bool(conjugate.literal_value), list(args[2:-1])
        )
        done = builder.append_basic_block("stored")
        choice = builder.switch(args[-1], done)
        for count in range(1, ROWS[vectors.literal_value - 1] + 1):
            choice.add_case(word(count), builder.append_basic_block(f"rows{count}"))
            builder.position_at_end(choice.cases[-1][1])
            block.emit(count)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(vectors, conjugate, *[types.int64] * 15), codegen


@inlined
def _forward(vectors: int, conjugate: int, args: Any) -> None:
    """All frequencies, output vectors and tiles of a task; `blocks` is a multiple of `vectors`."""
    runs = (args[14] + LANES - 1) // LANES
    last, most = args[14] - (runs - 1) * LANES, ROWS[vectors - 1]
    for f in range(args[12]):
        for block in range(0, args[15], vectors):
            tile, parts = 0, (args[13] + most - 1) // most
            while tile < args[13]:
                rows = (args[13] - tile + parts - 1) // parts
                parts -= 1
                _register_block(
                    vectors,
                    conjugate,
                    args[0] + 4 * (f * args[1] + tile * args[2]),
                    args[2],
                    1,
                    args[3],
                    args[4] + 4 * (f * args[5] + block * args[7]),
                    args[6],
                    args[7],
                    args[8] + 4 * (f * args[9] + tile * args[10] + block * args[11]),
                    args[10],
                    args[11],
                    runs,
                    LANES,
                    last,
                    args[16],
                    rows,
                )
                tile += rows


@inlined
def _weight(vectors: int, args: Any) -> None:
    """All frequencies, output vectors and input images of a task; sums run over tiles."""
    most, inputs, tiles = ROWS[vectors - 1], args[14], args[13]
    for f in range(args[12]):
        for block in range(0, args[15], vectors):
            for first in range(0, inputs, LANES):
                image, end = first, min(inputs, first + LANES)
                parts = (end - first + most - 1) // most
                while image < end:
                    rows = (end - image + parts - 1) // parts
                    parts -= 1
                    x = f * args[1] + first // LANES * args[3] + image - first
                    _register_block(
                        vectors,
                        1,
                        args[0] + 4 * x,
                        1,
                        args[2],
                        0,
                        args[8] + 4 * (f * args[9] + block * args[11]),
                        args[10],
                        args[11],
                        args[4] + 4 * (f * args[5] + image * args[6] + block * args[7]),
                        args[6],
                        args[7],
                        1,
                        tiles,
                        tiles,
                        args[16],
                        rows,
                    )
                    image += rows


@kernel(*FIELDS)
def spectral_forward_1(args: Any, worker: int) -> None:
    """Products with filters, output vectors one by one."""
    _forward(1, 0, args)


@kernel(*FIELDS)
def spectral_forward_2(args: Any, worker: int) -> None:
    """Products with filters, an even number of output vectors."""
    _forward(2, 0, args)


@kernel(*FIELDS)
def spectral_conjugate_1(args: Any, worker: int) -> None:
    """Products with conjugated filters, output vectors one by one."""
    _forward(1, 1, args)


@kernel(*FIELDS)
def spectral_conjugate_2(args: Any, worker: int) -> None:
    """Products with conjugated filters, an even number of output vectors."""
    _forward(2, 1, args)


@kernel(*FIELDS)
def spectral_weight_1(args: Any, worker: int) -> None:
    """Sums over tiles for filter gradients, output vectors one by one."""
    _weight(1, args)


@kernel(*FIELDS)
def spectral_weight_2(args: Any, worker: int) -> None:
    """Sums over tiles for filter gradients, an even number of output vectors."""
    _weight(2, args)


def forward_product(vectors: int, *, conjugate: bool) -> Kernel:
    """The kernel for a multiple of `vectors` (1 or 2) output vectors."""
    plain, conjugated = (
        (spectral_forward_1, spectral_conjugate_1),
        (spectral_forward_2, spectral_conjugate_2),
    )[vectors - 1]
    return conjugated if conjugate else plain


def weight_product(vectors: int) -> Kernel:
    """The kernel for a multiple of `vectors` (1 or 2) output vectors."""
    return (spectral_weight_1, spectral_weight_2)[vectors - 1]
