"""Convolution by Winograd's minimal filtering along the axes of three taps, in tasks; see docs/design/winograd.md.

Operations count its products, and 2 for each coefficient of its transforms that is not 0.
"""

from __future__ import annotations

from collections.abc import Collection

from znnpy.engine.convolution.algorithm import finish_backward, finish_forward, summed_elsewhere
from znnpy.engine.convolution.flops import Operations
from znnpy.engine.convolution.winograd.filters import derive, goes_staged, on_the_way
from znnpy.engine.convolution.winograd.marches import spreads
from znnpy.engine.convolution.winograd.passes import data_gradient, forward
from znnpy.engine.convolution.winograd.weight_gradients import updates_at_once, weight_gradient
from znnpy.engine.memory.joined_gradients import joins
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.parameters import trained_nodes
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape, PassName
from znnpy.plan.algorithms.winograd import backward_shape
from znnpy.plan.algorithms.winograd_gradients import is_joint
from znnpy.plan.algorithms.winograd_shallow import flat_of, is_shallow, shallow_flops
from znnpy.plan.algorithms.winograd_strided import (
    is_strided,
    strided_back_transforms,
    strided_products,
    strided_transforms,
)
from znnpy.plan.algorithms.winograd_tiles import NEW, points_of_tile, tile_count

# Of a line's transform: 2 for each of its coefficients. They decide no plan, only rates in reports.
SOURCE_FLOPS = 2 * 22  # six points from as many voxels
TARGET_FLOPS = 2 * 18  # four voxels from six points, or back
FILTER_FLOPS = 2 * 14  # six points from three taps, or back
POINTS = 6

__all__ = [
    "data_gradient",
    "derive",
    "finish_backward",
    "finish_forward",
    "forward",
    "operations",
    "summed_elsewhere",
    "updates_at_once",
    "weight_gradient",
]


def operations(
    layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
) -> Operations:
    """Return the operations of the tiles of each pass, and of the filters that it transforms."""
    whole, found = layout.conv_shape(edge), Operations()
    if is_strided(whole):
        return _of_strided(whole, edge, passes)
    # What learns first has no data gradient, which one task could make as well.
    inner = edge.source in trained_nodes(layout.network)
    joined = {"gradient", "weight"} <= set(passes) and inner and joins(layout, edge)
    shape, bands = (whole.band, len(whole.bands)) if layout.bands(edge) else (whole, 1)
    for which in passes:
        task = Identity(edge.name, PASS_OF[which], Part.WINOGRAD)
        seen = backward_shape(shape) if which == "gradient" else shape
        shallow = is_shallow(seen)
        tiled = flat_of(seen) if shallow else seen
        lines = sum(_lines(tiled.size, 3)) * shape.size[0] // tiled.size[0]
        filters = shape.inputs * shape.outputs * FILTER_FLOPS * lines
        staged = not (which == "weight" or (joined and which == "gradient")) and (
            shallow
            or goes_staged(layout, seen)
            or spreads(layout, edge, seen, backward=which == "gradient")
        )
        own = which == "weight" or on_the_way(layout, seen)
        made = task if own else task._replace(part=Part.FILTER_POINTS)
        for part, flops in _tiles(tiled, staged=staged).items():
            found[task._replace(part=part)] = flops * bands
        if shallow:
            found[task] += (shallow_flops(seen) - _products(tiled)) * bands
        found[made] = found.get(made, 0.0) + filters * bands
        if which == "weight" and _sums_points(layout, edge, shape):
            points = shape.batch * tile_count(tiled) * sum(_transforms(tiled)) * bands
            found[task] -= points
            found[task._replace(part=Part.TILES)] = points
    if joined:
        _join(found, edge)
    return found


def _of_strided(whole: ConvShape, edge: Edge, passes: Collection[PassName]) -> Operations:
    """Return the operations of the passes of a strided layer."""
    bands, shape, found = len(whole.bands) or 1, whole.band, Operations()
    filters = shape.inputs * shape.outputs * FILTER_FLOPS * sum(_lines(shape.size, 3)) * bands
    products, transforms = strided_products(shape) * bands, strided_transforms(shape) * bands
    for which in passes:
        own = Identity(edge.name, PASS_OF[which], Part.WINOGRAD)
        if which == "weight":
            found[own._replace(part=Part.TILES)] = transforms
            found[own] = products + filters
        else:
            back = which == "gradient"
            found[own] = products + (strided_back_transforms(shape) * bands if back else transforms)
            found[own._replace(part=Part.FILTER_POINTS)] = float(filters)
    return found


def _sums_points(layout: Layout, edge: Edge, shape: ConvShape) -> bool:
    """Return whether a weight gradient has points of all tiles made in tasks of their own."""
    return layout.lanes(edge.source) > 1 and is_joint(shape) and not layout.sums_lines(edge)


def _join(found: Operations, edge: Edge) -> None:
    """Count the operations of both gradients as of the tasks that make both."""
    back = Identity(edge.name, Pass.BACKWARD, Part.WINOGRAD)
    parts = (back, back._replace(serves=Pass.WEIGHT), Identity(edge.name, Pass.WEIGHT, Part.TILES))
    found[back._replace(part=Part.BOTH)] = sum(found.pop(task, 0.0) for task in parts)


def _transforms(shape: ConvShape) -> tuple[float, float]:
    """Return the operations of the transforms of a tile of the source, and of the target, of all channels."""
    # Along y first, then along the other two axes.
    z, y, x = shape.size
    lines, points = _lines((y, z, x), NEW), points_of_tile(shape.size)
    source = shape.inputs * SOURCE_FLOPS * len(lines) * points / POINTS
    return source, shape.outputs * TARGET_FLOPS * sum(lines)


def _tiles(shape: ConvShape, *, staged: bool) -> dict[Part, float]:
    """Return the operations of tiles by part: in stages, transforms along z and x are tasks of their own."""
    tiles, products = shape.batch * tile_count(shape), _products(shape)
    source, target = _transforms(shape)
    if not staged:
        return {Part.WINOGRAD: products + tiles * (source + target)}
    # Of the source and the target the lines along the two axes that come after y.
    z, y, x = shape.size
    lines = _lines((y, z, x), NEW)
    others = lines[y > 1 :]
    planes, images = len(others) / len(lines) * source, sum(others) / sum(lines) * target
    return {
        Part.TILES: tiles * planes,
        Part.WINOGRAD: products + tiles * (source - planes + target - images),
        Part.INVERSE: tiles * images,
    }


def _products(shape: ConvShape) -> float:
    """Return the operations of the products of all tiles."""
    points = points_of_tile(shape.size)
    return 2.0 * shape.batch * tile_count(shape) * points * shape.inputs * shape.outputs


def _lines(size: Triple, new: int) -> list[int]:
    """Return the lines of each axis that is transformed, one after the other: six points to `new` values, or back.

    Later axes have fewer lines, as values replace points.
    """
    axes = sum(taps > 1 for taps in size)
    return [POINTS ** (axes - 1 - axis) * new**axis for axis in range(axes)]
