"""PyTorch's functions of single numbers, and softmax over channels."""

from __future__ import annotations

from znnpy.interop.operators import functions, written_out
from znnpy.interop.operators.value import Value
from znnpy.interop.pytorch.calls import Call, Translation


def _function(function: str, slope: str = "") -> Translation:
    def translated(call: Call, name: str) -> Value:
        for other, usual in (("scale", 1), ("input_scale", 1), ("beta", 1), ("threshold", 20)):
            if call.arguments.get(other, usual) != usual:
                raise call.wrong(f"argument {other}: {call[other]} is not supported")
        keys = {"slope": float(call[slope])} if slope else {}
        return functions.activated(call.sketch, name, call.value(), function, **keys)

    return translated


def gelu(call: Call, name: str) -> Value:
    """gelu."""
    function = "gelu_tanh" if call["approximate"] == "tanh" else "gelu"
    return functions.activated(call.sketch, name, call.value(), function)


def clip(call: Call, name: str) -> Value:
    """clamp, hardtanh and relu6, between two numbers."""
    pairs = (("min_val", "max_val"), ("min", "max"))
    bounds = next(([call[a], call[b]] for a, b in pairs if a in call.arguments), [0, 6])
    x = call.value()
    if x.term is not None and bounds[0] is not None and bounds[1] is None:
        return written_out.applied(x, "least", float(bounds[0]))
    if any(bound is None for bound in bounds):
        raise call.wrong("without a lower and an upper bound is not supported")
    return functions.clipped(call.sketch, name, x, float(bounds[0]), float(bounds[1]))


def clip_below(call: Call, name: str) -> Value:
    """clamp_min, of a length as part of a norm."""
    x = call.value()
    if x.term is None:
        raise call.wrong("without an upper bound is not supported")
    return written_out.applied(x, "least", float(call["min"]))


def hard_sigmoid(call: Call, name: str) -> Value:
    """hardsigmoid."""
    return functions.hard_logistic(call.sketch, name, call.value(), 1 / 6, 0.5)


def prelu(call: Call, name: str) -> Value:
    """A leaky function whose slopes are learned."""
    slopes = call.floats("weight")
    assert slopes is not None
    return functions.prelu(call.sketch, name, call.value(), slopes)


def softmax(call: Call, name: str) -> Value:
    """softmax over channels."""
    x = call.value()
    if call["dim"] not in (1, 1 - len(x.seen)):
        raise call.wrong(f"argument dim: {call['dim']} is not that of channels, 1")
    return functions.activated(call.sketch, name, x, "softmax")


FUNCTION_OPERATORS: dict[str, Translation] = {
    "relu": _function("relu"),
    "leaky_relu": _function("leaky_relu", "negative_slope"),
    "elu": _function("elu", "alpha"),
    "sigmoid": _function("logistic"),
    "tanh": _function("tanh"),
    "softplus": _function("softplus"),
    "silu": _function("silu"),
    "hardswish": _function("hard_swish"),
    "gelu": gelu,
    **dict.fromkeys(("relu6", "hardtanh", "clamp"), clip),
    "clamp_min": clip_below,
    "hardsigmoid": hard_sigmoid,
    "prelu": prelu,
    **dict.fromkeys(("softmax", "_softmax"), softmax),
}
