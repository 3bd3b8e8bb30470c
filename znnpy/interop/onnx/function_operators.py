"""ONNX's functions of single numbers, and softmax over channels."""

from __future__ import annotations

from dataclasses import replace

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading, Translation
from znnpy.interop.operators import arithmetic, functions, written_out
from znnpy.interop.operators.value import Value


def _function(function: str, slope: tuple[str, float] | None = None) -> Translation:
    def translated(reading: Reading, op: Operator, name: str) -> Value:
        keys = {} if slope is None else {"slope": float(op.attribute(*slope))}
        return functions.activated(reading.sketch, name, reading.value(op), function, **keys)

    return translated


def softmax(reading: Reading, op: Operator, name: str) -> Value:
    """Softmax over channels, which another order of axes may have made the last one."""
    x = reading.any_value(op)
    rank = len(x.seen)
    axis = op.attribute("axis", -1 if reading.opset >= 13 else 1) % rank
    if reading.opset < 13 and axis != rank - 1:
        raise op.wrong(
            f"of opset {reading.opset} is over all axes behind its own: export with opset 13 or newer"
        )
    if (x.turned or range(rank))[axis] != 1:
        raise op.wrong(f"attribute axis: {op.attributes.get('axis', -1)} is not that of channels")
    plain = replace(x, turned=None)
    return replace(functions.activated(reading.sketch, name, plain, "softmax"), turned=x.turned)


def transpose(reading: Reading, op: Operator, name: str) -> Value:
    """Transpose, around a softmax."""
    x = reading.any_value(op)
    axes = op.attribute("perm", list(range(len(x.seen)))[::-1])
    return arithmetic.transposed(reading.sketch, x, axes)


def gelu(reading: Reading, op: Operator, name: str) -> Value:
    """Gelu."""
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    kind = op.attribute("approximate", "none")
    if kind not in kinds:
        raise op.wrong(f"attribute approximate: {kind[:40]} is not supported")
    return functions.activated(reading.sketch, name, reading.value(op), kinds[kind])


def hard_sigmoid(reading: Reading, op: Operator, name: str) -> Value:
    """HardSigmoid; x times it is hard_swish."""
    alpha, beta = op.attribute("alpha", 0.2), op.attribute("beta", 0.5)
    return functions.hard_logistic(reading.sketch, name, reading.value(op), alpha, beta)


def clip(reading: Reading, op: Operator, name: str) -> Value:
    """Clip between two constants."""
    bounds = [reading.maybe(op, place, "a bound") for place in (1, 2)]
    if (x := reading.value(op)).term is not None and bounds[0] is not None and bounds[1] is None:
        return written_out.applied(x, "least", float(f"{bounds[0].reshape(-1)[0]:.7g}"))
    numbers = [
        float(bound.reshape(-1)[0]) for bound in bounds if bound is not None and bound.size == 1
    ]
    if len(numbers) < 2:
        raise op.wrong("without a lower and an upper bound is not supported")
    return functions.clipped(reading.sketch, name, reading.value(op), numbers[0], numbers[1])


def erf(reading: Reading, op: Operator, name: str) -> Value:
    """Erf, which is taken where it is part of gelu."""
    return functions.activated(reading.sketch, name, reading.value(op), "erf")


def prelu(reading: Reading, op: Operator, name: str) -> Value:
    """PRelu; slopes are broadcast from the last axis on, as constants are."""
    x, slopes = reading.value(op), reading.floats(op, 1, "slope")
    if slopes.size > 1:
        slopes = functions.by_channel(reading.sketch, x, slopes)
    return functions.prelu(reading.sketch, name, x, slopes)


FUNCTION_OPERATORS: dict[str, Translation] = {
    "Relu": _function("relu"),
    "LeakyRelu": _function("leaky_relu", ("alpha", 0.01)),
    "Elu": _function("elu", ("alpha", 1.0)),
    "Sigmoid": _function("logistic"),
    "Tanh": _function("tanh"),
    "Softplus": _function("softplus"),
    "Softsign": _function("soft_sign"),
    "HardSwish": _function("hard_swish"),
    "Gelu": gelu,
    "Erf": erf,
    "HardSigmoid": hard_sigmoid,
    "Clip": clip,
    "PRelu": prelu,
    "Softmax": softmax,
    "Transpose": transpose,
}
