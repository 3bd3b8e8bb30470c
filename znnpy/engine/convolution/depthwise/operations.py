"""Operations of depthwise convolution."""

from __future__ import annotations

from collections.abc import Collection

from znnpy.engine.convolution.operations import Operations
from znnpy.engine.memory.images import Layout
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part
from znnpy.geometry import voxels
from znnpy.network.types import Edge
from znnpy.plan import PassName


def operations(
    layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
) -> Operations:
    """As many in every pass."""
    shape = layout.conv_shape(edge)
    flops = 2.0 * shape.batch * shape.outputs * voxels(shape.size) * voxels(shape.target)
    return {Identity(edge.name, PASS_OF[which], Part.DIRECT): flops for which in passes}
