"""Weight gradients with strides of two by minimal filtering, in two stages (`gradient_points`, `gradient_sums`).

Points of a tile of the source are those of the forward pass, nine along a strided axis; those of the output gradient
five (`strided_lines`). Those of a block lie together, [z][y][x][tile][lane], an odd number of lines from point to point
and from block to block. A filter's point has the products of one place, or, of the tap between, of four: so an axis has
six sums, of nine products, and 81 or 729 products fill 36 or 216 sums, which become taps at the end.

Argument words of points: those of `gradient_points`, where `dilation_*` are not read, tiles are those of the gradient,
and voxels of the source are counted with its padding. Of sums: those of `gradient_sums`.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.winograd import gradient_points, gradient_sums
from znnpy_kernels.winograd.forms import FORMS, NEW, Triple, name_of
from znnpy_kernels.winograd.gradient_products import IMAGES, add_runs, sum_runs
from znnpy_kernels.winograd.gradient_sums import Lines, sums_of
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes
from znnpy_kernels.winograd.strided_lines import (
    INNER,
    POINTS,
    SEEN,
    STRIDED_FORMS,
    add_filter_height,
    filter_depth,
    filter_height,
    filter_width,
)
from znnpy_kernels.winograd.strided_tiles import (
    fetched,
    new_along,
    seen_along,
    to_gradient_points,
    to_source_points,
)

AT = gradient_points.AT


def points_of(taps: Triple, *, of_source: bool) -> int:
    """Return the points of a tile of the source, or of the output gradient."""
    form = STRIDED_FORMS[taps]
    counts = (form.points_z, form.points_y, form.points_x)
    z, y, x = (2 * it - 1 for it in counts) if of_source else counts
    return int(z * y * x)


def strided_block_floats(taps: Triple, tiles: int, *, of_source: bool) -> int:
    """Floats of all points of so many tiles of one block."""
    points = points_of(taps, of_source=of_source)
    return int(odd_bytes(points * odd_bytes(tiles) // VECTOR_BYTES)) // 4


def strided_points_floats(taps: Triple) -> int:
    """Floats of scratch that each worker needs for points: a tile that reaches beyond its images, and lines of it."""
    return 2 * points_of(taps, of_source=True) * VECTOR_BYTES // 4


@inlined
def _block_bytes(points: int, tiles: int) -> Any:
    return compiled_odd_bytes(points * compiled_odd_bytes(tiles) // VECTOR_BYTES)


@inlined
def _points(form: Any, of_source: bool, args: Any, scratch: int) -> None:
    """Points of all tiles and blocks of a task."""
    counts = new_along(form.points_z), new_along(form.points_y), new_along(form.points_x)
    seen, made = counts, form.points_z * form.points_y * form.points_x
    steps = counts
    if of_source:
        seen = seen_along(form.points_z), seen_along(form.points_y), seen_along(form.points_x)
        made = seen[0] * seen[1] * seen[2]
        steps = seen[0] - 1 if seen[0] > 1 else 1, seen[1] - 1, seen[2] - 1
    by = 4 * args[AT.images_z], 4 * args[AT.images_y]
    sizes = args[AT.images_size_z], args[AT.images_size_y], args[AT.images_size_x]
    slot = compiled_odd_bytes(args[AT.tiles])
    lines = scratch + seen_along(form.points_z) * SEEN * SEEN * VECTOR_BYTES
    for block in range(args[AT.blocks]):
        base = args[AT.images] + 4 * block * args[AT.images_block]
        target = args[AT.target] + block * _block_bytes(made, args[AT.tiles])
        target += args[AT.first] * VECTOR_BYTES
        for tile_z in range(args[AT.z0], args[AT.z1]):
            for tile_y in range(args[AT.y0], args[AT.y1]):
                for tile_x in range(cover(args[AT.gradient_size_x], counts[2])):
                    place = tile_z * steps[0], tile_y * steps[1], tile_x * steps[2]
                    here = base + place[0] * by[0] + place[1] * by[1] + place[2] * VECTOR_BYTES
                    voxels = fetched(place, seen, sizes, here, by, scratch)
                    if of_source:
                        to_source_points(
                            form, voxels[0], (voxels[1], voxels[2]), lines, target, slot
                        )
                    else:
                        to_gradient_points(
                            form, voxels[0], (voxels[1], voxels[2]), lines, target, slot
                        )
                    target += VECTOR_BYTES


@inlined
def _products(
    fresh: bool, tiles: int, source: int, gradient: int, block: int, vectors: int, images: int,
    sums: int, runs: int,
) -> None:  # fmt: skip
    """Sums of some places side by side, or added to those before; else as `gradient_sums._products_of_vectors`."""
    # Constants, as code is made for each number of vectors.
    if vectors == 2:
        _runs(2, fresh, tiles, source, gradient, block, images, sums, runs)
    else:
        _runs(1, fresh, tiles, source, gradient, block, images, sums, runs)


@inlined
def _runs(
    vectors: Any, fresh: bool, tiles: int, source: int, gradient: int, block: int, images: int,
    sums: int, runs: int,
) -> None:  # fmt: skip
    parts, first, row = cover(images, IMAGES[vectors - 1]), 0, vectors * VECTOR_BYTES
    apart = compiled_odd_bytes(tiles)
    for part in range(parts):
        many = images * (part + 1) // parts - first
        here, into = source + 4 * first, sums + first * row
        if fresh:
            sum_runs(vectors, here, gradient, block, tiles, into, row, many, runs, apart)
        else:
            add_runs(vectors, here, gradient, block, tiles, into, row, many, runs, apart)
        first += many


@inlined
def _meets(points: int, tap: int) -> Any:
    """Return how many places along an axis a filter's point has products of."""
    return NEW if points > 1 and tap == INNER else 1


