"""Where the tiles of Winograd's minimal filtering begin, on the interleaved lattices of an axis, and their voxels.

`new`: voxels of a tile that no other one has, along the axis (`forms`).
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store


@inlined
def origin(tile: int, dilation: int, new: int) -> int:
    """Return the first new voxel of a tile."""
    # Neighbouring tiles of a dilated axis are of neighbouring lattices: tile t begins in lattice t % dilation.
    return tile // dilation * new * dilation + tile % dilation


@inlined
def tiles_along(size: int, dilation: int, new: int) -> Any:
    """Return the number of tiles along an axis; the last ones may lie outside."""
    # As many for each lattice, though the last may have nothing inside: numbers of tiles then need no table.
    return cover(size, new * dilation) * dilation


@inlined
def side_by_side(form: Any, left: int, along_x: int, behind: int) -> Any:
    """Return how many of `left` tiles, from one on, lie side by side along x and have all their voxels.

    Of tiles that are numbered along x first, without dilation. `along_x`: voxels from the tile's first output to the
    end of the row, `behind`: those behind its last voxel. 0 or less: not even this one has.
    """
    return min(left, cover(along_x, form.new_x), behind // form.new_x + 1)


@inlined
def fetch(
    sizes: Any, row: Any, dilation: Any, base: int, place: Any, counts: Any, loose: int
) -> Any:
    """Address and steps of a tile's voxels, counts z, y, x, from a place on: zeros beyond the images."""
    steps = 4 * row[0] * dilation[0], 4 * row[1] * dilation[1], 4 * row[2] * dilation[2]
    here = base + 4 * (place[0] * row[0] + place[1] * row[1] + place[2] * row[2])
    # Inside, voxels are read where they lie; only tiles at a border are copied.
    whole_z = place[0] + (counts[0] - 1) * dilation[0] < sizes[0]
    whole_y = place[1] + (counts[1] - 1) * dilation[1] < sizes[1]
    whole_x = place[2] + (counts[2] - 1) * dilation[2] < sizes[2]
    if whole_z and whole_y and whole_x:
        return here, steps[0], steps[1], steps[2]
    seen = (
        min(counts[0], cover(sizes[0] - place[0], dilation[0])),
        min(counts[1], cover(sizes[1] - place[1], dilation[1])),
        min(counts[2], cover(sizes[2] - place[2], dilation[2])),
    )
    target = loose
    for z in range(counts[0]):
        for y in range(counts[1]):
            for x in range(counts[2]):
                inside = z < seen[0] and y < seen[1] and x < seen[2]
                from_ = here + z * steps[0] + y * steps[1] + x * steps[2]
                store(target, load(from_) if inside else splat(0.0))
                target += VECTOR_BYTES
    return loose, counts[1] * counts[2] * VECTOR_BYTES, counts[2] * VECTOR_BYTES, VECTOR_BYTES
