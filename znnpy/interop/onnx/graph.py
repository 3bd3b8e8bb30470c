"""Walks a graph's operators in order: constants are computed, feature maps become nodes and edges of a sketch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from znnpy.errors import ModelFileError
from znnpy.interop.onnx.attention import refuse_attention
from znnpy.interop.onnx.file import Graph, Operator
from znnpy.interop.onnx.folding import folded, integers
from znnpy.interop.onnx.operators import OPERATORS
from znnpy.interop.onnx.reading import Reading, plain_name
from znnpy.interop.onnx.tensors import Array
from znnpy.interop.operators.described import Described, described
from znnpy.interop.operators.sketch import Bench, Sketch
from znnpy.interop.operators.value import Value
from znnpy.network.types import Triple

ANY = 192  # voxels for an axis of any size, while the file is read: many halves are whole


def network_of(graph: Graph, title: str) -> Described:
    """Return the net of a graph; ModelFileError names the first operator that is not supported."""
    refuse_attention(graph)
    sketch = Sketch()
    read = Counter(name for op in graph.operators for name in op.inputs)
    read.update(graph.outputs)
    reading = Reading(sketch, graph.constants, graph.opset, read)
    reading.values.update(_input(graph, sketch, title))
    for op in graph.operators:
        sketch.at = op.where
        _walk(reading, op)
    outputs = {}
    for name in graph.outputs:
        if name not in reading.values:
            raise ModelFileError(
                f"{title}: output {name[:80]} is made by no operator from the input"
            )
        outputs[name] = _channels_first(reading.values[name])
    return described(sketch, outputs)


def _channels_first(value: Value) -> Value:
    """Return an output as it is here where its channels are last in the file."""
    rank = len(value.seen)
    if value.turned == (0, *range(2, rank), 1):
        return replace(value, turned=None)
    if not value.plain and value.seen[2:] and value.seen[-1] == value.channels == 1:
        moved = value.seen_as((value.seen[0], 1, *value.seen[1:-1]))
        return moved if moved.plain else value
    return value


def _input(graph: Graph, sketch: Sketch, title: str) -> dict[str, Value]:
    if len(graph.inputs) != 1:
        names = ", ".join(name[:40] for name in graph.inputs) or "none"
        raise ModelFileError(f"{title}: one input is supported; it has {names}")
    (name, given), *_ = graph.inputs.items()
    last = _channels_last(graph, name, given)
    if last:
        given = [given[0], given[-1], *given[1:-1]]
    if given[1] is None:
        raise ModelFileError(f"{title}: input {name[:80]} does not say its channels")
    seen = (given[0] or 1, given[1], *(n or ANY for n in given[2:]))
    z, y, x = (1,) * (5 - len(seen)) + seen[2:]
    size: Triple = (z, y, x)
    node = sketch.name(name)
    sketch.nodes[node] = Bench("input", given[1], size)
    turned = (0, *range(2, len(seen)), 1) if last else None
    return {name: Value(node, given[1], size, seen, turned=turned)}


def _channels_last(graph: Graph, name: str, given: Sequence[int | None]) -> bool:
    """Return whether the input has its channels last, as TensorFlow has: all that reads it moves them."""
    reading = [op for op in graph.operators if name in op.inputs]
    return bool(reading) and all(_moves_channels(graph, op, given) for op in reading)


def _moves_channels(graph: Graph, op: Operator, given: Sequence[int | None]) -> bool:
    rank = len(given)
    if op.kind == "Transpose":
        return bool(op.attributes.get("perm") == [0, rank - 1, *range(1, rank - 1)])
    # A single channel is moved by a shape as well: the same numbers in the same order.
    if op.kind != "Reshape" or rank < 3 or given[-1] != 1 or op.inputs[1] not in graph.constants:
        return False
    shape = integers(op, graph.constants[op.inputs[1]](), "shape")
    wanted = (given[0], 1, *given[1:-1])
    return len(shape) == rank and all(n in (-1, own) for n, own in zip(shape, wanted, strict=True))


def _walk(reading: Reading, op: Operator) -> None:
    read = [name for name in op.inputs if name]
    for name in read:
        if not reading.known(name):
            raise op.wrong(f"reads {name[:80]}, which nothing before it makes")
    for name in op.outputs:
        if name and reading.known(name):
            raise op.wrong(f"makes {name[:80]}, which is made already")
    if not op.outputs or not op.outputs[0]:
        raise op.wrong("has no output")
    if op.kind == "Constant":
        reading.made[op.outputs[0]] = _constant(op)
        return
    if all(reading.constant(name) for name in read) and "" not in op.inputs:
        _fold(reading, op)
        return
    if op.kind not in OPERATORS:
        raise op.wrong("is not supported")
    found = OPERATORS[op.kind](reading, op, plain_name(op.name))
    op.refuse_others()
    if isinstance(found, list):
        reading.values.update(zip(op.outputs, found, strict=True))
    elif isinstance(found, Value):
        reading.values[op.outputs[0]] = found
    else:
        reading.made[op.outputs[0]] = found


def _fold(reading: Reading, op: Operator) -> None:
    if op.kind == "Identity":  # also of weights that are read later, and keep their name
        first, again = op.inputs[0], op.outputs[0]
        reading.origin[again] = reading.origin.get(first, first)
    inputs = [reading.array(op, place, "input") for place in range(len(op.inputs))]
    reading.made[op.outputs[0]] = folded(op, inputs)


def _constant(op: Operator) -> Array:
    kinds = {
        "value": None,
        "value_float": "f4",
        "value_floats": "f4",
        "value_int": "i8",
        "value_ints": "i8",
    }
    for name, kind in kinds.items():
        found = op.attribute(name, None)
        if found is not None:
            return np.asarray(found) if kind is None else np.asarray(found, kind)
    raise op.wrong("has no value of numbers")
