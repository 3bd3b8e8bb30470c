"""Operations of an update by the textbook, by task, as each algorithm counts its own."""

from __future__ import annotations

from collections import defaultdict

from znnpy.engine import Model
from znnpy.engine.convolution.operations import Operations, of_convolution
from znnpy.engine.convolution.passes import CONV_EMITTERS
from znnpy.engine.memory.images import Layout
from znnpy.plan.cost import convolutions
from znnpy.plan.types import PASSES


def convolution_flops(model: Model) -> dict[str, float]:
    """Operations of one pass of each conv edge, of this rank's samples, if it ran by direct convolution."""
    layout = _layout(model, len(model.samples))
    return {
        edge.name: of_convolution(layout.conv_shape(edge)) for edge in convolutions(model.network)
    }


def flops_by_task(model: Model) -> Operations:
    """Operations of all tasks that are the same together, in this rank's part of an update, where they are known."""
    layout, counted = _layout(model, model.microbatch), set[object]()
    count = len(model.samples) // model.microbatch
    found: Operations = defaultdict(float)
    for edge in convolutions(model.network):
        layer = model.plan.layers[edge.name]
        for name, emitter in CONV_EMITTERS.items():
            passes = [which for which in PASSES if layer.method(which).algorithm == name]
            if passes:
                for task, flops in emitter.operations(layout, edge, passes, counted).items():
                    found[task] += count * flops
    return dict(found)


def _layout(model: Model, batch: int) -> Layout:
    return Layout(model.network, model.geometry, model.plan, batch, training=True)
