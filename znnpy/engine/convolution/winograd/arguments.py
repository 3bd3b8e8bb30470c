"""Argument words of Winograd's kernels: addresses and sizes of feature maps, and which tiles."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy_kernels.winograd.line_transforms import NEW

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.network.types import Edge, Triple


def pass_words(
    build: Build, edge: Edge, source: Tensor, target: Tensor, *, backward: bool
) -> Mapping[str, int]:
    """Of a forward pass, or of a data gradient from `source` to `target`, for all its tasks."""
    dilation = build.layout.geometry.dilations[edge.name]
    cropped = firsts(build.layout.cropped(edge))
    outside = (
        2 * dilation[0] - cropped[0],
        2 * dilation[1] - cropped[1],
        2 * dilation[2] - cropped[2],
    )
    return {
        "inputs": source.channels,
        "blocks": target.blocks,
        **size_words("source_size", source.shape),
        **size_words("target_size", target.shape),
        **size_words("dilation", dilation),
        **size_words("before", outside if backward else (0, 0, 0)),
    }


def tile_planes(target: Tensor, dilation: Triple) -> int:
    """Tiles along the cut axis; the last ones may lie outside."""
    apart = dilation[target.cut]
    return -(-target.extent // (NEW * apart)) * apart


def tile_words(target: Tensor, dilation: Triple, low: int, high: int) -> dict[str, int]:
    """The argument words of tiles low..high along the cut axis."""
    z, y = (-(-n // (NEW * d)) * d for n, d in zip(target.shape[:2], dilation[:2], strict=True))
    if target.cut == 0:
        return {"z0": low, "z1": high, "y0": 0, "y1": y}
    return {"z0": 0, "z1": z, "y0": low, "y1": high}


def place_words(name: str, tensor: Tensor, batch: int, block: int = 0) -> dict[str, int]:
    """The argument words of a tensor's place, from a block on, and strides."""
    return {
        name: tensor.at(batch, block),
        f"{name}_block": tensor.block_stride,
        f"{name}_z": tensor.z_stride,
        f"{name}_y": tensor.y_stride,
    }


def size_words(name: str, sizes: Triple) -> dict[str, int]:
    """Three argument words."""
    return {f"{name}_{axis}": size for axis, size in zip("zyx", sizes, strict=True)}
