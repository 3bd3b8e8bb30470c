"""One convolution alone, for autotuning: the smallest network around it, its tasks, kernels and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.convolution import passes as convolution
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena, moved
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.dependencies import connect
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity
from znnpy.geometry import fit
from znnpy.graph import TaskGraph
from znnpy.network.types import Edge, Network, Node, Triple
from znnpy.plan import ConvShape, LayerPlan, Method, Plan
from znnpy.plan.cost import FEW_IMAGES


def lone(shape: ConvShape, method: Method) -> tuple[Layout, Edge]:
    """Return the layout of a network around one conv edge, whose source lies in memory as in a real network."""
    edge = Edge(
        "conv",
        "conv_transpose" if shape.transposed else "conv",
        "source",
        "target",
        size=shape.size,
        stride=shape.stride,
        sparsity=shape.dilation,
        padding=shape.padding,
        border=shape.border,
        groups=shape.groups,
        output_padding=_added(shape),
    )
    target = Node("target", "sum", shape.outputs)
    # Where few channels at both ends do not lie planar, another kind of edge reads the target.
    behind = Node("behind", "sum", shape.outputs), Edge("on", "crop", "target", "behind")
    blocked = max(shape.inputs, shape.outputs) <= FEW_IMAGES and not shape.between
    nodes, edges = ((target, behind[0]), (edge, behind[1])) if blocked else ((target,), (edge,))
    # Planar only as an input that feeds convolutions alone, so the layer reads it directly.
    if shape.planar:
        network = Network((Node("source", "input", shape.inputs), *nodes), edges)
    else:
        # An input that feeds other kinds of edges too is blocked; other nodes of few channels may be planar.
        # Behind a crop a source of few channels may lie planar, as a node between convolutions
        # does. Behind an identity it is blocked, as an input is that feeds other edges too.
        learns = "gradient" in shape.passes or not shape.training
        lift = Edge("lift", "crop" if learns else "identity", "input", "source")
        if shape.transposed:  # an output must not be finer than the input
            lift = Edge("lift", "max_pool", "input", "source", stride=shape.stride)
        source = Node("source", "transfer", shape.inputs, bias="gradient" in shape.passes)
        ends = Node("input", "input", shape.inputs), source
        network = Network((*ends, *nodes), (lift, *edges))
    # A source of few channels stays planar if its gradient, if any, is computed directly.
    back = method if "gradient" in shape.passes else Method("direct")
    plan = Plan({"conv": LayerPlan.of(method, back, method)})
    fitted = fit(network, shape.target)
    return Layout(network, fitted, plan, shape.batch, training=shape.training), edge


@dataclass(frozen=True)
class Lone:
    """One layer by one method, declared where buffers are only told apart: its tasks serve any memory of its `bytes`.

    `build`: whose addresses the tasks have; `edge`: the layer.
    """

    build: Build
    edge: Edge
    tasks: Sequence[Declared]

    @classmethod
    def of(cls, shape: ConvShape, method: Method) -> Lone:
        """Declare a layer."""
        layout, edge = lone(shape, method)
        build = Build.new(Arena(apart=True), layout, 0)
        step = declared(build, edge, shape)
        # One layer has some hundreds of buffers at most, where numbers tell thousands apart.
        assert build.arena.tells, shape
        return cls(build, edge, step.tasks)

    @property
    def bytes(self) -> int:
        """The bytes of all buffers."""
        return self.build.arena.bytes

    @property
    def kernels(self) -> set[Kernel]:
        """The kernels that the tasks call."""
        return {task.kernel for task in self.tasks}

    def graph(self, memory: NDArray[np.uint8]) -> TaskGraph:
        """Return the graph of the tasks with their buffers in `memory`, uint8 (bytes,), aligned to a cache line."""
        graph = connect([self.tasks], self._given()).build()
        moved(graph.words, memory.ctypes.data + np.array(self.build.arena.offsets, np.int64))
        return graph

    def _given(self) -> list[Buffer]:
        """Return the buffers that other tasks of a network would fill."""
        gradient = self.build.maps.gradients.get(self.edge.target)
        filled = (self.build.value(self.edge.source), gradient)
        return [tensor.buffer for tensor in filled if tensor]

    def free(self) -> set[Identity]:
        """Return the tasks of derived filters if they cost nothing: in prediction, where filters never change."""
        step = Step()
        # In training filters change with each update, so what is derived from them is paid each time.
        if not self.build.layout.training:
            convolution.derive(step, self.build, self.edge)
        return {task.what for task in step.tasks}


@lru_cache(maxsize=1 << 12)  # asked several times for each layer and method, and declares all tasks
def lone_bytes(shape: ConvShape, method: Method) -> int:
    """Return the bytes that a layer takes alone."""
    layout, edge = lone(shape, method)
    arena = Arena()
    declared(Build.new(arena, layout, 0), edge, shape)
    return arena.bytes


def declared(build: Build, edge: Edge, shape: ConvShape) -> Step:
    """Declare derived filters and the wanted passes of one edge."""
    # In the order of an update: derived filters, then the passes, with what nodes finish for them.
    step, network = Step(counting=build.arena.counting), build.layout.network
    convolution.derive(step, build, edge)
    convolution.forward(step, build, edge)
    convolution.finish_forward(step, build, network.node(edge.target))
    if "weight" in shape.passes:
        gradient = build.maps.gradients[edge.target]
        convolution.weight_gradient(step, build, edge, gradient)
    if "gradient" in shape.passes:
        convolution.data_gradient(step, build, edge, gradient)
        convolution.finish_backward(step, build, network.node(edge.source))
    return step


def _added(shape: ConvShape) -> Triple:
    """Return the output padding of a transposed convolution, (z, y, x)."""
    if not shape.transposed:
        return (0, 0, 0)
    z, y, x = (
        target - ((source - 1) * stride + (taps - 1) * apart + 1 - sum(sides))
        for target, source, stride, taps, apart, sides in zip(
            shape.target,
            shape.source,
            shape.stride,
            shape.size,
            shape.dilation,
            shape.padding,
            strict=True,
        )
    )
    return z, y, x
