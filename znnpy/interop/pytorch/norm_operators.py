"""PyTorch's norms, and the sums, roots and quotients over channels of which norms are made that are written out."""

from __future__ import annotations

import numpy as np

from znnpy.interop.operators import arithmetic, written_out
from znnpy.interop.operators.sketch import Floats
from znnpy.interop.operators.value import Value
from znnpy.interop.pytorch.calls import Call, Translation


def _affine(call: Call, channels: int) -> dict[str, Floats]:
    """Return scale and shift, none where the module has neither; of one that it has not, what changes nothing."""
    found = {"scale": call.floats("weight"), "shift": call.floats("bias")}
    if all(array is None for array in found.values()):
        return {}
    usual = {"scale": np.ones(channels, np.float32), "shift": np.zeros(channels, np.float32)}
    return {what: usual[what] if it is None else it for what, it in found.items()}


def batch_norm(call: Call, name: str) -> list[Value]:
    """Batch normalisation by running statistics."""
    x, momentum = call.value(), float(call["momentum"] or 0.1)
    arrays = _affine(call, x.channels)
    mean, variance = call.floats("running_mean"), call.floats("running_var")
    if mean is None or variance is None:
        raise call.wrong("without running statistics is not supported")
    arrays |= {"running_mean": mean, "running_variance": variance}
    return [
        arithmetic.normed(call.sketch, name, x, "batch", call["eps"], arrays, momentum=momentum)
    ]


def instance_norm(call: Call, name: str) -> Value:
    """Instance normalisation; with running statistics, in prediction, it is batch normalisation."""
    x = call.value()
    arrays = _affine(call, x.channels)
    if call["use_input_stats"]:
        return arithmetic.normed(call.sketch, name, x, "instance", call["eps"], arrays)
    mean, variance = call.floats("running_mean"), call.floats("running_var")
    if mean is None or variance is None:
        raise call.wrong("without running statistics is not supported")
    arrays |= {"running_mean": mean, "running_variance": variance}
    return arithmetic.normed(call.sketch, name, x, "batch", call["eps"], arrays)


def group_norm(call: Call, name: str) -> Value:
    """Normalisation of groups of channels."""
    x, groups = call.value(), call["num_groups"]
    kind = "instance" if groups == x.channels else "layer" if groups == 1 else "group"
    arrays = _affine(call, x.channels)
    return arithmetic.normed(call.sketch, name, x, kind, call["eps"], arrays, groups)


def layer_norm(call: Call, name: str) -> Value:
    """Normalisation over channels, which another order of axes has made the last one."""
    x = call.any_value()
    if list(call["normalized_shape"]) != [x.channels]:
        raise call.wrong(
            f"argument normalized_shape: {call['normalized_shape']} is not that of channels"
        )
    arrays = _affine(call, x.channels)
    return arithmetic.normed_last(call.sketch, name, x, call["eps"], arrays)


def _axes(call: Call, x: Value) -> tuple[int, ...]:
    given = call["dim"]
    given = [given] if isinstance(given, int) else given
    return tuple(sorted(axis % len(x.seen) for axis in given or range(len(x.seen))))


def reduction(call: Call, name: str) -> Value:
    """sum and mean over some axes, as parts of a norm."""
    x = call.value()
    seen = tuple(int(n) for n in call.node.meta["val"].shape)
    if not call["keepdim"]:
        raise call.wrong("without keepdim is not supported")
    return written_out.reduced(x, call.kind, _axes(call, x), seen)


def vector_norm(call: Call, name: str) -> Value:
    """linalg_vector_norm and norm: the root of the sum of squares over some axes, as part of a norm."""
    x, order = call.value(), call.arguments.get("ord", call.arguments.get("p"))
    seen = tuple(int(n) for n in call.node.meta["val"].shape)
    if order not in (2, None) or not call["keepdim"]:
        raise call.wrong("of another order than 2, or without keepdim, is not supported")
    return written_out.norm(x, _axes(call, x), seen)


def power(call: Call, name: str) -> Value:
    """pow by 2 and by a half, and sqrt, as parts of a norm."""
    x = call.value()
    number = 0.5 if call.kind == "sqrt" else call["exponent"]
    return written_out.power(call.sketch, x, number)


def magnitude(call: Call, name: str) -> Value:
    """abs, as part of softsign."""
    return written_out.applied(call.value(), "magnitude")


NORM_OPERATORS: dict[str, Translation] = {
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "sum": reduction,
    **dict.fromkeys(("linalg_vector_norm", "norm"), vector_norm),
    **dict.fromkeys(("pow", "sqrt"), power),
    "abs": magnitude,
}
