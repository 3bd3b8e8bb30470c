"""Products of one point of Winograd's transforms for filter gradients: summed over tiles."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
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
from znnpy_kernels.winograd.products import by_count

# Most images of a register block with one and with two vectors: their sums fit the registers.
IMAGES: tuple[int, int] = (min(LANES, 28), min(LANES, 14)) if REGISTERS == 32 else (8, 6)


@intrinsic(prefer_literal=True)
def add_products(
    typingctx: Any,
    vectors: Any,
    source: Any,
    gradient: Any,
    gradient_block: Any,
    tiles: Any,
    target: Any,
    target_image: Any,
    images: Any,
) -> tuple[Signature, Any]:
    """Add `images` <= IMAGES[vectors - 1] images times `vectors` vectors of gradients over `tiles`.

    Addresses and steps in bytes; tiles of source [tile][image] and gradients [tile][lane] lie LANES
    floats apart. Each sum is taken in the order of the tiles.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        number, words = vectors.literal_value, list(args[1:-1])
        most = IMAGES[number - 1]
        by_count(builder, args[-1], most, lambda images: _emit(builder, number, images, words))
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 7), codegen


def _emit(b: ir.IRBuilder, vectors: int, images: int, words: list[Value]) -> None:
    source, gradient, gradient_block, tiles, target, target_image = words
    places = [
        moved(b, float_pointer(b, b.add(target, b.mul(target_image, word(image)))), j * LANES)
        for image in range(images)
        for j in range(vectors)
    ]

    def tile(_: Value, carried: list[Value]) -> list[Value]:
        scalars, gradient, *sums = carried
        factors = [
            load_vector(b, float_pointer(b, b.add(gradient, b.mul(gradient_block, word(j)))))
            for j in range(vectors)
        ]
        new = []
        for image in range(images):
            voxel = load_broadcast(b, moved(b, scalars, image))
            for j, factor in enumerate(factors):
                new.append(multiply_add(b, factor, voxel, sums[image * vectors + j]))
        return [moved(b, scalars, LANES), b.add(gradient, word(4 * LANES)), *new]

    before = [load_vector(b, where) for where in places]
    carried = [float_pointer(b, source), gradient, *before]
    _, _, *sums = counted_loop(b, tiles, carried, tile)
    for value, where in zip(sums, places, strict=True):
        store_vector(b, value, where)
