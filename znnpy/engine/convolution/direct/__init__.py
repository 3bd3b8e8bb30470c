"""Direct convolution in tasks: groups of output channels times ranges of planes, for all passes."""

from __future__ import annotations

from collections.abc import Collection

from znnpy.engine.convolution.algorithm import (
    finish_backward,
    finish_forward,
    summed_elsewhere,
    updates_at_once,
)
from znnpy.engine.convolution.direct.passes import data_gradient, forward, weight_gradient
from znnpy.engine.convolution.direct.transposed_filters import derive
from znnpy.engine.convolution.flops import Operations, of_convolution
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part
from znnpy.network.types import Edge
from znnpy.plan import PassName

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
    """Return the operations of each pass; all passes have as many."""
    flops = of_convolution(layout.conv_shape(edge))
    return {Identity(edge.name, PASS_OF[which], Part.DIRECT): flops for which in passes}
