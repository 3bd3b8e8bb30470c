"""Tasks that transform tiles whose spectra are packed: lanes hold a group's tiles and channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.packed_planes import packed_plane_images, packed_planes, plane_floats
from znnpy_kernels.spectral.packed_tiles import packed_floats, packed_images, packed_spectra

from znnpy.engine.convolution.spectral.tile_arguments import ORIGIN, sizes
from znnpy.engine.convolution.spectral.transform_task import TransformTask
from znnpy.engine.convolution.tiles import PlaneSpectra, Stretch, TileSpectra, Window, in_turns
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.memory.tensors import Tensor
from znnpy.network.types import Triple
from znnpy.plan import Grain
from znnpy.plan.tiles import PACKING, PLANES_SHARE, tile_seconds


def spectra_tasks(
    build: Build, spectra: TileSpectra, images: Views, window: Window, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms of tiles, of whole vectors or some of their planes."""
    # Phases are never packed: there is one part.
    (tensor,) = images.parts
    kernel = packed_planes if isinstance(spectra, PlaneSpectra) else packed_spectra
    words = _words(build, spectra, tensor, group, window.count)
    grain = build.layout.grain
    for share in _cuts(grain, spectra, group, [range(spectra.count(group))]):
        for planes in _plane_cuts(grain, spectra, tensor, share, window.count[0]):
            yield _task(kernel, spectra, tensor, group, words, share, planes)