@inlined
def _place(points: int, tap: int, number: int) -> Any:
    """Return the points of source and gradient along an axis of a product of a filter's point."""
    if points > 1 and tap == INNER:
        return POINTS + number, number
    return tap, tap


@inlined
def _point(
    form: Any, tiles: int, place: Any, source: int, gradient: int, block: int, vectors: int,
    images: int, sums: int,
) -> None:  # fmt: skip
    """Sums of a filter's point z, y, x, of a block of inputs and a pair of outputs."""
    step, first = compiled_odd_bytes(tiles), True
    high, wide = _seen_of(form.points_y), _seen_of(form.points_x)
    rows, across = _gradient_of(form.points_y), _gradient_of(form.points_x)
    # Places along x lie side by side.
    x, of_x = _place(form.points_x, place[2], 0)
    for by_z in range(_meets(form.points_z, place[0])):
        for by_y in range(_meets(form.points_y, place[1])):
            z, of_z = _place(form.points_z, place[0], by_z)
            y, of_y = _place(form.points_y, place[1], by_y)
            here = source + ((z * high + y) * wide + x) * step
            there = gradient + ((of_z * rows + of_y) * across + of_x) * step
            runs = _meets(form.points_x, place[2])
            _products(first, tiles, here, there, block, vectors, images, sums, runs)
            first = False


@inlined
def _seen_of(points: int) -> Any:
    """Return the points of the source along an axis, by those of a filter."""
    return SEEN if points > 1 else 1


@inlined
def _gradient_of(points: int) -> Any:
    """Return the points of the gradient along an axis, by those of a filter."""
    return POINTS if points > 1 else 1


@inlined
def _source_bytes(form: Any, tiles: int) -> Any:
    points = _seen_of(form.points_z) * _seen_of(form.points_y) * _seen_of(form.points_x)
    return _block_bytes(points, tiles)


@inlined
def _gradient_bytes(form: Any, tiles: int) -> Any:
    points = _gradient_of(form.points_z) * _gradient_of(form.points_y) * _gradient_of(form.points_x)
    return _block_bytes(points, tiles)


_LINES = Lines(filter_depth, filter_width, filter_height, add_filter_height)
_sums = sums_of(_point, _LINES, _source_bytes, _gradient_bytes)


def _strided_points(taps: Triple, of_source: bool) -> Kernel:
    """Return the kernel for filters of so many taps, of the source or of the output gradient."""
    form, of = STRIDED_FORMS[taps], "source" if of_source else "gradient"

    @kernel(AT, name=f"winograd_strided_{of}_points{name_of(taps)}")
    def winograd_strided_points(args: Any, worker: int) -> None:
        """Points of some tiles. Words: see the module."""
        _points(form, of_source, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_strided_points


def _strided_sums(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps."""
    form, at = FORMS[taps], gradient_sums.AT

    @kernel(at, name=f"winograd_strided_sums{name_of(taps)}")
    def winograd_strided_sums(args: Any, worker: int) -> None:
        """Filter gradients between some blocks of channels, from points. Words: see the module."""
        _sums(form, args, args[at.scratch] + 4 * worker * args[at.scratch_worker])

    return winograd_strided_sums


STRIDED_SOURCE_POINTS = {taps: _strided_points(taps, True) for taps in STRIDED_FORMS}
STRIDED_GRADIENT_POINTS = {taps: _strided_points(taps, False) for taps in STRIDED_FORMS}
STRIDED_SUMS = {taps: _strided_sums(taps) for taps in STRIDED_FORMS}
"""By the taps of filters along z, y, x."""
