"""Dropout on one channel block; the same kernel runs forward and backward.

The mask is a function of (seed, iteration, sample, channel, z, y, x) alone: a splitmix64-style hash of a voxel, then
a 32-bit mix with the channel. So it is bitwise the same for any cutting into tasks, any LANES and any row gaps, and
backward needs no stored mask. 32-bit mixing constants: Chris Wellons' `lowbias32` (public domain); 64-bit: Steele,
Lea, Flood, *Fast splittable pseudorandom number generators*, 2014.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument, longs
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import lane_numbers, load, select, splat, splat_int, store

# Of splitmix64: 2^64 by the golden ratio, and its two multipliers.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
# 2^32 by the golden ratio: channels are spread over all bits before they are mixed.
CHANNEL_STEP = 0x9E3779B1


@inlined
def mix64(state: Any, word: Any) -> Any:
    """Hash one more word into a 64-bit state."""
    h = (state ^ np.uint64(word)) + GOLDEN
    h = (h ^ (h >> np.uint64(30))) * MIX_1
    h = (h ^ (h >> np.uint64(27))) * MIX_2
    return h ^ (h >> np.uint64(31))


@inlined
def _random24(voxel: Any, channels: Any) -> Any:
    """Return 24 random bits for each channel of a voxel, from the voxel's 64-bit hash."""
    h = channels * splat_int(CHANNEL_STEP) + splat_int(np.int64(voxel))
    # lowbias32: shifts 16, 15, 16 and two multipliers.
    h = h ^ (h >> splat_int(16))
    # The upper half of the voxel's hash comes in half-way, so all 64 bits count.
    h = h * splat_int(0x7FEB352D) + splat_int(np.int64(voxel >> np.uint64(32)))
    h = h ^ (h >> splat_int(15))
    h = h * splat_int(0x846CA68B)
    # 24 bits: `keep` is met to one part in 2^24, and int32 comparisons meet no sign.
    return (h ^ (h >> splat_int(16))) >> splat_int(8)


AT = words(
    "source source_z source_y target target_z target_y seed edge iteration image first_channel "
    "first_plane first_row planes rows width keep:float",
)


@kernel(AT)
def dropout(args: Any, worker: int) -> None:
    """Write source / keep with probability `keep`, else source * 0 (NaN and Inf stay visible).

    Backward: the same call with the gradient as `source`. `seed` and `iteration` are addresses of an int64; `edge` is
    combined with the seed, bit by bit (xor), so that each edge draws its own; `image` is the number of the sample,
    `first_channel` the channel of lane 0, `first_plane` and `first_row` the place of the part; x starts at 0. `keep` in
    (0, 1]. May run in place.
    """
    keep = float_argument(args[AT.keep])
    # 2^24 times the probability; a keep of 1 is above all of them.
    limit = splat_int(np.int64(keep * 16777216.0))
    channels = lane_numbers() + splat_int(args[AT.first_channel])
    zero, scale = splat(0.0), splat(1.0 / keep)
    # The words of all voxels first, then plane, row and voxel: each level is hashed once.
    own = mix64(np.uint64(0), longs(args[AT.seed])[0] ^ args[AT.edge])
    block = mix64(mix64(own, longs(args[AT.iteration])[0]), args[AT.image])
    for z in range(args[AT.planes]):
        plane = mix64(block, args[AT.first_plane] + z)
        for y in range(args[AT.rows]):
            row = mix64(plane, args[AT.first_row] + y)
            source = args[AT.source] + 4 * (z * args[AT.source_z] + y * args[AT.source_y])
            target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
            for x in range(args[AT.width]):
                kept = _random24(mix64(row, x), channels) < limit
                # A product, not a selection, so that NaN and Inf stay visible where they are dropped.
                factor = select(kept, scale, zero)
                store(target + VECTOR_BYTES * x, load(source + VECTOR_BYTES * x) * factor)
