"""Cuts a prediction into blocks: which input voxels each needs, and where its output goes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from znnpy.data.volume import Triple, Volume
from znnpy.errors import ShapeError
from znnpy.geometry.fit import Geometry, fit
from znnpy.network.types import Network

ONE: Triple = (1, 1, 1)
BUDGET = 1 << 30  # bytes of images that a block may take unless told otherwise


@dataclass(frozen=True)
class Field:
    """The output voxels of a whole volume.

    Output voxel i (z, y, x) shows input voxel `first + i * stride` of the first input; there are
    `shape` of them. `corners` are the positions of the inputs' first voxels in that frame.
    """

    first: Triple
    shape: Triple
    stride: Triple
    corners: Mapping[str, Triple]


@dataclass(frozen=True)
class Region:
    """Voxels lower <= (z, y, x) < upper."""

    lower: Triple
    upper: Triple


def whole_field(
    network: Network, images: Mapping[str, Volume], corners: Mapping[str, Triple], mirror: bool
) -> Field:
    """What can be predicted of a volume: all voxels with `mirror`, else those that see no border.

    Raises ShapeError when the volume is smaller than the field of view.
    """
    single = fit(network, ONE)
    stride = single.nodes[network.outputs[0].name].stride
    names = [node.name for node in network.inputs]
    if mirror:
        extent = images[names[0]].extent
        first, last = (0, 0, 0), triple(n - 1 for n in extent)
    else:
        lows = [_add(corners[name], single.output_offset(name)) for name in names]
        highs = [
            triple(
                low + size - view
                for low, size, view in zip(
                    lows[index], images[name].extent, single.fields_of_view[name], strict=True
                )
            )
            for index, name in enumerate(names)
        ]
        first = triple(max(axis) for axis in zip(*lows, strict=True))
        last = triple(min(axis) for axis in zip(*highs, strict=True))
    shape = triple((b - a) // step + 1 for a, b, step in zip(first, last, stride, strict=True))
    if min(shape) < 1:
        name = names[0]
        raise ShapeError(
            f"{images[name].name} has {images[name].extent} voxels (z, y, x), less than the field "
            f"of view {single.fields_of_view[name]}; use border mirror, or a larger volume"
        )
    return Field(first, shape, stride, corners)


def middle(field: Field, most: int) -> Field:
    """A field of at most `most` voxels around the middle of another, cut from its longest axes."""
    shape = list(field.shape)
    while math.prod(shape) > most:
        axis = shape.index(max(shape))
        shape[axis] = shape[axis] * 15 // 16
    steps = zip(field.first, field.shape, shape, field.stride, strict=True)
    first = triple(a + (whole - part) // 2 * step for a, whole, part, step in steps)
    return replace(field, first=first, shape=triple(shape))


def starts(shape: Triple, block: Triple) -> Iterator[Triple]:
    """First output voxel of each block; the last ones along each axis are shifted inwards."""
    axes = [
        [min(start, size - step) for start in range(0, size, step)]
        for size, step in zip(shape, block, strict=True)
    ]
    for place in itertools.product(*axes):
        yield triple(place)


def input_region(field: Field, geometry: Geometry, name: str, start: Triple) -> Region:
    """Input voxels that the block at `start` needs, in the input volume's own voxels.

    May leave the volume when the field mirrors. `geometry` is the block's.
    """
    place = triple(
        a + i * step for a, i, step in zip(field.first, start, field.stride, strict=True)
    )
    lower = _sub(_sub(place, geometry.output_offset(name)), field.corners[name])
    return Region(lower, _add(lower, geometry.input_shapes[name]))


def choose_block(network: Network, shape: Triple, budget: int = BUDGET) -> Triple:
    """A block (z, y, x), nearly a cube, whose images take about `budget` bytes.

    Bigger blocks repeat less of the halo; the estimate counts every image once. Along
    an axis all blocks are about equal, so that the last one repeats little.
    """
    side = max(shape)
    while side > 1 and _estimate(network, _clipped(shape, side)) > budget:
        side = max(1, int(side * 0.9))
    block = _clipped(shape, side)
    return triple(math.ceil(n / math.ceil(n / step)) for n, step in zip(shape, block, strict=True))


def triple(values: Iterable[int]) -> Triple:
    """Three numbers as z, y, x."""
    z, y, x = values
    return (z, y, x)


def _estimate(network: Network, block: Triple) -> int:
    nodes = fit(network, block).nodes
    return sum(4 * node.images * math.prod(nodes[node.name].shape) for node in network.nodes)


def _clipped(shape: Triple, side: int) -> Triple:
    return triple(min(n, side) for n in shape)


def _add(a: Triple, b: Triple) -> Triple:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _sub(a: Triple, b: Triple) -> Triple:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])
