"""Operations of direct convolution."""

from __future__ import annotations

from collections.abc import Collection

from znnpy.engine.convolution.operations import Operations, of_convolution
from znnpy.engine.memory.images import Layout
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part
from znnpy.network.types import Edge
from znnpy.plan import PassName


def operations(
    layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
) -> Operations:
    """As many in every pass."""
    flops = of_convolution(layout.conv_shape(edge))
    return {Identity(edge.name, PASS_OF[which], Part.DIRECT): flops for which in passes}
