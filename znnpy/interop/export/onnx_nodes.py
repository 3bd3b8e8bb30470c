"""Operations as nodes of ONNX: the table `NODES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from znnpy.interop.export.computation import Operation, Tensor
from znnpy.layers.normalization import standardized

if TYPE_CHECKING:
    from znnpy.interop.export.onnx_model import Graph

Tensors = Mapping[str, Tensor]
LAST = np.iinfo(np.int64).max  # the end of an axis, however long it is
_BORDERS = {"zeros": "constant", "replicate": "edge", "reflect": "reflect"}
_PLAIN = {
    "relu": "Relu", "logistic": "Sigmoid", "forward_logistic": "Sigmoid", "softplus": "Softplus",
    "soft_sign": "Softsign", "hard_swish": "HardSwish", "gelu": "Gelu",
}  # fmt: skip
"""Functions that are an operator without attributes."""


_RESIZED = {
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "linear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
}  # fmt: skip


def _pad(graph: Graph, it: Operation, _: Tensors) -> None:
    pairs, border = it.attributes["sides"], it.attributes["border"]
    ends = [0, 0, *(before for before, _ in pairs), 0, 0, *(after for _, after in pairs)]
    inputs = [it.inputs[0], graph.numbers(f"{it.name}.sides", *ends)]
    if border == "zeros":
        fill = np.array(it.attributes["fill"], np.float32)
        inputs.append(graph.constant(f"{it.name}.fill", fill))
    graph.node("Pad", inputs, it.output, mode=_BORDERS[border])


def _conv(graph: Graph, it: Operation, tensors: Tensors) -> None:
    said, held = it.attributes, dict(tensors)
    if said.get("standardized"):
        held["weight"] = standardized(np.asarray(held["weight"], np.float64))
    inputs = [graph.constant(it.tensors[what], held[what]) for what in held]
    more = {"output_padding": said["output_padding"]} if it.kind == "conv_transpose" else {}
    graph.node(
        "ConvTranspose" if more else "Conv",
        [it.inputs[0], *inputs],
        it.output,
        kernel_shape=said["size"],
        strides=said["stride"],
        dilations=said["dilation"],
        pads=[*said["padding"], *said["padding"]],
        group=said["groups"],
        **more,
    )


def _max_pool(graph: Graph, it: Operation, _: Tensors) -> None:
    said = it.attributes
    graph.node(
        "MaxPool",
        it.inputs,
        it.output,
        kernel_shape=said["size"],
        strides=said["stride"],
        dilations=said["dilation"],
        pads=[*said["padding"], *said["padding"]],
    )


def _avg_pool(graph: Graph, it: Operation, _: Tensors) -> None:
    said = it.attributes
    graph.node(
        "AveragePool",
        it.inputs,
        it.output,
        kernel_shape=said["size"],
        strides=said["stride"],
        dilations=said["dilation"],
        pads=[*(before for before, _ in said["sides"]), *(after for _, after in said["sides"])],
        count_include_pad=int(said["count_padding"]),
    )


def _upsample(graph: Graph, it: Operation, _: Tensors) -> None:
    factors = np.array([1, 1, *it.attributes["factor"]], np.float32)
    inputs = [it.inputs[0], "", graph.constant(f"{it.name}.factor", factors)]
    graph.node("Resize", inputs, it.output, **_RESIZED[it.attributes["mode"]])


def _crop(graph: Graph, it: Operation, _: Tensors) -> None:
    pairs = it.attributes["sides"]
    first = graph.numbers(f"{it.name}.first", *(before for before, _ in pairs))
    last = graph.numbers(f"{it.name}.last", *(-after if after else LAST for _, after in pairs))
    axes = graph.numbers(f"{it.name}.axes", 2, 3, 4)
    graph.node("Slice", [it.inputs[0], first, last, axes], it.output)


def _depth_to_space(graph: Graph, it: Operation, _: Tensors) -> None:
    """As PyTorch writes pixel shuffles: the standard's operator knows no z."""
    (value,), name, factor = it.inputs, it.name, it.attributes["factor"]
    shape = graph.node("Shape", [value], f"{name}.shape")
    ends = [graph.numbers(f"{name}.at{n}", n) for n in (0, 1, 2, 5)]
    batch = graph.node("Slice", [shape, ends[0], ends[1]], f"{name}.batch")
    space = graph.node("Slice", [shape, ends[2], ends[3]], f"{name}.space")
    count = graph.numbers(f"{name}.channels", it.channels[1])
    by = graph.numbers(f"{name}.factor", *factor)
    wide = graph.node("Concat", [batch, count, by, space], f"{name}.parts", axis=0)
    parts = graph.node("Reshape", [value, wide], f"{name}.blocks")
    turned = graph.node("Transpose", [parts], f"{name}.turned", perm=[0, 1, 5, 2, 6, 3, 7, 4])
    larger = graph.node("Mul", [space, by], f"{name}.larger")
    whole = graph.node("Concat", [batch, count, larger], f"{name}.whole", axis=0)
    graph.node("Reshape", [turned, whole], it.output)


