"""Upsampling by whole factors, nearest or linear, and its gradient.

Along an axis of `size` voxels and factor f, voxel i of the large channel takes voxel i // f of the small one with
weight 1 - w, and its neighbour on the nearer side with weight w; the outermost voxels are their own neighbours. w is
|2 (i % f) + 1 - f| / 2f, or 0 for the nearest voxel. Backward every small voxel gathers from the large ones that
took it, always in the same order.

Argument words. Addresses in bytes, strides in floats, all else counts; voxels are vectors of LANES channels.

    small, small_z, small_y     one block: voxel (0, 0, 0), strides
    size_z, size_y, size_x      voxels of the small block
    large, large_z, large_y     the same of the large block, `factor` times as large
    factor_z, factor_y, factor_x
    linear                      0: nearest voxel
    z0, z1, y0, y1              planes and rows to write: of the large block forward, of the small backward

Only these rows are written. Each voxel that is read comes from memory once, as far as caches hold the rows of some
planes.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store

AT = words(
    "small small_z small_y size_z size_y size_x large large_z large_y factor_z factor_y factor_x "
    "linear z0 z1 y0 y1"
)

TOGETHER = 4  # rows of the large block: as many as a linear factor of 2 brings back to one row


@inlined
def _weight(rest: int, factor: int, linear: int) -> float:
    """Return the weight of the neighbour, for the voxels with this rest."""
    # An exact number for factors that are powers of two.
    return abs(2 * rest + 1 - factor) / (2.0 * factor) if linear else 0.0


@inlined
def _own(i: int, factor: int) -> int:
    return i // factor


@inlined
def _neighbour(own: int, rest: int, factor: int, size: int) -> int:
    """Return the next voxel on the nearer side."""
    return max(own - 1, 0) if 2 * rest + 1 < factor else min(own + 1, size - 1)


@inlined
def _share(i: int, j: int, factor: int, size: int, linear: int) -> float:
    """Return the share that voxel i of the large block takes of voxel j of the small one."""
    own = _own(i, factor)
    rest = i - own * factor
    weight = _weight(rest, factor, linear)
    total = 1.0 - weight if own == j else 0.0
    return total + weight if _neighbour(own, rest, factor, size) == j else total


@inlined
def _between(own: Any, neighbour: Any, weight: float) -> Any:
    return own * splat(1.0 - weight) + neighbour * splat(weight)


@inlined
def _blended(nearest: int, along_y: int, along_z: int, along_both: int, y: float, z: float) -> Any:
    """Return one voxel between up to four rows; rows with weight 0 are not read."""
    # Of the outermost voxels the neighbour is the voxel itself, but its row is read again only where it has
    # weight.
    value = load(nearest)
    if y > 0.0:
        value = _between(value, load(along_y), y)
    if z > 0.0:
        other = load(along_z)
        if y > 0.0:
            other = _between(other, load(along_both), y)
        value = _between(value, other, z)
    return value


@inlined
def _grow_row(args: Any, rows: Any, weights: Any, target: int) -> None:
    """Write one row of the large block from the rows of the small one around it."""
    nearest, along_y, along_z, along_both = rows
    y, z = weights
    factor, size = args[AT.factor_x], args[AT.size_x]
    # A voxel blended along y and z is used by all `factor` voxels around it.
    here = _blended(nearest, along_y, along_z, along_both, y, z)
    before = here
    for x in range(size):
        after = here
        if x + 1 < size:
            at = (x + 1) * VECTOR_BYTES
            after = _blended(nearest + at, along_y + at, along_z + at, along_both + at, y, z)
        for rest in range(factor):
            weight = _weight(rest, factor, args[AT.linear])
            value = here
            if weight > 0.0:
                # Only along x are three voxels under way: they stay in registers.
                value = _between(here, before if 2 * rest + 1 < factor else after, weight)
            store(target + (x * factor + rest) * VECTOR_BYTES, value)
        before = here
        here = after


@kernel(AT)
def upsample_forward(args: Any, worker: int) -> None:
    """Write rows of the large block. Words: see the module."""
    linear = args[AT.linear]
    for z in range(args[AT.z0], args[AT.z1]):
        own_z = _own(z, args[AT.factor_z])
        rest_z = z - own_z * args[AT.factor_z]
        other_z = _neighbour(own_z, rest_z, args[AT.factor_z], args[AT.size_z])
        plane = args[AT.small] + 4 * own_z * args[AT.small_z]
        other_plane = args[AT.small] + 4 * other_z * args[AT.small_z]
        for y in range(args[AT.y0], args[AT.y1]):
            own_y = _own(y, args[AT.factor_y])
            rest_y = y - own_y * args[AT.factor_y]
            row = 4 * own_y * args[AT.small_y]
            other_y = _neighbour(own_y, rest_y, args[AT.factor_y], args[AT.size_y])
            other_row = 4 * other_y * args[AT.small_y]
            _grow_row(
                args,
                (plane + row, plane + other_row, other_plane + row, other_plane + other_row),
                (
                    _weight(rest_y, args[AT.factor_y], linear),
                    _weight(rest_z, args[AT.factor_z], linear),
                ),
                args[AT.large] + 4 * (z * args[AT.large_z] + y * args[AT.large_y]),
            )


@inlined
def _gathered(source: int, step: int, shares: Any) -> Any:
    """Return the sum of a voxel of TOGETHER rows, each times its share; rows with share 0 are not read."""
    first, second, third, fourth = shares
    value = load(source) * splat(first)
    if second > 0.0:
        value = value + load(source + step) * splat(second)
    if third > 0.0:
        value = value + load(source + 2 * step) * splat(third)
    if fourth > 0.0:
        value = value + load(source + 3 * step) * splat(fourth)
    return value


@inlined
def _gather_rows(args: Any, source: int, target: int, shares: Any, first: bool) -> None:
    """Add the shares of TOGETHER rows of the large block to one of the small block."""
    factor, size, step = args[AT.factor_x], args[AT.size_x], 4 * args[AT.large_y]
    nothing = splat(0.0)
    before, here = nothing, nothing
    # As forward, the other way round: three sums along x stay in registers, and each is stored once.
    for x in range(size):
        after = nothing
        for rest in range(factor):
            value = _gathered(source + (x * factor + rest) * VECTOR_BYTES, step, shares)
            weight = _weight(rest, factor, args[AT.linear])
            here = here + value * splat(1.0 - weight)
            if weight > 0.0:
                other = value * splat(weight)
                if 2 * rest + 1 < factor:
                    before = before + other
                else:
                    after = after + other
        # The outermost voxel is its own neighbour.
        if x == 0:
            here = here + before
        else:
            _put(target + (x - 1) * VECTOR_BYTES, before, first)
        before = here
        here = after
    _put(target + (size - 1) * VECTOR_BYTES, before + here, first)


@inlined
def _put(place: int, value: Any, first: bool) -> None:
    if not first:
        value = load(place) + value
    store(place, value)


@inlined
def _first_taker(j: int, factor: int, linear: int) -> int:
    """Return the first voxel of the large block that takes voxel j of the small one; a share of 0 takes none."""
    # Half a factor before its own voxels, as far as neighbours reach.
    return max(0, j * factor - factor // 2) if linear else j * factor


@inlined
def _end_of_takers(j: int, factor: int, size: int, linear: int) -> int:
    end = (j + 1) * factor
    return min(size * factor, end + factor // 2) if linear else end


@inlined
def _row_share(args: Any, row: int, end: int, y: int, along_z: float) -> float:
    """Return the share that a row gives back to row y; nothing from `end` on."""
    if row >= end:
        return 0.0
    share: float = _share(row, y, args[AT.factor_y], args[AT.size_y], args[AT.linear])
    return along_z * share


@inlined
def _gather_plane(args: Any, plane: int, y: int, target: int, along_z: float, first: bool) -> None:
    """Add the shares of a plane of the large block to a row of the small one."""
    linear, factor = args[AT.linear], args[AT.factor_y]
    end = _end_of_takers(y, factor, args[AT.size_y], linear)
    # Four rows at a time: with a linear factor of 2 exactly those that take the row.
    for row in range(_first_taker(y, factor, linear), end, TOGETHER):
        shares = (
            _row_share(args, row, end, y, along_z),
            _row_share(args, row + 1, end, y, along_z),
            _row_share(args, row + 2, end, y, along_z),
            _row_share(args, row + 3, end, y, along_z),
        )
        source = args[AT.large] + 4 * (plane * args[AT.large_z] + row * args[AT.large_y])
        _gather_rows(args, source, target, shares, first)
        first = False


@kernel(AT)
def upsample_backward(args: Any, worker: int) -> None:
    """Write rows of the small block's gradient, from the large one's. Words: see the module."""
    linear, factor, size = args[AT.linear], args[AT.factor_z], args[AT.size_z]
    for z in range(args[AT.z0], args[AT.z1]):
        for y in range(args[AT.y0], args[AT.y1]):
            target = args[AT.small] + 4 * (z * args[AT.small_z] + y * args[AT.small_y])
            first = True
            for plane in range(
                _first_taker(z, factor, linear), _end_of_takers(z, factor, size, linear)
            ):
                along_z = _share(plane, z, factor, size, linear)
                if along_z > 0.0:
                    # The first plane stores, all others add: nothing is zeroed before.
                    _gather_plane(args, plane, y, target, along_z, first)
                    first = False
