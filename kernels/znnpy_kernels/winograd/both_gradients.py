"""What kernels share that make a data gradient and a weight gradient in one task.

Both see a tile of the gradient: six voxels along each axis of three taps make four of the data gradient, and with four
of the source's values, at the same place, sums for the filters:

    dg = G' [(B' dy) * (A x)]       taps in reverse, as a gradient meets the values before it

So each map is read once, and the source's voxels are not transformed to as many points.

Argument words: those of `forward`, without `accumulate`, and

    values, values_block, values_z, values_y    the source's, `channels` of them, laid out like the target
    weights                                     packed filter gradients of all channels, overwritten
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.gradient_products import add_block

AT = words(planes.AT, "filters values values_block values_z values_y channels weights")
NO_WEIGHTS = dict.fromkeys(
    ("values", "values_block", "values_z", "values_y", "channels", "weights"), 0
)
"""Words of a pass without the weight gradient."""


@inlined
def clear(target: int, vectors: int) -> None:
    """Store zeros."""
    for vector in range(vectors):
        store(target + vector * VECTOR_BYTES, splat(0.0))


@inlined
def add_point(
    args: Any, count: int, values: int, values_block: int, points: int, points_block: int, sums: int
) -> None:
    """Add the products of values and gradients of a group's tiles at one point, to sums [channel][block of gradients].

    `values_block`, `points_block`: bytes from block to block, whose tiles lie side by side.
    """
    channels, blocks = args[AT.channels], cover(args[AT.inputs], LANES)
    row = blocks * VECTOR_BYTES
    for block in range(cover(channels, LANES)):
        here, images = values + block * values_block, min(LANES, channels - block * LANES)
        target = sums + block * LANES * row
        add_block(here, images, points, points_block, blocks, count, target, row)


def taps_of(transformed: Any, taps: int) -> Any:
    """The function `(args, sums, spare)`: sums of all pairs of channels to packed filters, their taps in reverse.

    `transformed`: the inlined `(source, step, target, target_step, spare)` from sums `step` bytes apart to so many
    `taps`; `spare`: what lies there may be overwritten meanwhile.
    """

    @inlined
    def to_taps(args: Any, sums: int, spare: int) -> None:
        channels, blocks = args[AT.channels], cover(args[AT.inputs], LANES)
        point = channels * blocks * VECTOR_BYTES
        for block in range(blocks):
            # Packed filters are in pairs of vectors; the last pair may be a single one.
            width = min(2, blocks - block // 2 * 2) * VECTOR_BYTES
            group = args[AT.weights] + taps * channels * (block // 2) * 2 * VECTOR_BYTES
            for image in range(channels):
                first = image // LANES * LANES
                tap = min(LANES, channels - first) * width
                target = group + taps * first * width + (image - first) * width
                target += block % 2 * VECTOR_BYTES + (taps - 1) * tap
                here = sums + (image * blocks + block) * VECTOR_BYTES
                transformed(here, point, target, -tap, spare)

    return to_taps
