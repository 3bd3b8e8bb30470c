"""Where the tiles of Winograd's minimal filtering begin, on the interleaved lattices of an axis.

`new`: voxels of a tile that no other one has, along the axis (`forms`).
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined


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
