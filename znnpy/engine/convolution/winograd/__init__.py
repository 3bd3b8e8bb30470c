"""Convolution of 3^3 filters by Winograd's minimal filtering, in tasks; see docs/design/winograd.md.

Operations count its products, and 2 for each coefficient of its transforms that is not 0.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from znnpy.engine.convolution.algorithm import finish_backward, finish_forward, summed_elsewhere
from znnpy.engine.convolution.flops import Operations
from znnpy.engine.convolution.winograd.filters import derive
from znnpy.engine.convolution.winograd.passes import data_gradient, forward
from znnpy.engine.convolution.winograd.weight_gradients import weight_gradient
from znnpy.engine.memory.feature_maps import Layout
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part
from znnpy.network.types import Edge
from znnpy.plan import ConvShape, PassName
from znnpy.plan.algorithms.winograd import (
    POINTS,
    backward_shape,
    is_staged,
    tile_layers,
)

# Of the transforms of a cube: coefficients of a line, lines along all axes.
# Lines: transforms along one axis after the other, of which later ones have more or fewer lines, as
# points replace voxels or taps. They decide no plan, only rates in reports.
SOURCE_FLOPS = 2 * 22 * (36 + 36 + 36)  # 6^3 points from as many voxels
TARGET_FLOPS = 2 * 18 * (36 + 24 + 16)  # 4^3 voxels from 6^3 points, or back
FILTER_FLOPS = 2 * 14 * (9 + 18 + 36)  # 6^3 points from 3^3 taps, or back

__all__ = [
    "data_gradient",
    "derive",
    "finish_backward",
    "finish_forward",
    "forward",
    "operations",
    "summed_elsewhere",
    "weight_gradient",
]


def operations(
    layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
) -> Operations:
    """Return the operations of the tiles of each pass, and of the filters that it transforms."""
    shape, found = layout.conv_shape(edge), Operations()
    for which in passes:
        task = Identity(edge.name, PASS_OF[which], Part.WINOGRAD)
        filters = shape.inputs * shape.outputs * FILTER_FLOPS
        made = task if which == "weight" else task._replace(part=Part.FILTER_POINTS)
        whole = backward_shape(shape) if which == "gradient" else shape
        for part, flops in _tiles(whole, staged=which != "weight" and is_staged(whole)).items():
            found[task._replace(part=part)] = flops
        found[made] = found.get(made, 0.0) + filters
    return found


def _tiles(shape: ConvShape, *, staged: bool) -> dict[Part, float]:
    """Return the operations of tiles by part: in stages, transforms along z and x are tasks of their own."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    products = 2.0 * POINTS * shape.inputs * shape.outputs
    source, target = shape.inputs * SOURCE_FLOPS, shape.outputs * TARGET_FLOPS
    if not staged:
        return {Part.WINOGRAD: tiles * (products + source + target)}
    # Of the source two of three axes; of the target the lines along the two axes that come after y.
    planes, images = 2 / 3 * source, (24 + 16) / (36 + 24 + 16) * target
    return {
        Part.TILES: tiles * planes,
        Part.WINOGRAD: tiles * (products + source - planes + target - images),
        Part.INVERSE: tiles * images,
    }
