"""Complex products of tiled spectral convolution: one small matrix product for each frequency.

    spectral_products    Y[f][tile][block] = sum over images i of X[f][tile][i] * W[f][i][block]
    spectral_gradients   W[f][i][block] = sum over tiles of X[f][tile][i] * Y[f][tile][block]
    backward_products    Y[f][tile][block] = sum over images i of
                         X[f][tile][i] * conj(W[f][image of block][i])

The first two do not conjugate: transforms give conjugate spectra where correlations need them.
The third is the data gradient's, from the forward pass's filters as they lie: it transposes and
conjugates them as it goes, once for all tiles of a frequency.
A complex vector is LANES real parts, then LANES imaginary parts. A register block holds the sums of
ROWS tiles (or input images) times one or two
vectors of output images: each turn loads the vectors,
broadcasts real and imaginary part of one number a row, and multiplies and adds four times a pair.

Argument words: addresses in bytes, strides in floats, all else counts.

    x, x_frequency, x_tile, x_block     spectra of images; image i is lane i % LANES of block i // LANES
    w, w_frequency, w_input, w_block    spectra of filters, by image and block; written by gradients
    y, y_frequency, y_tile, y_block     spectra of outputs, or of output gradients; written by products
    frequencies, tiles, inputs, blocks  real counts; `blocks` counts vectors of output images
    accumulate                          gradients alone: 1 adds to what stands there, 0 overwrites

`backward_products` reads `w` with the strides of the forward pass, whose outputs are its `inputs`:
w_input leads from image to image of y, w_block from vector to vector of the terms; and three words more:

    images                              of y, from its first block on: real count; lanes beyond get 0
    scratch, scratch_worker             64-byte aligned; worker w owns `backward_floats(inputs)` floats
                                        from w * scratch_worker on

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

from znnpy_kernels.abi import kernel
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
from znnpy_kernels.tiles import load_tile, scratch_tile, transpose_negated, transpose_tile

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
)
GRADIENT_FIELDS = (*FIELDS, "accumulate")
BACKWARD_FIELDS = (*FIELDS, "images", "scratch", "scratch_worker")


def backward_floats(inputs: int) -> int:
    """Floats of scratch that each worker needs for `backward_products` of so many terms."""
    return -(-inputs // LANES) * LANES * 2 * PAIR


class _Block:
    """Emits register blocks of some rows times `vectors` complex vectors."""

    def __init__(self, builder: ir.IRBuilder, vectors: int, words: list[Value]) -> None:
        self.builder, self.vectors = builder, vectors
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
        first = multiply_add(b, c, real, sums[0])
        second = multiply_add(b, c, imaginary, sums[1])
        return [
            multiply_add(b, minus_d, imaginary, first),
            multiply_add(b, d, real, second),
        ]


@intrinsic(prefer_literal=True)
def _register_block(
    typingctx: Any,
    vectors: Any,
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
        block = _Block(builder, vectors.literal_value, list(args[1:-1]))
        done = builder.append_basic_block("stored")
        choice = builder.switch(args[-1], done)
        for count in range(1, ROWS[vectors.literal_value - 1] + 1):
            choice.add_case(word(count), builder.append_basic_block(f"rows{count}"))
            builder.position_at_end(choice.cases[-1][1])
            block.emit(count)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 15), codegen


@inlined
def _tiles(vectors: int, args: Any, x: int, w: int, strides: Any, y: int) -> None:
    """Products of one frequency with `vectors` output vectors, for all tiles.

    `strides` of w: from term to term, from vector to vector.
    """
    inputs, tiles, most = args[14], args[13], ROWS[vectors - 1]
    runs = (inputs + LANES - 1) // LANES
    tile, parts = 0, (tiles + most - 1) // most
    while tile < tiles:
        rows = (tiles - tile + parts - 1) // parts
        parts -= 1
        _register_block(
            vectors, x + 4 * tile * args[2], args[2], 1, args[3], w, strides[0], strides[1],
            y + 4 * tile * args[10], args[10], args[11], runs, LANES,
            inputs - (runs - 1) * LANES, 0, rows,
        )  # fmt: skip
        tile += rows


@inlined
def _images(vectors: int, args: Any, x: int, w: int, y: int) -> None:
    """Sums over tiles, of one frequency with `vectors` vectors, for all images."""
    inputs, tiles, most = args[14], args[13], ROWS[vectors - 1]
    for first in range(0, inputs, LANES):
        image, end = first, min(inputs, first + LANES)
        parts = (end - first + most - 1) // most
        while image < end:
            rows = (end - image + parts - 1) // parts
            parts -= 1
            at = x + 4 * (first // LANES * args[3] + image - first)
            _register_block(
                vectors, at, 1, args[2], 0, y, args[10], args[11], w + 4 * image * args[6],
                args[6], args[7], 1, tiles, tiles, args[16], rows,
            )  # fmt: skip
            image += rows


@kernel(*FIELDS)
def spectral_products(args: Any, worker: int) -> None:
    """Spectra of images times those of filters, summed over images."""
    strides = args[6], args[7]
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        pairs = args[15] // 2
        for pair in range(pairs):
            _tiles(2, args, x, w + 8 * pair * args[7], strides, y + 8 * pair * args[11])
        if args[15] % 2:
            _tiles(1, args, x, w + 8 * pairs * args[7], strides, y + 8 * pairs * args[11])


@inlined
def _exchanged(vectors: int, args: Any, w: int, first: int, scratch: int) -> None:
    """Scratch [term][vector][PAIR]: conjugate filters of all terms and the images from `first` on."""
    terms, row, step = (args[14] + LANES - 1) // LANES, 4 * args[6], 4 * PAIR * vectors
    rest = scratch_tile()
    for vector in range(vectors):
        image = first + vector * LANES
        held = min(LANES, args[16] - image)
        for block in range(terms):
            source = w + image * row + 4 * block * args[7]
            target = scratch + block * LANES * step + 4 * PAIR * vector
            if held == LANES:
                transpose_tile(source, row, target, step)
                transpose_negated(source + 4 * LANES, row, target + 4 * LANES, step)
            else:
                load_tile(source, row, held, LANES, rest)
                transpose_tile(rest, 4 * LANES, target, step)
                load_tile(source + 4 * LANES, row, held, LANES, rest)
                transpose_negated(rest, 4 * LANES, target + 4 * LANES, step)


@kernel(*BACKWARD_FIELDS)
def backward_products(args: Any, worker: int) -> None:
    """Spectra of gradients times exchanged, conjugate ones of filters, summed over outputs."""
    scratch = args[17] + 4 * worker * args[18]
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        pairs = args[15] // 2
        for pair in range(pairs):
            _exchanged(2, args, w, 2 * pair * LANES, scratch)
            _tiles(2, args, x, scratch, (2 * PAIR, PAIR), y + 8 * pair * args[11])
        if args[15] % 2:
            _exchanged(1, args, w, 2 * pairs * LANES, scratch)
            _tiles(1, args, x, scratch, (PAIR, PAIR), y + 8 * pairs * args[11])


@kernel(*GRADIENT_FIELDS)
def spectral_gradients(args: Any, worker: int) -> None:
    """Spectra of images times those of output gradients, summed over tiles."""
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        pairs = args[15] // 2
        for pair in range(pairs):
            _images(2, args, x, w + 8 * pair * args[7], y + 8 * pair * args[11])
        if args[15] % 2:
            _images(1, args, x, w + 8 * pairs * args[7], y + 8 * pairs * args[11])