def _bias(graph: Graph, it: Operation, tensors: Tensors) -> None:
    bias = graph.constant(it.tensors["bias"], _by_channel(tensors["bias"]))
    graph.node("Add", [it.inputs[0], bias], it.output)


def _add(graph: Graph, it: Operation, _: Tensors) -> None:
    graph.node("Add" if len(it.inputs) == 2 else "Sum", it.inputs, it.output)


def _multiply(graph: Graph, it: Operation, _: Tensors) -> None:
    """Two at a time: no operator of ONNX multiplies more."""
    value, *others = it.inputs
    for number, other in enumerate(others, start=1):
        last = number == len(others)
        value = graph.node("Mul", [value, other], it.output if last else f"{it.name}.{number}")


def _mean(graph: Graph, it: Operation, _: Tensors) -> None:
    (value,), name = it.inputs, it.name
    axes = graph.numbers(f"{name}.axes", 2, 3, 4)
    one = graph.node("ReduceMean", [value, axes], f"{name}.one", keepdims=1)
    shape = graph.node("Shape", [value], f"{name}.shape")
    graph.node("Expand", [one, shape], it.output)


def _maximum(graph: Graph, it: Operation, _: Tensors) -> None:
    graph.node("Max", it.inputs, it.output)


def _concat(graph: Graph, it: Operation, _: Tensors) -> None:
    graph.node("Concat", it.inputs, it.output, axis=1)


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
        graph.constant(it.tensors[what], _by_channel(tensors[what])) for what in ("weight", "bias")
    )
    value = graph.node("Mul", [value, scale], f"{it.name}.scaled")
    return graph.node("Add", [value, shift], output)


def _function(graph: Graph, it: Operation, tensors: Tensors) -> None:
    said, value = it.attributes, it.inputs[0]
    match said["function"]:
        case "leaky_relu":
            graph.node("LeakyRelu", [value], it.output, alpha=said["slope"])
        case "elu":
            graph.node("Elu", [value], it.output, alpha=said["slope"])
        case "prelu":
            slopes = graph.constant(it.tensors["weight"], _by_channel(tensors["weight"]))
            graph.node("PRelu", [value, slopes], it.output)
        case "softmax":
            graph.node("Softmax", [value], it.output, axis=1)
        case "gelu_tanh":
            graph.node("Gelu", [value], it.output, approximate="tanh")
        case "silu":
            share = graph.node("Sigmoid", [value], f"{it.name}.share")
            graph.node("Mul", [value, share], it.output)
        case "tanh":
            _tanh(graph, it)
        case plain:
            graph.node(_PLAIN[plain], [value], it.output)


def _tanh(graph: Graph, it: Operation) -> None:
    said, value = it.attributes, it.inputs[0]
    if said["gain"] != 1:
        gain = graph.constant(f"{it.name}.gain", np.array(said["gain"]))
        value = graph.node("Mul", [value, gain], f"{it.name}.steeper")
    if said["amplitude"] == 1:
        graph.node("Tanh", [value], it.output)
        return
    value = graph.node("Tanh", [value], f"{it.name}.unit")
    amplitude = graph.constant(f"{it.name}.amplitude", np.array(said["amplitude"]))
    graph.node("Mul", [value, amplitude], it.output)


def _same(graph: Graph, it: Operation, _: Tensors) -> None:
    graph.node("Identity", it.inputs, it.output)


def _by_channel(array: Tensor) -> Tensor:
    """Return numbers (channels,) so that they broadcast over (batch, channel, z, y, x)."""
    return array[:, None, None, None]


NODES: Mapping[str, Callable[[Graph, Operation, Tensors], None]] = {
    "pad": _pad,
    "conv": _conv,
    "conv_transpose": _conv,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "upsample": _upsample,
    "crop": _crop,
    "depth_to_space": _depth_to_space,
    "dropout": _same,
    "identity": _same,
    "bias": _bias,
    "add": _add,
    "multiply": _multiply,
    "mean": _mean,
    "maximum": _maximum,
    "concat": _concat,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "channel_norm": _channel_norm,
    "length_norm": _length_norm,
    "response_norm": _response_norm,
    "function": _function,
}
