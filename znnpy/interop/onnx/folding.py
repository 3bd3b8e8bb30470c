"""Operators on constants, such as shapes, computed when the file is read; sizes are bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.tensors import MOST_AXES, Array

MOST = 1 << 16  # numbers that an operator may make, beyond those that it reads: shapes have a few


def _axes(op: Operator, inputs: Sequence[Array], place: int) -> list[int] | None:
    """Return axes from an attribute (older opsets) or an input; None if there are none."""
    if len(inputs) > place:
        return integers(op, inputs[place], "axes")
    axes: list[int] | None = op.attribute("axes", None)
    return axes


def integers(op: Operator, array: Array, what: str) -> list[int]:
    """Return a few whole numbers."""
    if array.dtype.kind not in "iu" or array.size > 64:
        raise op.wrong(f"{what} must be a few whole numbers; found {array.dtype} {array.shape}")
    return [int(n) for n in array.reshape(-1)]


def _reshape(op: Operator, inputs: Sequence[Array]) -> Array:
    shape = integers(op, inputs[1], "shape")
    if not op.attribute("allowzero", 0):
        shape = [
            inputs[0].shape[i] if n == 0 and i < inputs[0].ndim else n for i, n in enumerate(shape)
        ]
    return inputs[0].reshape(shape)


def _unsqueeze(op: Operator, inputs: Sequence[Array]) -> Array:
    return np.expand_dims(inputs[0], tuple(_axes(op, inputs, 1) or ()))


def _squeeze(op: Operator, inputs: Sequence[Array]) -> Array:
    axes = _axes(op, inputs, 1)
    return np.squeeze(inputs[0], tuple(axes) if axes else None)


def _slice(op: Operator, inputs: Sequence[Array]) -> Array:
    data, starts, ends = (
        inputs[0],
        integers(op, inputs[1], "starts"),
        integers(op, inputs[2], "ends"),
    )
    axes = integers(op, inputs[3], "axes") if len(inputs) > 3 else list(range(len(starts)))
    steps = integers(op, inputs[4], "steps") if len(inputs) > 4 else [1] * len(starts)
    box: list[Any] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Below every index stands for "to the beginning" if steps go backwards.
        stop = None if step < 0 and end < -data.shape[axis] else end
        box[axis] = slice(start, stop, step)
    return np.asarray(data[tuple(box)])


def _cast(op: Operator, inputs: Sequence[Array]) -> Array:
    kinds = {1: "f4", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8"}
    to = op.attribute("to", 0)
    if to not in kinds:
        raise op.wrong(f"attribute to: {to} is not supported")
    return inputs[0].astype(kinds[to])


def _filled(op: Operator, inputs: Sequence[Array]) -> Array:
    value = op.attribute("value", None)
    fill = np.zeros(1, np.float32) if value is None else value
    shape = integers(op, inputs[0], "shape")
    _bound(op, shape)
    return np.full(shape, fill.reshape(-1)[0], fill.dtype)


def _expand(op: Operator, inputs: Sequence[Array]) -> Array:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(integers(op, inputs[1], "shape")))
    _bound(op, shape)
    return np.broadcast_to(inputs[0], shape)


def _tile(op: Operator, inputs: Sequence[Array]) -> Array:
    times = integers(op, inputs[1], "repeats")
    if len(times) != inputs[0].ndim or min(times, default=0) < 0:
        raise op.wrong(f"repeats a constant of shape {inputs[0].shape} {times} times")
    _bound(op, [n * many for n, many in zip(inputs[0].shape, times, strict=True)])
    return np.tile(inputs[0], times)


def _range(op: Operator, inputs: Sequence[Array]) -> Array:
    start, limit, step = (array.reshape(-1)[0] for array in inputs)
    _bound(op, [max(0, int((limit - start) / step) + 1)])
    return np.arange(start, limit, step, dtype=inputs[0].dtype)


def _bound(op: Operator, shape: Sequence[int]) -> None:
    if len(shape) > MOST_AXES or min(shape, default=0) < 0 or prod(shape) > MOST:
        raise op.wrong(f"would make a constant of shape {list(shape)[:9]}")


def _divided(op: Operator, inputs: Sequence[Array]) -> Array:
    one, other = inputs
    if one.dtype.kind in "iu":  # towards zero
        return (np.sign(one) * np.sign(other) * (abs(one) // abs(other))).astype(one.dtype)
    return np.asarray(one / other)


FOLDED: dict[str, Callable[[Operator, Sequence[Array]], Any]] = {
    "Identity": lambda op, inputs: inputs[0],
    "Cast": _cast,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Tile": _tile,
    "Transpose": lambda op, inputs: inputs[0].transpose(op.attribute("perm", None)),
    "Concat": lambda op, inputs: np.concatenate(inputs, axis=op.attribute("axis", 0)),
    "Gather": lambda op, inputs: np.take(inputs[0], inputs[1], axis=op.attribute("axis", 0)),
    "Shape": lambda op, inputs: np.array(inputs[0].shape, np.int64),
    "Add": lambda op, inputs: inputs[0] + inputs[1],
    "Sub": lambda op, inputs: inputs[0] - inputs[1],
    "Mul": lambda op, inputs: inputs[0] * inputs[1],
    "Div": _divided,
    "Neg": lambda op, inputs: -inputs[0],
    "Sqrt": lambda op, inputs: np.sqrt(inputs[0]),
    "Floor": lambda op, inputs: np.floor(inputs[0]),
    "Ceil": lambda op, inputs: np.ceil(inputs[0]),
    "Min": lambda op, inputs: np.minimum.reduce(inputs),
    "Max": lambda op, inputs: np.maximum.reduce(inputs),
    "Equal": lambda op, inputs: inputs[0] == inputs[1],
    "Where": lambda op, inputs: np.where(*inputs),
    "ReduceProd": lambda op, inputs: np.prod(
        inputs[0], tuple(_axes(op, inputs, 1) or range(inputs[0].ndim)), keepdims=bool(op.attribute("keepdims", 1))
    ),
}  # fmt: skip


def folded(op: Operator, inputs: Sequence[Array]) -> Array:
    """Return what an operator makes of constants; ModelFileError if it is unknown, wrong or too much."""
    if op.kind not in FOLDED:
        raise op.wrong("of constants is not supported")
    try:
        _bound_growth(op, inputs)
        with np.errstate(all="ignore"):
            found = np.asarray(FOLDED[op.kind](op, inputs))
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise op.wrong(f"of constants fails: {str(error)[:120]}") from error
    if found.size > max(MOST, *(array.size for array in inputs)):
        raise op.wrong(f"would make a constant of shape {list(found.shape)[:9]}")
    return found


def _bound_growth(op: Operator, inputs: Sequence[Array]) -> None:
    """Refuse, before it is computed, what would make much more than it reads."""
    if op.kind in ("Add", "Sub", "Mul", "Div", "Where", "Equal"):
        shape = np.broadcast_shapes(*(array.shape for array in inputs))
        if prod(shape) > max(array.size for array in inputs):
            _bound(op, shape)
    if op.kind == "Gather":
        data, indices = inputs
        each = data.size // max(1, data.shape[op.attribute("axis", 0)])
        if indices.size * each > max(MOST, data.size):
            raise op.wrong("reads too many indices")
