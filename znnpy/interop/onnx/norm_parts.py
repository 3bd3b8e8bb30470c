"""ONNX's sums, roots and quotients over channels, of which norms are made that no operator stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading, Translation
from znnpy.interop.operators import written_out
from znnpy.interop.operators.sketch import Floats
from znnpy.interop.operators.value import Value


def axes_of(reading: Reading, op: Operator, rank: int) -> tuple[int, ...]:
    """Return the axes over which an operator reduces; all where it names none."""
    given = reading.numbers(op, 1, "axes") if reading.given(op, 1) else op.attribute("axes", [])
    if op.attribute("noop_with_empty_axes", 0) and not given:
        raise op.wrong("attribute noop_with_empty_axes: 1 is not supported")
    return tuple(sorted(axis % rank for axis in given or range(rank)))


def reduction(reading: Reading, op: Operator, name: str) -> Value:
    """ReduceSum, ReduceMean and ReduceL2 over some axes."""
    x = reading.value(op)
    axes = axes_of(reading, op, len(x.seen))
    if not op.attribute("keepdims", 1):
        raise op.wrong("attribute keepdims: 0 is not supported")
    seen = tuple(1 if axis in axes else n for axis, n in enumerate(x.seen))
    if op.kind == "ReduceL2":
        return written_out.norm(x, axes, seen)
    return written_out.reduced(x, "sum" if op.kind == "ReduceSum" else "mean", axes, seen)


def power(reading: Reading, op: Operator, name: str) -> Value:
    """Pow by 2 and by a half, and Sqrt."""
    x = reading.value(op)
    number = 0.5 if op.kind == "Sqrt" else float(reading.array(op, 1, "exponent").reshape(-1)[0])
    return written_out.power(reading.sketch, x, number)


def magnitude(reading: Reading, op: Operator, name: str) -> Value:
    """Abs, as part of softsign."""
    return written_out.applied(reading.value(op), "magnitude")


def with_constant(op: Operator, x: Value, array: Floats) -> Value:
    """Return a part of a norm with a constant."""
    match op.kind:
        case "Add":
            return written_out.scaled(x, None, array)
        case "Mul":
            return written_out.scaled(x, array, None)
        case "Max" if array.size == 1:
            return written_out.applied(x, "least", float(f"{array.reshape(-1)[0]:.7g}"))
    raise op.wrong("of a part of a norm and a constant is not supported")


def expanded(x: Value, shape: list[int]) -> Value:
    """Return a part of a norm, which is what it is at each voxel, too."""
    return replace(x, seen=tuple(int(n) for n in np.broadcast_shapes(x.seen, tuple(shape))))


PART_OPERATORS: dict[str, Translation] = {
    **dict.fromkeys(("ReduceSum", "ReduceL2"), reduction),
    **dict.fromkeys(("Pow", "Sqrt"), power),
    "Abs": magnitude,
}
