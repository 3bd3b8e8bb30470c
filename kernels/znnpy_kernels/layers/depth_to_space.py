"""Neighbouring channels as the voxels of blocks, and back: copies, number by number.

Channel c of the large feature map has at voxel (z, y, x) what channel (c F + ((z % fz) fy + y % fy) fx + x % fx) of the
small one has at (z / fz, y / fy, x / fx), F = fz fy fx. Words: `small`, `large` are addresses of voxel (0, 0, 0) of
block 0, `*_block`, `*_z`, `*_y` strides in floats; `channels` real channels and `block` the block of what is written,
`z0` to `y1` its planes and rows, `width` its voxels in a row. Lanes without a channel are written as 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES

AT = words(
    "small small_block small_z small_y large large_block large_z large_y factor_z factor_y factor_x "
    "channels block z0 z1 y0 y1 width"
)


@inlined
def _small(args: Any, channel: int, z: int, y: int, x: int) -> Any:
    """Return the number that lies at a voxel of a channel of the large feature map."""
    a, b, c = args[AT.factor_z], args[AT.factor_y], args[AT.factor_x]
    own = ((channel * a + z % a) * b + y % b) * c + x % c
    place = args[AT.small] + 4 * (
        own // LANES * args[AT.small_block] + z // a * args[AT.small_z] + y // b * args[AT.small_y]
    )
    return floats(place)[x // c * LANES + own % LANES]


@inlined
def _large(args: Any, channel: int, z: int, y: int, x: int) -> Any:
    """Return the number that lies at a voxel of a channel of the small feature map."""
    a, b, c = args[AT.factor_z], args[AT.factor_y], args[AT.factor_x]
    rest, along_x = channel // c, x * c + channel % c
    rest, along_y = rest // b, y * b + rest % b
    own, along_z = rest // a, z * a + rest % a
    place = args[AT.large] + 4 * (
        own // LANES * args[AT.large_block]
        + along_z * args[AT.large_z]
        + along_y * args[AT.large_y]
    )
    return floats(place)[along_x * LANES + own % LANES]


@kernel(AT)
def to_space(args: Any, worker: int) -> None:
    """Write a block of the large feature map."""
    first = args[AT.block] * LANES
    for z in range(args[AT.z0], args[AT.z1]):
        for y in range(args[AT.y0], args[AT.y1]):
            place = args[AT.large] + 4 * (
                args[AT.block] * args[AT.large_block] + z * args[AT.large_z] + y * args[AT.large_y]
            )
            row = floats(place)
            for x in range(args[AT.width]):
                for lane in range(LANES):
                    found = np.float32(0.0)
                    if first + lane < args[AT.channels]:
                        found = _small(args, first + lane, z, y, x)
                    row[x * LANES + lane] = found


@kernel(AT)
def to_depth(args: Any, worker: int) -> None:
    """Write a block of the small feature map."""
    first = args[AT.block] * LANES
    for z in range(args[AT.z0], args[AT.z1]):
        for y in range(args[AT.y0], args[AT.y1]):
            place = args[AT.small] + 4 * (
                args[AT.block] * args[AT.small_block] + z * args[AT.small_z] + y * args[AT.small_y]
            )
            row = floats(place)
            for x in range(args[AT.width]):
                for lane in range(LANES):
                    found = np.float32(0.0)
                    if first + lane < args[AT.channels]:
                        found = _large(args, first + lane, z, y, x)
                    row[x * LANES + lane] = found
