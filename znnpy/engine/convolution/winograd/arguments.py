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
    """Return the words that all tasks of a forward pass, or of a data gradient from `source` to `target`, have."""
    dilation = build.layout.geometry.dilations[edge.name]
    cropped = firsts(build.layout.cropped(edge))
    # Tiles of the data gradient begin two taps before the gradient; what is cropped is never
    # computed.
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
    """Return the number of tiles along the cut axis; the last ones may lie outside."""
    apart = dilation[target.cut]
    # Tile t begins at t // d * 4 d + t % d: slabs of 4 d planes, d tiles each
    # (docs/design/winograd.md).
    return -(-target.extent // (NEW * apart)) * apart


def tile_rows(target: Tensor, dilation: Triple) -> range:
    """Return the tiles along the first axis (z or y) that is not cut."""
    axis = 1 - target.cut
    return range(-(-target.shape[axis] // (NEW * dilation[axis])) * dilation[axis])


def tile_words(
    target: Tensor, dilation: Triple, low: int, high: int, rows: range | None = None
) -> dict[str, int]:
    """Return the argument words of tiles low..high along the cut axis, and of some or all `rows` along the other."""
    rows = tile_rows(target, dilation) if rows is None else rows
    if target.cut == 0:
        return {"z0": low, "z1": high, "y0": rows.start, "y1": rows.stop}
    return {"z0": rows.start, "z1": rows.stop, "y0": low, "y1": high}


def place_words(name: str, tensor: Tensor, batch: int, block: int = 0) -> dict[str, int]:
    """Return the argument words of a tensor's place, from a block on, and its strides."""
    return {
        name: tensor.at(batch, block),
        f"{name}_block": tensor.block_stride,
        f"{name}_z": tensor.z_stride,
        f"{name}_y": tensor.y_stride,
    }


def size_words(name: str, sizes: Triple) -> dict[str, int]:
    """Return three argument words, one an axis."""
    return {f"{name}_{axis}": size for axis, size in zip("zyx", sizes, strict=True)}
