"""Norms as nodes of ONNX: the table `NORM_NODES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from znnpy.interop.export.computation import Operation, Tensor
from znnpy.interop.export.onnx_graph import Graph

Tensors = Mapping[str, Tensor]


def by_channel(array: Tensor) -> Tensor:
    """Return numbers (channels,) so that they broadcast over (batch, channel, z, y, x)."""
    return array[:, None, None, None]


def _batch_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    channels = it.channels[0]
    held = {"weight": np.ones(channels), "bias": np.zeros(channels), **tensors}
    names = ("weight", "bias", "running_mean", "running_var")
    inputs = [graph.constant(f"{it.name}.{what}", held[what]) for what in names]
    epsilon = it.attributes["epsilon"]
    graph.node("BatchNormalization", [it.inputs[0], *inputs], it.output, epsilon=epsilon)


def _instance_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    channels = it.channels[0]
    held = {"weight": np.ones(channels), "bias": np.zeros(channels), **tensors}
    inputs = [graph.constant(f"{it.name}.{what}", held[what]) for what in ("weight", "bias")]
    epsilon = it.attributes["epsilon"]
    graph.node("InstanceNormalization", [it.inputs[0], *inputs], it.output, epsilon=epsilon)


def _group_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    """As PyTorch writes it: groups are the channels of an instance norm, scale and shift come after."""
    groups, name, value = it.attributes["groups"], it.name, it.inputs[0]
    shape = graph.node("Shape", [value], f"{name}.shape")
    rows = graph.numbers(f"{name}.groups", 0, groups, -1)
    value = graph.node("Reshape", [value, rows], f"{name}.rows")
    one = graph.constant(f"{name}.one", np.ones(groups))
    zero = graph.constant(f"{name}.zero", np.zeros(groups))
    epsilon = it.attributes["epsilon"]
    inputs = [value, one, zero]
    value = graph.node("InstanceNormalization", inputs, f"{name}.unit", epsilon=epsilon)
    value = graph.node("Reshape", [value, shape], f"{name}.whole" if tensors else it.output)
    if tensors:
        _affine(graph, it, tensors, value, it.output)


def _channel_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    """As the standard has it, over the last axis."""
    name, channels = it.name, it.channels[0]
    held = {"weight": np.ones(channels), "bias": np.zeros(channels), **tensors}
    inputs = [graph.constant(f"{name}.{what}", held[what]) for what in ("weight", "bias")]
    last = graph.node("Transpose", [it.inputs[0]], f"{name}.last", perm=[0, 2, 3, 4, 1])
    epsilon = it.attributes["epsilon"]
    made = graph.node(
        "LayerNormalization", [last, *inputs], f"{name}.unit", axis=-1, epsilon=epsilon
    )
    graph.node("Transpose", [made], it.output, perm=[0, 4, 1, 2, 3])


def _length_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    (value,), name = it.inputs, it.name
    axes = graph.numbers(f"{name}.axes", 1)
    length = graph.node("ReduceL2", [value, axes], f"{name}.length", keepdims=1)
    least = graph.constant(f"{name}.least", np.array(it.attributes["epsilon"]))
    length = graph.node("Max", [length, least], f"{name}.at_least")
    value = graph.node("Div", [value, length], f"{name}.unit" if tensors else it.output)
    if tensors:
        _affine(graph, it, tensors, value, it.output)


def _response_norm(graph: Graph, it: Operation, tensors: Tensors) -> None:
    (value,), name = it.inputs, it.name
    space, channels = graph.numbers(f"{name}.space", 2, 3, 4), graph.numbers(f"{name}.channels", 1)
    own = graph.node("ReduceL2", [value, space], f"{name}.norms", keepdims=1)
    mean = graph.node("ReduceMean", [own, channels], f"{name}.mean", keepdims=1)
    epsilon = graph.constant(f"{name}.epsilon", np.array(it.attributes["epsilon"]))
    by = graph.node("Add", [mean, epsilon], f"{name}.divisor")
    response = graph.node("Div", [own, by], f"{name}.responses")
    unit = graph.node("Mul", [value, response], f"{name}.unit")
    made = _affine(graph, it, tensors, unit, f"{name}.shifted")
    graph.node("Add", [value, made], it.output)


def _affine(graph: Graph, it: Operation, tensors: Tensors, value: str, output: str) -> str:
    """Multiply and add numbers by channel."""
    scale, shift = (
        graph.constant(it.tensors[what], by_channel(tensors[what])) for what in ("weight", "bias")
    )
    value = graph.node("Mul", [value, scale], f"{it.name}.scaled")
    return graph.node("Add", [value, shift], output)


NORM_NODES: Mapping[str, Callable[[Graph, Operation, Tensors], None]] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "channel_norm": _channel_norm,
    "length_norm": _length_norm,
    "response_norm": _response_norm,
}
