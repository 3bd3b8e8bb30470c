"""Products at the points of weight gradients: tiles of voxels times tiles of gradients, summed over tiles."""

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
from znnpy_kernels.winograd.products import triple_of

# Channels of a register block with one, two and three vectors of gradients: their sums fit the registers with the
# vectors and a broadcast value. At most LANES, as a block has no more channels. Of 32 registers 16 sums, one vector and
# values that multiply-adds read (18); 14 * 2 sums, two and one (31); 8 * 3, three and one (28), where 9 would fit, but
# 16 channels go in equal parts.
IMAGES: tuple[int, int, int] = (min(LANES, 28), min(LANES, 14), 8) if REGISTERS == 32 else (8, 6, 4)


def _sums_over_tiles(*, fresh: bool) -> Any:
    """The intrinsic `add_products`, or `sum_products`, whose sums begin with zero."""

    def over_tiles(
        typingctx: Any,
        vectors: Any,
        source: Any,
        gradient: Any,
        gradient_block: Any,
        tiles: Any,
        target: Any,
        target_image: Any,
        images: Any,
        asked: Any,
    ) -> tuple[Signature, Any]:
        """Sum `images` <= IMAGES[vectors - 1] images times `vectors` vectors of gradients over `tiles`.

        Addresses and steps in bytes; tiles of source [tile][image] and gradients [tile][lane] lie LANES
        floats apart. Each sum is taken in the order of the tiles. `asked`: what each tile asks for (`asked_lines`),
        or None.
        """

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            number, words = vectors.literal_value, list(args[1:-2])
            early = AskedLines.of(builder, asked, args[-1])
            counts = range(1, IMAGES[number - 1] + 1)
            by_count(
                builder,
                args[-2],
                counts,
                lambda images: _over_tiles(builder, number, images, words, early, fresh=fresh),
            )
            return context.get_dummy_value()

        return types.void(vectors, *[types.int64] * 7, asked), codegen

    return intrinsic(prefer_literal=True)(over_tiles)


add_products, sum_products = _sums_over_tiles(fresh=False), _sums_over_tiles(fresh=True)


def _sums_over_runs(*, fresh: bool) -> Any:
    """The intrinsic `add_runs`, or `sum_runs`, whose sums begin with zero."""

    def over_runs(
        typingctx: Any,
        vectors: Any,
        source: Any,
        gradient: Any,
        gradient_block: Any,
        tiles: Any,
        target: Any,
        target_image: Any,
        images: Any,
        runs: Any,
        apart: Any,
    ) -> tuple[Signature, Any]:
        """The same over several runs of so many tiles, `apart` bytes from one to the next in source and gradient."""

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            number, words, early = vectors.literal_value, list(args[1:-3]), AskedLines([], [])
            runs, apart = args[-2:]

            def emit(images: int) -> None:
                _over_tiles(builder, number, images, words, early, fresh=fresh, runs=(runs, apart))

            by_count(builder, args[-3], range(1, IMAGES[number - 1] + 1), emit)
            return context.get_dummy_value()

        return types.void(vectors, *[types.int64] * 9), codegen

    return intrinsic(prefer_literal=True)(over_runs)


add_runs, sum_runs = _sums_over_runs(fresh=False), _sums_over_runs(fresh=True)


def _over_tiles(
    b: ir.IRBuilder,
    vectors: int,
    images: int,
    words: list[Value],
    early: AskedLines,
    *,
    fresh: bool,
    runs: tuple[Value, Value] | None = None,
) -> None:
    source, gradient, gradient_block, tiles, target, target_image = words
    places = [
        moved(b, float_pointer(b, b.add(target, b.mul(target_image, word(image)))), j * LANES)
        for image in range(images)
        for j in range(vectors)
    ]

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        scalars, gradient, *others = carried
        asked, sums = early.ask(b, others)
        factors = [
            load_vector(b, float_pointer(b, b.add(gradient, b.mul(gradient_block, word(j)))))
            for j in range(vectors)
        ]
        new = add_outer(b, factors, (moved(b, scalars, image) for image in range(images)), sums)
        return [moved(b, scalars, LANES), b.add(gradient, word(VECTOR_BYTES)), *asked, *new]

    # Sums that grow over groups of tiles begin with what is there.
    before = [ZERO_VECTOR if fresh else load_vector(b, where) for where in places]

    def over_tiles(source: Value, gradient: Value, sums: list[Value]) -> list[Value]:
        carried = [float_pointer(b, source), gradient, *early.starts, *sums]
        return counted_loop(b, tiles, carried, tile)[-len(before) :]

    def run(_: Value, carried: list[Value]) -> list[Value]:
        source, gradient, *sums = carried
        further = (b.add(it, runs[1]) for it in (source, gradient)) if runs else ()
        return [*further, *over_tiles(source, gradient, sums)]

    if runs:
        sums = counted_loop(b, runs[0], [source, gradient, *before], run)[2:]
    else:
        sums = over_tiles(source, gradient, before)
    for value, where in zip(sums, places, strict=True):
        store_vector(b, value, where)


@inlined
def add_block(
    source: int,
    images: int,
    gradient: int,
    gradient_block: int,
    blocks: int,
    tiles: int,
    target: int,
    row: int,
) -> None:
    """Add the products of a block of `images` images with `blocks` vectors of gradients to sums [image][vector].

    `row`: bytes from image to image; all else as for `add_products`.
    """
    triple = triple_of(blocks)
    for _ in range(blocks // 2 - triple):
        _add_vectors(2, source, images, gradient, gradient_block, tiles, target, row)
        gradient, target = gradient + 2 * gradient_block, target + 2 * VECTOR_BYTES
    # Constants, as code is made for each number of vectors.
    if triple:
        _add_vectors(3, source, images, gradient, gradient_block, tiles, target, row)
    elif blocks % 2:
        _add_vectors(1, source, images, gradient, gradient_block, tiles, target, row)


@inlined
def _add_vectors(
    vectors: Any,
    source: int,
    images: int,
    gradient: int,
    gradient_block: int,
    tiles: int,
    target: int,
    row: int,
) -> None:
    # Vectors of gradients share a broadcast voxel; equal parts, as in `multiply`.
    parts, first = cover(images, IMAGES[vectors - 1]), 0
    for part in range(parts):
        many = images * (part + 1) // parts - first
        add_products(
            vectors, source + 4 * first, gradient, gradient_block, tiles, target + first * row, row, many, None,
        )  # fmt: skip
        first += many
