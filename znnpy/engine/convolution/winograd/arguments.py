"""Argument words of Winograd's kernels: addresses and sizes of feature maps, and which tiles."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.network.types import Edge, Triple
from znnpy.plan.algorithms.winograd_tiles import lattice_steps, new_voxels


def pass_words(
    build: Build, edge: Edge, source: Tensor, target: Tensor, *, backward: bool
) -> Mapping[str, int]:
    """Return the words that all tasks of a forward pass, or of a data gradient from `source` to `target`, have."""
    dilation = dilation_of(build, edge)
    cropped = firsts(build.layout.cropped(edge))
    # Tiles of the data gradient begin two taps of three before the gradient; what is cropped is never
    # computed.
    z, y, x = (taps - 1 for taps in edge.size)
    outside = (
        z * dilation[0] - cropped[0],
        y * dilation[1] - cropped[1],
        x * dilation[2] - cropped[2],
    )
    before = outside if backward else unframed(build, edge)
    return {
        "inputs": source.channels,
        "blocks": target.blocks,
        **size_words("source_size", source.shape),
        **size_words("target_size", target.shape),
        **size_words("dilation", dilation),
        **size_words("before", before),
    }


def unframed(build: Build, edge: Edge) -> Triple:
    """Return the voxels of padding before the source that lie in no frame: its kernels see zeros there."""
    return firsts(build.layout.padding(edge)) if build.layout.sees_zeros(edge) else (0, 0, 0)


def reached(edge: Edge, source: Triple, target: Triple, before: Triple) -> Triple:
    """Return the voxels of the source, from its first one on, that any filter of an edge meets.

    `before`: those before its first one that the target's first ones see.
    """
    axes = zip(source, target, edge.stride, edge.size, before, strict=True)
    z, y, x = (
        min(extent, (count - 1) * step + taps - outside)
        for extent, count, step, taps, outside in axes
    )
    return z, y, x


def dilation_of(build: Build, edge: Edge) -> Triple:
    """Return the voxels from tap to tap; 1 along axes of one tap, whose voxels are a single lattice."""
    return lattice_steps(edge.size, build.layout.geometry.dilations[edge.name])


def tile_planes(target: Tensor, size: Triple, dilation: Triple) -> int:
    """Return the number of tiles along the cut axis; the last ones may lie outside."""
    apart, new = dilation[target.cut], new_voxels(size)[target.cut]
    # Tile t begins at t // d * 4 d + t % d: slabs of 4 d planes, d tiles each
    # (docs/design/winograd.md).
    return -(-target.extent // (new * apart)) * apart


def tile_rows(target: Tensor, size: Triple, dilation: Triple) -> range:
    """Return the tiles along the first axis (z or y) that is not cut."""
    axis = 1 - target.cut
    step = new_voxels(size)[axis] * dilation[axis]
    return range(-(-target.shape[axis] // step) * dilation[axis])


def begin_inside(tiles: range, dilation: int, new: int, extent: int) -> int:
    """Return how many tiles along an axis begin inside: each has `new` voxels of a lattice."""
    return sum(tile // dilation * new * dilation + tile % dilation < extent for tile in tiles)


def tile_words(
    target: Tensor,
    size: Triple,
    dilation: Triple,
    low: int,
    high: int,
    rows: range | None = None,
) -> dict[str, int]:
    """Return the argument words of tiles low..high along the cut axis, and of some or all `rows` along the other."""
    rows = tile_rows(target, size, dilation) if rows is None else rows
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
