"""Linear upsampling by whole factors that keeps the outermost voxels (`align_corners`), and its gradient.

Along an axis of n voxels and m = n * factor, voxel i of the large channel lies at i (n - 1) / (m - 1) of the small
one, between two voxels. Words are those of `layers.upsampling`. Backward every small voxel gathers from the large
ones that took it, always in the same order.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.upsampling import AT
from znnpy_kernels.machine.abi import kernel
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import fma, load, splat, store


@inlined
def _before(i: int, size: int, factor: int) -> int:
    """Return the last voxel of the small channel that does not lie behind voxel i of the large one."""
    return i * (size - 1) // max(size * factor - 1, 1)


@inlined
def _after(i: int, size: int, factor: int) -> float:
    """Return the share of the voxel behind that one."""
    steps = max(size * factor - 1, 1)
    rest: float = (i * (size - 1) % steps) / steps
    return rest


@inlined
def _share(i: int, j: int, size: int, factor: int) -> float:
    """Return the share that voxel i of the large channel takes of voxel j of the small one."""
    own, weight = _before(i, size, factor), _after(i, size, factor)
    share: float = 1.0 - weight if own == j else weight if own + 1 == j else 0.0
    return share


@inlined
def _first_taker(j: int, factor: int) -> int:
    return max(0, (j - 1) * factor)


@inlined
def _end_of_takers(j: int, size: int, factor: int) -> int:
    return min(size * factor, (j + 2) * factor)


@inlined
def _along_x(row: int, x: int, weight: float) -> Any:
    value = load(row + x * VECTOR_BYTES)
    if weight > 0.0:
        value = value * splat(1.0 - weight) + load(row + (x + 1) * VECTOR_BYTES) * splat(weight)
    return value


@inlined
def _between(near: Any, far: Any, weight: float) -> Any:
    return near * splat(1.0 - weight) + far * splat(weight)


@kernel(AT)
def corners_forward(args: Any, worker: int) -> None:
    """Write rows of the large block. Words: see `layers.upsampling`."""
    size_x, factor_x = args[AT.size_x], args[AT.factor_x]
    for z in range(args[AT.z0], args[AT.z1]):
        weight_z = _after(z, args[AT.size_z], args[AT.factor_z])
        plane = (
            args[AT.small] + 4 * _before(z, args[AT.size_z], args[AT.factor_z]) * args[AT.small_z]
        )
        for y in range(args[AT.y0], args[AT.y1]):
            weight_y = _after(y, args[AT.size_y], args[AT.factor_y])
            row = plane + 4 * _before(y, args[AT.size_y], args[AT.factor_y]) * args[AT.small_y]
            below, behind = row + 4 * args[AT.small_y], row + 4 * args[AT.small_z]
            target = args[AT.large] + 4 * (z * args[AT.large_z] + y * args[AT.large_y])
            for x in range(size_x * factor_x):
                own, weight = _before(x, size_x, factor_x), _after(x, size_x, factor_x)
                value = _along_x(row, own, weight)
                # Rows without a share may lie beyond the last.
                if weight_y > 0.0:
                    value = _between(value, _along_x(below, own, weight), weight_y)
                if weight_z > 0.0:
                    other = _along_x(behind, own, weight)
                    if weight_y > 0.0:
                        corner = behind + 4 * args[AT.small_y]
                        other = _between(other, _along_x(corner, own, weight), weight_y)
                    value = _between(value, other, weight_z)
                store(target + x * VECTOR_BYTES, value)


@kernel(AT)
def corners_backward(args: Any, worker: int) -> None:
    """Write rows of the small block's gradient, from the large one's. Words: see `layers.upsampling`."""
    size_z, size_y, size_x = args[AT.size_z], args[AT.size_y], args[AT.size_x]
    factor_z, factor_y, factor_x = args[AT.factor_z], args[AT.factor_y], args[AT.factor_x]
    for z in range(args[AT.z0], args[AT.z1]):
        for y in range(args[AT.y0], args[AT.y1]):
            target = args[AT.small] + 4 * (z * args[AT.small_z] + y * args[AT.small_y])
            for x in range(size_x):
                store(target + x * VECTOR_BYTES, splat(0.0))
            for plane in range(_first_taker(z, factor_z), _end_of_takers(z, size_z, factor_z)):
                along_z = _share(plane, z, size_z, factor_z)
                if along_z == 0.0:
                    continue
                for row in range(_first_taker(y, factor_y), _end_of_takers(y, size_y, factor_y)):
                    share = along_z * _share(row, y, size_y, factor_y)
                    if share == 0.0:
                        continue
                    source = args[AT.large] + 4 * (
                        plane * args[AT.large_z] + row * args[AT.large_y]
                    )
                    for x in range(size_x):
                        total = load(target + x * VECTOR_BYTES)
                        for i in range(
                            _first_taker(x, factor_x), _end_of_takers(x, size_x, factor_x)
                        ):
                            weight = share * _share(i, x, size_x, factor_x)
                            if weight > 0.0:
                                total = fma(load(source + i * VECTOR_BYTES), splat(weight), total)
                        store(target + x * VECTOR_BYTES, total)
