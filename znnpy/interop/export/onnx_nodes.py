"""Operations as nodes of ONNX: the table `NODES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from znnpy.interop.export.computation import Operation, Tensor
from znnpy.interop.export.onnx_graph import Graph
from znnpy.interop.export.onnx_norms import NORM_NODES, by_channel
from znnpy.interop.export.onnx_resize import RESIZED, resize
from znnpy.layers.normalization import standardized

Tensors = Mapping[str, Tensor]
LAST = np.iinfo(np.int64).max  # the end of an axis, however long it is
_BORDERS = {"zeros": "constant", "replicate": "edge", "reflect": "reflect"}
_PLAIN = {
    "relu": "Relu", "logistic": "Sigmoid", "forward_logistic": "Sigmoid", "softplus": "Softplus",
    "soft_sign": "Softsign", "hard_swish": "HardSwish", "gelu": "Gelu",
}  # fmt: skip
"""Functions that are an operator without attributes."""


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
    graph.node("Resize", inputs, it.output, **RESIZED[it.attributes["mode"]])


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
    bias = graph.constant(it.tensors["bias"], by_channel(tensors["bias"]))
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


def _function(graph: Graph, it: Operation, tensors: Tensors) -> None:
    said, value = it.attributes, it.inputs[0]
    match said["function"]:
        case "leaky_relu":
            graph.node("LeakyRelu", [value], it.output, alpha=said["slope"])
        case "elu":
            graph.node("Elu", [value], it.output, alpha=said["slope"])
        case "prelu":
            slopes = graph.constant(it.tensors["weight"], by_channel(tensors["weight"]))
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


NODES: Mapping[str, Callable[[Graph, Operation, Tensors], None]] = {
    "pad": _pad,
    "conv": _conv,
    "conv_transpose": _conv,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "upsample": _upsample,
    "resize": resize,
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
    "function": _function,
    **NORM_NODES,
}
