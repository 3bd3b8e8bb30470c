"""Operators that join values, norms, means over space, choices of channels and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from znnpy.interop.operators.functions import activated, scaled
from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import shuffled, triple

MOST_TIMES = 1 << 10  # that a program may repeat a voxel: more is damage


def normed(
    sketch: Sketch,
    name: str,
    x: Value,
    kind: str,
    epsilon: float,
    arrays: dict[str, Floats],
    groups: int = 1,
    momentum: float = 0.1,
) -> Value:
    """Add a normalisation; `arrays`: its scale and shift if it is affine, and running statistics."""
    sketch.refuse_rearranged(x)
    if x.spread and kind not in ("channel", "length"):
        raise sketch.wrong("a norm of a mean over all of space is not supported")
    for what, array in arrays.items():
        if array.shape != (x.channels,):
            raise sketch.wrong(f"{what} has shape {array.shape}, not ({x.channels},)")
    norm: dict[str, Any] = {"kind": kind, "epsilon": epsilon, "affine": "scale" in arrays}
    if kind == "group":
        norm["groups"] = groups
    if kind == "batch":
        norm["momentum"] = momentum
    made = sketch.node(name, "transfer", x, norm=norm)
    sketch.nodes[made.node].arrays.update(arrays)
    sketch.link(f"{made.node}.in", x, made)
    return made


def normed_last(
    sketch: Sketch, name: str, x: Value, epsilon: float, arrays: dict[str, Floats]
) -> Value:
    """Add a norm over the last axis of a tensor, which must be that of channels."""
    if (x.turned or tuple(range(len(x.seen))))[-1] != 1:
        raise sketch.wrong(
            f"over the last axis of a tensor {x.shape}, which is not that of channels"
        )
    made = normed(sketch, name, replace(x, turned=None), "channel", epsilon, arrays)
    return replace(made, turned=x.turned)


def added(sketch: Sketch, name: str, one: Value, other: Value) -> Value:
    """Add the sum of two feature maps."""
    return _joined(sketch, name, "sum", one, other)


def larger(sketch: Sketch, name: str, one: Value, other: Value) -> Value:
    """Add the larger of two feature maps."""
    return _joined(sketch, name, "max", one, other)


GATED = {"logistic": "silu", "hard_logistic": "hard_swish"}
"""Functions that x times another function of x is."""


def multiplied(sketch: Sketch, name: str, one: Value, other: Value) -> Value:
    """Add the product of two feature maps, or the function that it is where one is made of the other (`GATED`)."""
    for x, gate in ((one, other), (other, one)):
        of = sketch.functions.get(gate.node)
        function = GATED.get(of[0]) if of and of[1] == x.node and x.seen == gate.seen else None
        if function:
            return activated(sketch, name, x, function)
        if x.seen == gate.seen and _is_error_function(sketch, gate.node, x.node):
            # x (1 + erf(x / sqrt 2)); a factor of a half follows.
            gelu = activated(sketch, f"{name}.gelu", x, "gelu")
            return scaled(sketch, name, gelu, np.array([2], np.float32), None)
    return _joined(sketch, name, "product", one, other)


def _is_error_function(sketch: Sketch, node: str | None, x: str) -> bool:
    """Return whether a node is 1 + erf(x / sqrt 2), in three operators."""
    shift, erf = sketch.nodes[node or ""], sketch.only_source(node)
    inner = sketch.only_source(erf)
    if erf is None or inner is None or sketch.nodes[erf].keys.get("function") != "erf":
        return False
    factor, bias = sketch.nodes[inner].factor, shift.arrays.get("bias")
    return (
        sketch.only_source(inner) == x
        and factor is not None
        and np.allclose(factor, np.sqrt(0.5), rtol=1e-6)
        and shift.factor is None
        and bias is not None
        and bool(np.all(bias == 1))
    )


def _joined(sketch: Sketch, name: str, kind: str, one: Value, other: Value) -> Value:
    alike = one.seen == other.seen and (one.spread, one.size) == (other.spread, other.size)
    if not alike:
        sketch.refuse_rearranged(one, other)
        if one.size != other.size or one.dimensions != other.dimensions:
            raise sketch.wrong(f"joins shapes {one.seen} and {other.seen}, which is not supported")
        one, other = (_widened(sketch, name, a, b) for a, b in ((one, other), (other, one)))
    elif one.channels != other.channels:
        raise sketch.wrong(f"joins {one.channels} and {other.channels} channels in one shape")
    made = sketch.node(name, kind, other if one.spread else one)
    for number, value in enumerate((one, other)):
        sketch.link(f"{made.node}.in{number or ''}", value, made)
    return made


def _widened(sketch: Sketch, name: str, value: Value, other: Value) -> Value:
    """Return a value of one channel as often as the other has channels, by filters of ones that do not learn."""
    if value.channels == other.channels or other.channels == 1:
        return value
    if value.channels != 1:
        raise sketch.wrong(f"joins {value.channels} and {other.channels} channels")
    return repeated(sketch, f"{name}.spread", value, other.channels)


def repeated(sketch: Sketch, name: str, x: Value, times: int) -> Value:
    """Add all channels so many times, one after the other."""
    if not 1 <= times <= 1 << 12:
        raise sketch.wrong(f"repeats channels {times} times")
    return x if times == 1 else chosen(sketch, name, x, [*range(x.channels)] * times)


def chosen(sketch: Sketch, name: str, x: Value, channels: Sequence[int | None]) -> Value:
    """Add the channels of these numbers, zeros for None, by filters of one voxel that do not learn."""
    sketch.refuse_rearranged(x)
    if not channels or len(channels) * x.channels > 1 << 24:
        raise sketch.wrong(f"makes {len(channels)} of {x.channels} channels")
    filters = np.zeros((len(channels), x.channels, 1, 1, 1), np.float32)
    for place, channel in enumerate(channels):
        if channel is not None:
            filters[place, channel] = 1
    return sketch.operated(
        name, x, "conv", {"size": [1, 1, 1]}, channels=len(channels), filters=filters, learns=False
    )


def expanded(sketch: Sketch, name: str, x: Value, shape: Sequence[int]) -> Value:
    """Add what is broadcast to a shape: channels repeated, means over all of space at each voxel."""
    sketch.refuse_rearranged(x)
    wanted = [old if new in (1, -1) else new for old, new in zip(x.seen, shape, strict=False)]
    if len(shape) != len(x.seen) or wanted[0] != x.batch:
        raise sketch.wrong(f"broadcasts a tensor {x.seen} to {list(shape)[:9]}")
    if x.channels == 1:
        x = repeated(sketch, name, x, wanted[1])
    space = tuple(wanted[2:])
    if wanted[1] == x.channels and x.spread and space == x.size[3 - x.dimensions :]:
        return Value(x.node, x.channels, x.size, (x.batch, x.channels, *space))
    if tuple(wanted) != x.seen:
        raise sketch.wrong(
            f"broadcasts a tensor {x.seen} to {list(shape)[:9]}, which is not supported"
        )
    return x


def concatenated(sketch: Sketch, name: str, values: Sequence[Value]) -> Value:
    """Add a node that stacks channels."""
    sketch.refuse_rearranged(*values)
    if len({(value.size, value.spread) for value in values}) > 1:
        sizes = ", ".join(str(value.size) for value in values)
        raise sketch.wrong(f"stacks feature maps of sizes {sizes}")
    count = sum(value.channels for value in values)
    made = sketch.node(name, "concat", values[0], count, values[0].size)
    for number, value in enumerate(values):
        sketch.link(f"{made.node}.in{number or ''}", value, made)
    return made


def averaged(sketch: Sketch, name: str, x: Value) -> Value:
    """Add the mean over all of space, at each voxel."""
    sketch.refuse_rearranged(x)
    if x.spread:
        return x
    made = sketch.node(name, "sum", x)
    sketch.link(f"{made.node}.mean", x, made, "mean")
    ones = (1,) * x.dimensions
    return Value(made.node, x.channels, x.size, (x.batch, x.channels, *ones), spread=True)


def transposed(sketch: Sketch, x: Value, axes: Sequence[int]) -> Value:
    """Return a value with its axes in another order, which only its transpose or a softmax may read."""
    if x.term is not None:
        sketch.refuse_rearranged(x)
    before = x.turned or tuple(range(len(x.seen)))
    if sorted(axes) != list(range(len(x.seen))):
        raise sketch.wrong(f"axes {list(axes)[:9]} are not those of a tensor {x.seen}")
    now = tuple(before[axis] for axis in axes)
    return replace(x, turned=None if now == tuple(sorted(now)) else now)


def reshaped(sketch: Sketch, name: str, x: Value, shape: Sequence[int]) -> Value:
    """Return a value as another shape; -1 is what is left. Of blocks of channels laid out, it is a pixel shuffle."""
    if x.term is not None:
        sketch.refuse_rearranged(x)
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and x.elements % known == 0:
        shape = [x.elements // known if n == -1 else n for n in shape]
    if x.turned is not None:
        axes = [axis for axis in x.turned if x.seen[axis] != 1]
        if axes != sorted(axes):
            return _space_as(x, shape) or _laid_out(sketch, name, x, shape)
        # Axes of one alone have moved: the numbers are in their order.
        x = replace(x, turned=None)
    if len(shape) > 8 or min(shape, default=0) < 0 or prod(shape) != x.elements:
        raise sketch.wrong(f"cannot reshape {x.seen} to {list(shape)[:8]}")
    return x.seen_as(tuple(shape))


def _space_as(x: Value, shape: Sequence[int]) -> Value | None:
    """Return a value whose channels are last as another shape of space; None if it is no such thing."""
    (batch, channels, *space), rank = x.seen, len(x.seen)
    last, said = (0, *range(2, rank), 1), (batch, *shape[1:-1], channels)
    if x.turned != last or not 3 <= len(shape) <= 8 or tuple(shape) != said:
        return None
    if min(said) < 1 or prod(said[1:-1]) != prod(space):
        return None
    return replace(x, seen=(batch, channels, *said[1:-1]), turned=(0, *range(2, len(said)), 1))


def repeated_voxels(sketch: Sketch, name: str, x: Value, axis: int, times: int) -> Value:
    """Add each voxel so many times along the axis of space behind which a new one, of the program's, stands."""
    order = x.turned or tuple(range(len(x.seen)))
    new, before = order[axis], order[axis - 1]
    plain = replace(x, turned=None, seen=(*x.seen[:new], *x.seen[new + 1 :]))
    if x.seen[new] != 1 or before != new - 1 or before < 2 or not plain.plain or x.spread:
        raise sketch.wrong(
            f"repeats axis {axis} of a tensor {x.shape}, which is no new axis behind one of space"
        )
    if times > MOST_TIMES:
        raise sketch.wrong(f"repeats voxels {times} times; at most {MOST_TIMES} are supported")
    factor = [1, 1, 1]
    factor[before - 2 + 3 - plain.dimensions] = times
    made = sketch.operated(name, plain, "upsample", {"factor": factor, "mode": "nearest"})
    return replace(made, seen=(*x.seen[:new], times, *x.seen[new + 1 :]), turned=x.turned)


def _laid_out(sketch: Sketch, name: str, x: Value, shape: Sequence[int]) -> Value:
    """Return blocks of voxels from a tensor (batch, channels, factors, space) whose factors lie behind each axis."""
    count = (len(x.seen) - 2) // 2
    order = (0, 1, *(axis for n in range(count) for axis in (2 + count + n, 2 + n)))
    factors, space = x.seen[2 : 2 + count], x.seen[2 + count :]
    wanted = (*x.seen[:2], *(a * b for a, b in zip(factors, space, strict=False)))
    plain = replace(x, turned=None, seen=(x.batch, x.channels, *space))
    if x.turned != order or tuple(shape) != wanted or not plain.plain or x.spread:
        raise sketch.wrong("reshapes a tensor that was transposed, which is not supported")
    return shuffled(sketch, name, plain, triple(sketch, factors, count, 1, "its factors"))
