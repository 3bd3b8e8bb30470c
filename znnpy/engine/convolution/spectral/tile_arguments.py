"""Argument words of kernels that work on stretches of tiles."""

from __future__ import annotations

from collections.abc import Iterable

from znnpy.engine.convolution.tiles import Tiling
from znnpy.engine.memory.tensors import Tensor

ORIGIN = (0, 0, 0)


def lattice_strides(prefix: str, tensor: Tensor, tiling: Tiling) -> dict[str, int]:
    """Return the words of the strides between a lattice's points."""
    z, y, x = tiling.dilation
    return {
        f"{prefix}_z": tensor.z_stride * z,
        f"{prefix}_y": tensor.y_stride * y,
        f"{prefix}_x": tensor.x_stride * x,
    }


def sizes(prefix: str, triple: Iterable[int]) -> dict[str, int]:
    return {f"{prefix}_{axis}": size for axis, size in zip("zyx", triple, strict=True)}
