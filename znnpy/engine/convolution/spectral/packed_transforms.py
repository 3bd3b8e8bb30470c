"""Tasks that transform tiles whose spectra are packed: lanes hold a group's tiles and channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import ceil

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.packed_planes import packed_plane_images, packed_planes, plane_floats
from znnpy_kernels.spectral.packed_tiles import packed_floats, packed_images, packed_spectra

from znnpy.engine.convolution.spectral.tile_arguments import ORIGIN, sizes
from znnpy.engine.convolution.spectral.transform_task import TransformTask
from znnpy.engine.convolution.tiles import PlaneSpectra, Stretch, TileSpectra, Window
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.memory.tensors import Tensor
from znnpy.network.types import Triple
from znnpy.plan.tiles import PACKING, PLANES_SHARE, tile_seconds


def spectra_tasks(
    build: Build, spectra: TileSpectra, images: Views, window: Window, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms of tiles, of whole vectors or some of their planes."""
    # Phases are never packed: there is one part.
    (tensor,) = images.parts
    kernel = packed_planes if isinstance(spectra, PlaneSpectra) else packed_spectra
    words = _words(build, spectra, tensor, group, window.count)
    for vectors in _cuts(build, spectra, group):
        for planes in _plane_cuts(build, spectra, tensor, vectors, window.count[0]):
            yield _task(kernel, spectra, tensor, group, words, vectors, planes)


def image_tasks(
    build: Build, spectra: TileSpectra, images: Views, count: Triple, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms back of the first `count` points of each tile, the last planes of a vector first."""
    (tensor,) = images.parts
    kernel = packed_plane_images if isinstance(spectra, PlaneSpectra) else packed_images
    words = _words(build, spectra, tensor, group, count) | _inside(tensor)
    tiling = spectra.tiling
    # Where tiles overlap, tasks of one lattice each need not wait for those of another.
    overlapping = count != tiling.new
    # One task for all planes where a tile may lie before one of an earlier turn, in the same vector.
    turns = ceil(tiling.tile[0] / tiling.new[0])
    whole = overlapping and any(grid.counts[0] > turns for grid in tiling.grids)
    for vectors in _cuts(build, spectra, group, apart=overlapping):
        cuts = _plane_cuts(build, spectra, tensor, vectors, count[0])
        for planes in [(0, count[0])] if whole else reversed(cuts):
            yield _task(kernel, spectra, tensor, group, words, vectors, planes)


def _task(
    kernel: Kernel,
    spectra: TileSpectra,
    tensor: Tensor,
    group: int,
    words: dict[str, int],
    vectors: tuple[int, int],
    planes: tuple[int, int],
) -> TransformTask:
    (low, high), (first, last), count = vectors, planes, words["count_z"]
    words = {**words, "vector0": low, "vector1": high}
    some = isinstance(spectra, PlaneSpectra)
    if some:
        words |= {"plane0": first, "plane1": last}
    return TransformTask(
        kernel,
        words,
        _seconds(spectra, high - low) * (last - first) / count,
        tensor,
        _touched(spectra, group, low, high),
        range(spectra.blocks),
        (group * spectra.vectors(0) + low) * count + first,
        planes=planes if some else None,
    )


def _cuts(
    build: Build, spectra: TileSpectra, group: int, *, apart: bool = False
) -> list[tuple[int, int]]:
    """Return the vectors of each transform task; `apart`: of one lattice each, where no vector holds tiles of two."""
    firsts = [
        (stretch.grid.first + stretch.low - stretch.start) * spectra.channels
        for stretch in spectra.stretches(group)
    ]
    # A vector with tiles of two lattices makes a task touch both; then nothing is gained by cutting
    # between lattices.
    if not apart or any(first % LANES for first in firsts):
        firsts = [0]
    found = []
    for first, last in pairwise([*(first // LANES for first in firsts), spectra.vectors(group)]):
        cuts = build.layout.grain.ranges(last - first, _seconds(spectra, last - first))
        found += [(first + low, first + high) for low, high in cuts]
    return found


# Neighbouring planes share what tells where pieces of a vector lie.
LEAST_PLANES = 2


def _plane_cuts(
    build: Build, spectra: TileSpectra, tensor: Tensor, vectors: tuple[int, int], count: int
) -> list[tuple[int, int]]:
    """Return the planes of each task of some vectors: all, but of a single vector of tiles transformed along planes."""
    low, high = vectors
    # Regions tell planes of a tile apart along z alone.
    if high - low > 1 or not isinstance(spectra, PlaneSpectra) or tensor.cut != 0:
        return [(0, count)]
    return build.layout.grain.ranges(count, _seconds(spectra, 1), LEAST_PLANES)


def _seconds(spectra: TileSpectra, vectors: int) -> float:
    share = PLANES_SHARE if isinstance(spectra, PlaneSpectra) else 1.0
    return share * PACKING * vectors * tile_seconds(spectra.tiling.tile)


def _touched(spectra: TileSpectra, group: int, low: int, high: int) -> list[Stretch]:
    """Return the tiles that some vectors hold: the first and last of them with the parts of their channels."""
    tiling, start, parts = spectra.tiling, group * spectra.most, spectra.parts
    # Lane t * images + i holds image i of tile t. A vector begins and ends with a part of a tile.
    lanes = spectra.channels // parts
    first, skipped = divmod(low * LANES // lanes, parts)
    # The last vector of a group may have lanes behind its last tile.
    last, taken = divmod(min(spectra.count(group) * parts, high * LANES // lanes), parts)
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
        "tiles": spectra.count(group),
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
