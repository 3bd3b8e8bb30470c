"""ONNX's norms: by running statistics, of each channel, of groups of channels."""

from __future__ import annotations

from math import prod

import numpy as np

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading, Translation, refuse_extra
from znnpy.interop.operators import arithmetic
from znnpy.interop.operators.sketch import Floats
from znnpy.interop.operators.value import Value


def _taken(reading: Reading, op: Operator, x: Value, learned: bool) -> dict[str, Floats]:
    """Return scale and shift of a norm, none where they are 1 and 0 and no weights."""
    scale, shift = reading.floats(op, 1, "scale"), reading.floats(op, 2, "B")
    if scale.ndim != 1 or scale.shape != shift.shape or x.channels % max(1, scale.size):
        raise op.wrong(f"scale {scale.shape} and B {shift.shape} for {x.channels} channels")
    if not learned and np.all(scale == 1) and not shift.any():
        return {}
    times = x.channels // scale.size
    return {"scale": np.repeat(scale, times), "shift": np.repeat(shift, times)}


def batch_norm(reading: Reading, op: Operator, name: str) -> Value:
    """BatchNormalization by running statistics."""
    x = reading.value(op)
    if op.attribute("training_mode", 0):
        raise op.wrong(
            "attribute training_mode: 1 is not supported: export the model after model.eval()"
        )
    op.attribute("spatial", 1)
    refuse_extra(reading, op)
    arrays = _taken(reading, op, x, learned=reading.learned(op, 1))
    arrays["running_mean"] = reading.floats(op, 3, "input_mean")
    arrays["running_variance"] = reading.floats(op, 4, "input_var")
    # The standard's momentum is what stays.
    share = 1 - op.attribute("momentum", 0.9)
    if not 0 <= share <= 1:
        raise op.wrong(f"attribute momentum: {1 - share} must be in [0, 1]")
    return arithmetic.normed(
        reading.sketch,
        reading.named(op),
        x,
        "batch",
        _epsilon(op),
        arrays,
        momentum=round(share, 6) or 0.1,
    )


def _epsilon(op: Operator) -> float:
    found = float(f"{op.attribute('epsilon', 1e-5):.7g}")  # stored as float32
    if not 0 < found < 1e3:
        raise op.wrong(f"attribute epsilon: {found} must be positive")
    return found


def instance_norm(reading: Reading, op: Operator, name: str) -> Value:
    """InstanceNormalization; of channels reshaped to groups, normalisation of groups."""
    x = reading.value(op)
    learned = reading.learned(op, 1)
    if x.plain:
        arrays = _taken(reading, op, x, learned)
        return arithmetic.normed(
            reading.sketch, reading.named(op), x, "instance", _epsilon(op), arrays
        )
    groups = x.seen[1] if len(x.seen) > 2 else 0
    space = 1 if x.spread else prod(x.size)
    if not groups or x.channels % groups or prod(x.seen[1:]) != x.channels * space:
        raise op.wrong(f"of a tensor {x.seen} is not supported")
    whole = x.seen_as((x.batch, x.channels, *x.size))
    made = _grouped(reading, op, whole, groups, _taken(reading, op, whole, learned))
    return made.seen_as(x.seen)


def _grouped(
    reading: Reading, op: Operator, x: Value, groups: int, arrays: dict[str, Floats]
) -> Value:
    kind = "instance" if groups == x.channels else "layer" if groups == 1 else "group"
    return arithmetic.normed(
        reading.sketch, reading.named(op), x, kind, _epsilon(op), arrays, groups
    )


def group_norm(reading: Reading, op: Operator, name: str) -> Value:
    """GroupNormalization."""
    x, groups = reading.value(op), op.attribute("num_groups", 0)
    if groups < 1 or x.channels % groups:
        raise op.wrong(f"attribute num_groups: {groups} does not divide {x.channels} channels")
    if op.attribute("stash_type", 1) != 1:
        raise op.wrong("attribute stash_type is not supported")
    return _grouped(reading, op, x, groups, _taken(reading, op, x, reading.learned(op, 1)))


def layer_norm(reading: Reading, op: Operator, name: str) -> Value:
    """LayerNormalization over channels, which another order of axes has made the last one."""
    x = reading.any_value(op)
    axis = op.attribute("axis", -1)
    if axis not in (-1, len(x.seen) - 1):
        raise op.wrong(f"attribute axis: {axis} is not supported: -1, of channels, is")
    if op.attribute("stash_type", 1) != 1:
        raise op.wrong("attribute stash_type is not supported")
    refuse_extra(reading, op)
    arrays = {"scale": reading.floats(op, 1, "scale")}
    given = len(op.inputs) > 2 and op.inputs[2]
    arrays["shift"] = reading.floats(op, 2, "B") if given else 0 * arrays["scale"]
    if not reading.learned(op, 1) and np.all(arrays["scale"] == 1) and not arrays["shift"].any():
        arrays = {}
    return arithmetic.normed_last(reading.sketch, reading.named(op), x, _epsilon(op), arrays)


NORM_OPERATORS: dict[str, Translation] = {
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    "LayerNormalization": layer_norm,
}
