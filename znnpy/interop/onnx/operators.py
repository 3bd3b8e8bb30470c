"""ONNX's sums, products, means and reshapes, and the table of all that are read."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np

from znnpy.interop.onnx import norm_parts
from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.function_operators import FUNCTION_OPERATORS
from znnpy.interop.onnx.gather import gather
from znnpy.interop.onnx.norm_operators import NORM_OPERATORS
from znnpy.interop.onnx.reading import Reading, Translation, refuse_extra
from znnpy.interop.onnx.window_operators import WINDOW_OPERATORS
from znnpy.interop.operators import arithmetic, functions, windows, written_out
from znnpy.interop.operators.value import Value

MINUS = np.array([-1], np.float32)


def _arithmetic(kind: str) -> Translation:
    def translated(reading: Reading, op: Operator, name: str) -> Value:
        if len(op.inputs) != 2:
            raise op.wrong(f"of {len(op.inputs)} tensors is not supported: of two, it is")
        constants = [reading.constant(tensor) for tensor in op.inputs]
        if not any(constants):
            return _of_two(reading, op, name, kind)
        place = constants.index(True)
        x, array = reading.value(op, 1 - place), reading.floats(op, place, "the constant")
        sketch = reading.sketch
        if x.term is not None:
            return norm_parts.with_constant(op, x, array)
        match kind, place:
            case "Add", _:
                return functions.scaled(sketch, name, x, None, array)
            case "Mul", _:
                return functions.scaled(sketch, name, x, array, None)
            case "Sub", 1:
                return functions.scaled(sketch, name, x, None, -array)
            case "Sub", _:
                turned = functions.scaled(sketch, f"{name}.minus", x, MINUS, None)
                return functions.scaled(sketch, name, turned, None, array)
            case "Div", 1 if array.all():
                return functions.scaled(sketch, name, x, (1 / array).astype(np.float32), None)
        raise op.wrong("by a tensor, or by 0, is not supported")

    return translated


def _of_two(reading: Reading, op: Operator, name: str, kind: str) -> Value:
    one, other, sketch = reading.value(op, 0), reading.value(op, 1), reading.sketch
    if kind == "Div" or one.term or other.term:
        return written_out.of_two(sketch, kind.lower(), name, one, other)
    match kind:
        case "Add":
            return arithmetic.added(sketch, name, one, other)
        case "Mul":
            return arithmetic.multiplied(sketch, name, one, other)
        case "Max":
            return arithmetic.larger(sketch, name, one, other)
        case "Sub":
            turned = functions.scaled(sketch, f"{name}.minus", other, MINUS, None)
            return arithmetic.added(sketch, name, one, turned)
    raise op.wrong("of two feature maps is not supported")


def concat(reading: Reading, op: Operator, name: str) -> Value:
    """Concat along channels."""
    values = [reading.value(op, place) for place in range(len(op.inputs))]
    if op.attribute("axis", 0) not in (1, 1 - len(values[0].seen)):
        raise op.wrong(f"attribute axis: {op.attributes.get('axis')} is not that of channels, 1")
    return values[0] if len(values) == 1 else arithmetic.concatenated(reading.sketch, name, values)


def mean(reading: Reading, op: Operator, name: str) -> Value:
    """GlobalAveragePool, or ReduceMean over all of space."""
    x = reading.value(op)
    if op.kind == "ReduceMean" and (x.term or norm_parts.axes_of(reading, op, len(x.seen)) == (1,)):
        return norm_parts.reduction(reading, op, name)
    made = arithmetic.averaged(reading.sketch, name, x)
    if op.kind == "GlobalAveragePool":
        return made
    axes = reading.numbers(op, 1, "axes") if reading.given(op, 1) else op.attribute("axes", [])
    rank = len(x.seen)
    if op.attribute("noop_with_empty_axes", 0) or sorted(a % rank for a in axes) != list(
        range(2, rank)
    ):
        raise op.wrong(f"over axes {axes} is not supported: over all of space, it is")
    return made if op.attribute("keepdims", 1) else made.seen_as(x.seen[:2])


def reshape(reading: Reading, op: Operator, name: str) -> Value:
    """Reshape, Flatten, Squeeze and Unsqueeze: the same numbers in the same order."""
    x = reading.any_value(op)
    shape, rank = list(x.shape), len(x.seen)
    if op.kind == "Reshape":
        given = reading.numbers(op, 1, "shape")
        if not op.attribute("allowzero", 0):
            given = [shape[i] if n == 0 and i < rank else n for i, n in enumerate(given)]
        return arithmetic.reshaped(reading.sketch, name, x, given)
    if op.kind == "Flatten":
        axis = op.attribute("axis", 1) % (rank + 1)
        return arithmetic.reshaped(
            reading.sketch, name, x, [prod(shape[:axis]), prod(shape[axis:])]
        )
    axes = reading.numbers(op, 1, "axes") if reading.given(op, 1) else op.attribute("axes", [])
    if op.kind == "Squeeze":
        gone = {a % rank for a in axes} if axes else {i for i, n in enumerate(shape) if n == 1}
        return arithmetic.reshaped(
            reading.sketch, name, x, [n for i, n in enumerate(shape) if i not in gone]
        )
    for axis in sorted(a % (rank + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return arithmetic.reshaped(reading.sketch, name, x, shape)


def split(reading: Reading, op: Operator, name: str) -> list[Value]:
    """Split along channels."""
    x, count = reading.value(op), len(op.outputs)
    if op.attribute("axis", 0) not in (1, 1 - len(x.seen)):
        raise op.wrong(f"attribute axis: {op.attributes.get('axis', 0)} is not that of channels, 1")
    op.attribute("num_outputs", count)
    each = -(-x.channels // count)
    sizes = reading.numbers(op, 1, "split") if reading.given(op, 1) else op.attribute("split", [])
    sizes = sizes or [each] * (count - 1) + [x.channels - each * (count - 1)]
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != x.channels:
        raise op.wrong(f"splits {x.channels} channels into {sizes[:10]}")
    ends = np.cumsum([0, *sizes])
    return [
        arithmetic.chosen(reading.sketch, f"{name}.{number}", x, [*range(first, end)])
        for number, (first, end) in enumerate(itertools.pairwise(ends.tolist()))
    ]


def minus(reading: Reading, op: Operator, name: str) -> Value:
    """Neg."""
    return functions.scaled(reading.sketch, name, reading.value(op), MINUS, None)


def expand(reading: Reading, op: Operator, name: str) -> Value:
    """Expand."""
    if (x := reading.value(op)).term is not None:
        return norm_parts.expanded(x, reading.numbers(op, 1, "shape"))
    return arithmetic.expanded(
        reading.sketch, name, reading.value(op), reading.numbers(op, 1, "shape")
    )


def tile(reading: Reading, op: Operator, name: str) -> Value:
    """Tile along channels, or along a new axis behind one of space, as programs that repeat voxels do."""
    x, times = reading.any_value(op), reading.numbers(op, 1, "repeats")
    several = [axis for axis, count in enumerate(times) if count != 1]
    if len(times) == len(x.seen) and len(several) <= 1:
        axis = several[0] if several else 1
        if axis == 1 and x.turned is None:
            return arithmetic.repeated(reading.sketch, name, x, times[1])
        if x.term is None and times[axis] > 0:
            return arithmetic.repeated_voxels(reading.sketch, name, x, axis, times[axis])
    raise op.wrong(
        f"repeats {times[:9]} are not supported: of channels, or of a new axis behind one of space, they are"
    )


def depth_to_space(reading: Reading, op: Operator, name: str) -> Value:
    """DepthToSpace of neighbouring channels."""
    x, block = reading.value(op), op.attribute("blocksize", 1)
    if op.attribute("mode", "DCR") != "CRD":
        raise op.wrong(
            f"attribute mode: {op.attributes.get('mode', 'DCR')[:40]} is not supported: CRD is"
        )
    return windows.shuffled(
        reading.sketch,
        name,
        x,
        windows.triple(reading.sketch, [block], x.dimensions, 1, "blocksize"),
    )


def gemm(reading: Reading, op: Operator, name: str) -> Value:
    """Gemm and MatMul of means over all of space."""
    x, weight = reading.value(op), reading.filters(op, "B")
    if (
        op.attribute("transA", 0)
        or op.attribute("alpha", 1.0) != 1
        or op.attribute("beta", 1.0) != 1
    ):
        raise op.wrong("attributes transA, alpha and beta are not supported")
    matrix = weight if op.kind == "Gemm" and op.attribute("transB", 0) else weight.T
    bias = reading.maybe(op, 2, "C")
    return windows.linear(reading.sketch, name, x, matrix, bias, reading.named(op))


def same(reading: Reading, op: Operator, name: str) -> Value:
    """What changes nothing in prediction."""
    refuse_extra(reading, op)
    for attribute in ("ratio", "seed", "to", "saturate"):
        op.attribute(attribute, None)
    if (
        op.kind == "Dropout"
        and reading.given(op, 2)
        and reading.array(op, 2, "training_mode").any()
    ):
        raise op.wrong("training_mode is not supported: export the model after model.eval()")
    if op.kind == "Cast" and op.attributes.get("to") not in (1, 10, 11, 16):
        raise op.wrong(f"attribute to: {op.attributes.get('to')} is not supported")
    return reading.value(op)


def shape_of(reading: Reading, op: Operator, name: str) -> Any:
    """Shape: a constant."""
    shape = np.array(reading.any_value(op).shape, np.int64)
    return shape[slice(op.attribute("start", 0), op.attribute("end", None))]


OPERATORS: dict[str, Translation] = {
    **WINDOW_OPERATORS,
    **NORM_OPERATORS,
    **norm_parts.PART_OPERATORS,
    **FUNCTION_OPERATORS,
    "Add": _arithmetic("Add"),
    "Sub": _arithmetic("Sub"),
    "Mul": _arithmetic("Mul"),
    "Div": _arithmetic("Div"),
    "Max": _arithmetic("Max"),
    "Concat": concat,
    "GlobalAveragePool": mean,
    "ReduceMean": mean,
    "Reshape": reshape,
    "DepthToSpace": depth_to_space,
    "Flatten": reshape,
    "Squeeze": reshape,
    "Unsqueeze": reshape,
    "Neg": minus,
    "Split": split,
    "Expand": expand,
    "Tile": tile,
    "Gather": gather,
    "Gemm": gemm,
    "MatMul": gemm,
    "Identity": same,
    "Dropout": same,
    "Cast": same,
    "Shape": shape_of,
}
