"""Resizing to any size, by nearest voxels or linear interpolation, and its gradient.

Along an axis of n voxels that becomes m, new voxel i lies at a place among the old ones, a fraction of whole numbers:

    way 0, nearest          i n / m
        1, nearest_exact    (2 i + 1) n / 2 m
        2, linear           ((2 i + 1) n - m) / 2 m, but neither before the first old voxel nor behind the last
        3, corners          i (n - 1) / (m - 1)

Nearest ones take the old voxel at or before the place, others a share of the next one, too. Backward every old voxel
sums what the new ones took of it, always in the same order.

Argument words. Addresses in bytes, strides in floats, all else counts; voxels are vectors of LANES channels.

    old, old_z, old_y           one block: voxel (0, 0, 0), strides
    size_z, size_y, size_x      voxels of the old block
    new, new_z, new_y           the same of the new block
    made_z, made_y, made_x
    way
    z0, z1, y0, y1              planes and rows to write: of the new block forward, of the old backward

Only these rows are written.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import fma, load, splat, store

AT = words(
    "old old_z old_y size_z size_y size_x new new_z new_y made_z made_y made_x way z0 z1 y0 y1"
)

WAYS = {"nearest": 0, "nearest_exact": 1, "linear": 2, "corners": 3}
_EXACT, _LINEAR, _CORNERS = 1, 2, 3


@inlined
def _steps(made: int, way: int) -> int:
    """Return the denominator of places."""
    if way == _CORNERS:
        return max(made - 1, 1)
    return 2 * made if way > 0 else made


@inlined
def _place(i: int, size: int, made: int, way: int) -> int:
    """Return where new voxel i lies, in steps."""
    if way == _CORNERS:
        return i * (size - 1)
    if way == _LINEAR:
        return min(max((2 * i + 1) * size - made, 0), (size - 1) * 2 * made)
    return (2 * i + 1) * size if way == _EXACT else i * size


@inlined
def _own(i: int, size: int, made: int, way: int) -> int:
    own: int = _place(i, size, made, way) // _steps(made, way)
    return own


@inlined
def _next_share(i: int, size: int, made: int, way: int) -> float:
    """Return the share of the voxel behind a new voxel's own, 0 for the last."""
    if way < _LINEAR:
        return 0.0
    steps = _steps(made, way)
    share: float = (_place(i, size, made, way) % steps) / steps
    return share


@inlined
def _share(i: int, j: int, size: int, made: int, way: int) -> float:
    """Return the share that new voxel i takes of old voxel j."""
    own, behind = _own(i, size, made, way), _next_share(i, size, made, way)
    share: float = 1.0 - behind if own == j else behind if own + 1 == j else 0.0
    return share


@inlined
def _first_taker(j: int, size: int, made: int, way: int) -> int:
    """Return a new voxel before which none takes old voxel j."""
    if way == _CORNERS:
        return max(0, (j - 1) * (made - 1) // max(size - 1, 1))
    return max(0, (j - 1) * made // size - 1)


@inlined
def _end_of_takers(j: int, size: int, made: int, way: int) -> int:
    """Return a new voxel from which on none takes old voxel j."""
    if way == _CORNERS:
        return min(made, (j + 1) * (made - 1) // max(size - 1, 1) + 1)
    return min(made, (j + 2) * made // size + 1)


@inlined
def _between(near: Any, far: Any, share: float) -> Any:
    return near * splat(1.0 - share) + far * splat(share)


@inlined
def _along_x(row: int, x: int, share: float) -> Any:
    value = load(row + x * VECTOR_BYTES)
    if share > 0.0:
        value = _between(value, load(row + (x + 1) * VECTOR_BYTES), share)
    return value


@kernel(AT)
def resize_forward(args: Any, worker: int) -> None:
    """Write rows of the new block. Words: see the module."""
    size_y, size_x, made_x = args[AT.size_y], args[AT.size_x], args[AT.made_x]
    way = args[AT.way]
    for z in range(args[AT.z0], args[AT.z1]):
        share_z = _next_share(z, args[AT.size_z], args[AT.made_z], way)
        plane = args[AT.old] + 4 * _own(z, args[AT.size_z], args[AT.made_z], way) * args[AT.old_z]
        for y in range(args[AT.y0], args[AT.y1]):
            share_y = _next_share(y, size_y, args[AT.made_y], way)
            row = plane + 4 * _own(y, size_y, args[AT.made_y], way) * args[AT.old_y]
            below, behind = row + 4 * args[AT.old_y], row + 4 * args[AT.old_z]
            target = args[AT.new] + 4 * (z * args[AT.new_z] + y * args[AT.new_y])
            for x in range(made_x):
                own, share = _own(x, size_x, made_x, way), _next_share(x, size_x, made_x, way)
                value = _along_x(row, own, share)
                # Rows without a share may lie beyond the last.
                if share_y > 0.0:
                    value = _between(value, _along_x(below, own, share), share_y)
                if share_z > 0.0:
                    other = _along_x(behind, own, share)
                    if share_y > 0.0:
                        corner = behind + 4 * args[AT.old_y]
                        other = _between(other, _along_x(corner, own, share), share_y)
                    value = _between(value, other, share_z)
                store(target + x * VECTOR_BYTES, value)


@inlined
def _give(place: int, value: Any, share: float) -> None:
    store(place, fma(value, splat(share), load(place)))


@inlined
def _give_row(args: Any, source: int, target: int, factor: float) -> None:
    """Add a row of the new block to one of the old, as far as its voxels took of it."""
    size, made, way = args[AT.size_x], args[AT.made_x], args[AT.way]
    for x in range(made):
        value = load(source + x * VECTOR_BYTES)
        own, share = _own(x, size, made, way), _next_share(x, size, made, way)
        _give(target + own * VECTOR_BYTES, value, factor * (1.0 - share))
        if share > 0.0:
            _give(target + (own + 1) * VECTOR_BYTES, value, factor * share)


@kernel(AT)
def resize_backward(args: Any, worker: int) -> None:
    """Write rows of the old block's gradient, from the new one's. Words: see the module."""
    way = args[AT.way]
    size_z, size_y, size_x = args[AT.size_z], args[AT.size_y], args[AT.size_x]
    made_z, made_y = args[AT.made_z], args[AT.made_y]
    for z in range(args[AT.z0], args[AT.z1]):
        first_z, end_z = (
            _first_taker(z, size_z, made_z, way),
            _end_of_takers(z, size_z, made_z, way),
        )
        for y in range(args[AT.y0], args[AT.y1]):
            target = args[AT.old] + 4 * (z * args[AT.old_z] + y * args[AT.old_y])
            for x in range(size_x):
                store(target + x * VECTOR_BYTES, splat(0.0))
            first_y, end_y = (
                _first_taker(y, size_y, made_y, way),
                _end_of_takers(y, size_y, made_y, way),
            )
            for plane in range(first_z, end_z):
                along_z = _share(plane, z, size_z, made_z, way)
                if along_z > 0.0:
                    for row in range(first_y, end_y):
                        share = along_z * _share(row, y, size_y, made_y, way)
                        if share > 0.0:
                            source = args[AT.new] + 4 * (
                                plane * args[AT.new_z] + row * args[AT.new_y]
                            )
                            _give_row(args, source, target, share)
