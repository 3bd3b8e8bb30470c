"""The operators of PyTorch's exported programs, and the table of all that are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from znnpy.interop.operators import arithmetic, functions, windows, written_out
from znnpy.interop.operators.value import Value
from znnpy.interop.pytorch.calls import Call, Translation
from znnpy.interop.pytorch.function_operators import FUNCTION_OPERATORS
from znnpy.interop.pytorch.norm_operators import NORM_OPERATORS, batch_norm, reduction
from znnpy.interop.pytorch.window_operators import WINDOW_OPERATORS


def linear(call: Call, name: str) -> Value:
    """linear, of means over all of space."""
    weight, edge = call.filters()
    return windows.linear(call.sketch, name, call.value(), weight, call.floats("bias"), edge)


def mean(call: Call, name: str) -> Value:
    """mean and adaptive_avg_pool over all of space."""
    x = call.value()
    if call.kind == "mean":
        rank, axes = len(x.seen), call.arguments.get("dim")
        if axes is not None and (written_out.is_term(x) or [a % rank for a in axes] == [1]):
            return reduction(call, name)
        if axes is None or sorted(axis % rank for axis in axes) != list(range(2, rank)):
            raise call.wrong(f"over axes {axes} is not supported: over all of space, it is")
        made = arithmetic.averaged(call.sketch, name, x)
        return made if call["keepdim"] else made.seen_as(x.seen[:2])
    if any(n != 1 for n in call["output_size"]):
        raise call.wrong(f"argument output_size: {call['output_size']} is not supported: 1 is")
    return arithmetic.averaged(call.sketch, name, x)


ONE_NUMBER = "learns one number for all channels, which stays as it is here"
DIVISOR = "learns a divisor, which stays as it is here"
MINUS = np.array([-1], np.float32)


def _arithmetic(call: Call, name: str) -> Value:
    if "other" not in call.arguments:
        raise call.wrong("over one tensor is not supported: of two feature maps, it is")
    if call.arguments.get("alpha", 1) != 1 or call.arguments.get("rounding_mode") is not None:
        raise call.wrong("arguments alpha and rounding_mode are not supported")
    if call.is_value("input") and call.is_value("other"):
        return _of_two(call, name, call.value(), call.value("other"))
    place = "input" if call.is_value("other") else "other"
    x, array = call.value("other" if place == "input" else "input"), call.floats(place)
    assert array is not None
    if x.term is not None and call.kind in ("add", "mul"):
        factor, shift = (array, None) if call.kind == "mul" else (None, array)
        return written_out.scaled(x, factor, shift)
    learns = call.learns(place)
    if learns and array.size < x.channels:
        call.sketch.note(ONE_NUMBER)
        learns = False
    match call.kind, place:
        case "add", _:
            return functions.scaled(call.sketch, name, x, None, array, learns=learns)
        case "mul", _:
            return functions.scaled(call.sketch, name, x, array, None, learns=learns)
        case "sub", "other":
            return functions.scaled(call.sketch, name, x, None, -array, learns=learns)
        case "rsub", "other":
            turned = functions.scaled(call.sketch, f"{name}.minus", x, MINUS, None)
            return functions.scaled(call.sketch, name, turned, None, array, learns=learns)
        case "div", "other" if array.all():
            inverse = (1 / array).astype(np.float32)
            if learns:
                call.sketch.note(DIVISOR)
            return functions.scaled(call.sketch, name, x, inverse, None, learns=False)
    raise call.wrong("by a tensor, or by 0, is not supported")


def _of_two(call: Call, name: str, one: Value, other: Value) -> Value:
    if written_out.is_term(one, other):
        return written_out.of_two(call.sketch, call.kind, name, one, other)
    match call.kind:
        case "add":
            return arithmetic.added(call.sketch, name, one, other)
        case "mul":
            return arithmetic.multiplied(call.sketch, name, one, other)
        case "div":
            return written_out.quotient(call.sketch, name, one, other)
        case "maximum" | "max":
            return arithmetic.larger(call.sketch, name, one, other)
        case "sub":
            turned = functions.scaled(call.sketch, f"{name}.minus", other, MINUS, None)
            return arithmetic.added(call.sketch, name, one, turned)
    raise call.wrong("of two feature maps is not supported")


def minus(call: Call, name: str) -> Value:
    """neg."""
    return functions.scaled(call.sketch, name, call.value(), MINUS, None)


def concat(call: Call, name: str) -> Value:
    """cat along channels."""
    values = [call.calls.values.get(getattr(node, "name", "")) for node in call["input"]]
    found = [value for value in values if isinstance(value, Value)]
    if len(found) < len(values):
        raise call.wrong("stacks what is no feature map")
    if call["dim"] not in (1, 1 - len(found[0].seen)):
        raise call.wrong(f"argument dim: {call['dim']} is not that of channels, 1")
    return found[0] if len(found) == 1 else arithmetic.concatenated(call.sketch, name, found)


def split(call: Call, name: str) -> list[Value]:
    """split and chunk along channels."""
    x = call.value()
    if call["dim"] not in (1, 1 - len(x.seen)):
        raise call.wrong(f"argument dim: {call['dim']} is not that of channels, 1")
    found, first = list[Value](), 0
    for number, part in enumerate(call.node.meta["val"]):
        end = first + int(part.shape[1])
        found.append(arithmetic.chosen(call.sketch, f"{name}.{number}", x, [*range(first, end)]))
        first = end
    return found


def repeat(call: Call, name: str) -> Value:
    """repeat along channels."""
    x, times = call.value(), list(call["repeats"])
    if len(times) != len(x.seen) or any(n != 1 for n in times[:1] + times[2:]):
        raise call.wrong(f"argument repeats: {times} is not supported: of channels, it is")
    return arithmetic.repeated(call.sketch, name, x, times[1])


def expand(call: Call, name: str) -> Value:
    """expand."""
    if (x := call.value()).term is not None:  # a part of a norm is what it is at each voxel, too
        return replace(x, seen=tuple(int(n) for n in call.node.meta["val"].shape))
    return arithmetic.expanded(call.sketch, name, call.value(), [int(n) for n in call["size"]])


def reshape(call: Call, name: str) -> Value:
    """view, reshape, flatten, squeeze, unsqueeze: the same numbers in the same order."""
    shape = [int(n) for n in call.node.meta["val"].shape]
    return arithmetic.reshaped(call.sketch, name, call.any_value(), shape)


def permute(call: Call, name: str) -> Value:
    """permute, before a reshape that makes blocks of voxels of channels."""
    x = call.any_value()
    return arithmetic.transposed(call.sketch, x, [axis % len(x.seen) for axis in call["dims"]])


def shuffle(call: Call, name: str) -> Value:
    """pixel_shuffle."""
    x, factor = call.value(), call["upscale_factor"]
    return windows.shuffled(call.sketch, name, x, (1, factor, factor))


def same(call: Call, name: str) -> Value:
    """What changes nothing in prediction."""
    if call.arguments.get("train"):
        raise call.wrong("argument train: True is not supported")
    dtype: Any = call.arguments.get("dtype")
    if dtype is not None and not dtype.is_floating_point:
        raise call.wrong(f"argument dtype: {dtype} is not supported")
    return call.any_value()


OPERATORS: dict[str, Translation] = {
    **WINDOW_OPERATORS,
    **FUNCTION_OPERATORS,
    **NORM_OPERATORS,
    "linear": linear,
    "_native_batch_norm_legit_no_training": batch_norm,
    **dict.fromkeys(("mean", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), mean),
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "maximum", "max"), _arithmetic),
    "neg": minus,
    "cat": concat,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), split),
    "permute": permute,
    "pixel_shuffle": shuffle,
    "repeat": repeat,
    "expand": expand,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze"), reshape),
    **dict.fromkeys(
        ("dropout", "feature_dropout", "alpha_dropout", "clone", "contiguous", "alias", "detach", "to", "_to_copy"),
        same,
    ),
}  # fmt: skip