def image_tasks(
    build: Build, spectra: TileSpectra, images: Views, count: Triple, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms back of the first `count` points of each tile, the last planes of a vector first."""
    (tensor,) = images.parts
    kernel = packed_plane_images if isinstance(spectra, PlaneSpectra) else packed_images
    words = _words(build, spectra, tensor, group, count) | _inside(tensor)
    tiling, grain = spectra.tiling, build.layout.grain
    rows, whole = [range(spectra.count(group))], False
    if count != tiling.new:
        rows, whole = _in_order(grain, spectra, group)
        grain = grain.in_turn(tiling.turns) if grain.many else grain
    for share in _cuts(grain, spectra, group, rows):
        cuts = _plane_cuts(grain, spectra, tensor, share, count[0])
        for planes in [(0, count[0])] if whole else reversed(cuts):
            yield _task(kernel, spectra, tensor, group, words, share, planes)


# Of vectors, where many workers take tiles turn by turn: those that hold tiles of two are transformed twice.
TWICE = 1.5


class _Share(NamedTuple):
    """Vectors low..high of a row, of which a task takes the `tiles` alone."""

    low: int
    high: int
    tiles: range


def _task(
    kernel: Kernel,
    spectra: TileSpectra,
    tensor: Tensor,
    group: int,
    words: dict[str, int],
    share: _Share,
    planes: tuple[int, int],
) -> TransformTask:
    (low, high, tiles), (first, last), count = share, planes, words["count_z"]
    words = {**words, "tile0": tiles.start, "tiles": tiles.stop, "vector0": low, "vector1": high}
    some = isinstance(spectra, PlaneSpectra)
    if some:
        words |= {"plane0": first, "plane1": last}
    return TransformTask(
        kernel,
        words,
        _seconds(spectra, high - low) * (last - first) / count,
        tensor,
        _touched(spectra, group, share),
        range(spectra.blocks),
        (group * spectra.vectors(0) + low) * count + first,
        planes=planes if some else None,
    )


def _in_order(grain: Grain, spectra: TileSpectra, group: int) -> tuple[list[range], bool]:
    """Return rows of tiles that tasks take, where tiles overlap; and whether a task needs all planes of its tiles."""
    tiling = spectra.tiling
    turns = [turn.tiles for it in spectra.stretches(group) for turn in in_turns(tiling, it)]
    vectors = sum(_vectors(spectra, tiles)[1] for tiles in turns)
    if grain.many and vectors <= TWICE * spectra.vectors(group):
        return turns, False
    apart = ceil(tiling.tile[0] / tiling.new[0])
    # A tile may lie before one of an earlier turn, in the same vector.
    return _by_lattices(spectra, group), any(grid.counts[0] > apart for grid in tiling.grids)


def _vectors(spectra: TileSpectra, tiles: range) -> tuple[int, int]:
    """Return the first vector that holds any of some tiles of a group, and how many do."""
    first = tiles.start * spectra.channels // LANES
    return first, -(-tiles.stop * spectra.channels // LANES) - first


def _by_lattices(spectra: TileSpectra, group: int) -> list[range]:
    """Return the tiles of each lattice of a group, or of all where a vector holds tiles of two."""
    # Tasks of one lattice each need not wait for those of another.
    rows = [it.tiles for it in spectra.stretches(group)]
    # A vector with tiles of two lattices makes a task touch both; then nothing is gained by cutting
    # between lattices.
    if any(row.start * spectra.channels % LANES for row in rows):
        return [range(spectra.count(group))]
    return rows


def _cuts(grain: Grain, spectra: TileSpectra, group: int, rows: list[range]) -> list[_Share]:
    """Return the shares of tasks that transform rows of tiles of a group."""
    found = []
    for tiles in rows:
        first, vectors = _vectors(spectra, tiles)
        cuts = grain.ranges(vectors, _seconds(spectra, vectors))
        found += [_Share(first + low, first + high, tiles) for low, high in cuts]
    return found


# Neighbouring planes share what tells where pieces of a vector lie.
LEAST_PLANES = 2


def _plane_cuts(
    grain: Grain, spectra: TileSpectra, tensor: Tensor, share: _Share, count: int
) -> list[tuple[int, int]]:
    """Return the planes of each task of some vectors: all, but of a single vector of tiles transformed along planes."""
    # Regions tell planes of a tile apart along z alone.
    if share.high - share.low > 1 or not isinstance(spectra, PlaneSpectra) or tensor.cut != 0:
        return [(0, count)]
    return grain.ranges(count, _seconds(spectra, 1), LEAST_PLANES)


def _seconds(spectra: TileSpectra, vectors: int) -> float:
    share = PLANES_SHARE if isinstance(spectra, PlaneSpectra) else 1.0
    return share * PACKING * vectors * tile_seconds(spectra.tiling.tile)


def _touched(spectra: TileSpectra, group: int, share: _Share) -> list[Stretch]:
    """Return the tiles of a share: the first and last of them with the parts of their channels."""
    tiling, start, parts = spectra.tiling, group * spectra.most, spectra.parts
    # Lane t * images + i holds image i of tile t. A vector begins and ends with a part of a tile.
    lanes, (low, high, tiles) = spectra.channels // parts, share
    first, skipped = divmod(max(tiles.start * parts, low * LANES // lanes), parts)
    last, taken = divmod(min(tiles.stop * parts, high * LANES // lanes), parts)
    found: list[Stretch] = []

    def touch(begin: int, end: int, part: range | None) -> None:
        if begin < end:
            stretches = tiling.stretches(start + begin, start + end, group, start)
            found.extend(replace(stretch, part=part) for stretch in stretches)

    if skipped:
        touch(first, first + 1, range(skipped, taken if last == first else parts))
        first += 1
    touch(first, last, None)
    if taken and last >= first:
        touch(last, last + 1, range(taken))
    return found


def _words(
    build: Build, spectra: TileSpectra, tensor: Tensor, group: int, count: Triple
) -> dict[str, int]:
    tiling = spectra.tiling
    return {
        "images": spectra.channels,
        **sizes("extent", tiling.extents),
        **sizes("dilation", tiling.dilation),
        **sizes("step", tiling.new),
        **sizes("count", count),
        **sizes("shape", tensor.shape),
        **sizes("before", ORIGIN),
        **sizes("size", tiling.tile),
        "first": group * spectra.most,
        "image": tensor.at(0, 0, *ORIGIN),
        "image_batch": tensor.batch_stride,
        "image_block": tensor.block_stride,
        "image_z": tensor.z_stride,
        "image_y": tensor.y_stride,
        "image_x": tensor.x_stride,
        **_places(build, spectra, group),
    }


def _inside(tensor: Tensor) -> dict[str, int]:
    """Return the words of those voxels of a view that are the images': nothing else is written."""
    (z0, z1), (y0, y1), (x0, x1) = tensor.beyond
    z, y, x = tensor.shape
    return {
        **sizes("shape", (z - z0 - z1, y - y0 - y1, x - x0 - x1)),
        **sizes("before", (z0, y0, x0)),
        "image": tensor.at(0, 0, z0, y0, x0),
    }


def _places(build: Build, spectra: TileSpectra, group: int) -> dict[str, int]:
    """Return the words of where spectra, or half transformed tiles, lie, and of scratch."""
    tile = spectra.tiling.tile
    if isinstance(spectra, PlaneSpectra):
        return {"planes": spectra.at(group), **build.worker_scratch(plane_floats(tile))}
    return {
        "spectra": spectra.at(group),
        "spectra_frequency": spectra.frequency_stride,
        "spectra_parts": spectra.imaginary,
        **build.worker_scratch(packed_floats(tile)),
    }
