"""Filters that are transformed for one or two tiles alone (`panels`): points are multiplied while in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    WORD,
    by_count,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.filters import plane_points
from znnpy_kernels.winograd.line_transforms import FILTER_FACTORS
from znnpy_kernels.winograd.products import odd_bytes

# So few that points are added to their sums at once, in the L1 cache, instead of written for register blocks of tiles:
# 512 -> 512 channels on 4^3 take 2.7 ms so, and 5.8.
FEW_TILES = 2


@intrinsic
def _add_plane(
    typingctx: Any,
    form: Any,
    factors: Any,
    source: Any,
    step_z: Any,
    step_y: Any,
    step_x: Any,
    tiles: Any,
    points: Any,
    sums: Any,
) -> tuple[Signature, Any]:
    """Add one plane of points of a vector of filters, times those of `tiles` <= FEW_TILES tiles, to their sums.

    Points of an input and sums lie [x][y][tile], from y to y `odd_bytes(tiles)`.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, factors, source, *steps, tiles, points, sums) = builder, args
        starts = [float_pointer(b, points), float_pointer(b, sums)]

        def emit(count: int) -> None:
            # An empty assembler statement of its own for each count: LLVM would take what all have in common out of
            # the switch, and keep all columns on the stack.
            kind = ir.FunctionType(WORD, [WORD, WORD])
            own = b.asm(kind, "", "=r,0,i", [source, word(count)], side_effect=False)
            for number, value in plane_points(b, form, factors, own, steps):
                # Constant offsets, or as many addresses as places would be kept on the stack.
                first = number * odd_bytes(count) // 4
                for tile in range(first, first + count * LANES, LANES):
                    seen, target = (moved(b, start, tile) for start in starts)
                    new = multiply_add(b, value, load_broadcast(b, seen), load_vector(b, target))
                    store_vector(b, new, target)

        by_count(b, tiles, range(1, FEW_TILES + 1), emit)
        return context.get_dummy_value()

    return types.void(form, factors, *[types.int64] * 7), codegen


@inlined
def add_plane(
    form: Any, depth: int, source: int, tap: int, tiles: int, points: int, sums: int
) -> None:
    """Add plane `depth` of the points of a vector of filters, times those of few tiles, to their sums.

    `tap`: bytes from tap to tap; points and sums as in `_add_plane`.
    """
    row, plane = form.taps_x * tap, form.taps_y * form.taps_x * tap
    _add_plane(form, FILTER_FACTORS[depth], source, plane, row, tap, tiles, points, sums)
