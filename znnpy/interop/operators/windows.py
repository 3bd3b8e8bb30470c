"""Operators of windows: convolutions, pooling, growth, padding and cropping, all along z, y, x."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.layers.types import BARE, ONCE, BorderName, Sides
from znnpy.network.types import Triple


def triple(sketch: Sketch, given: Sequence[int], dimensions: int, fill: int, what: str) -> Triple:
    """Return numbers along z, y, x of one for each of a program's axes, or one for all."""
    numbers = [int(n) for n in given]
    if len(numbers) == 1:
        numbers *= dimensions
    if len(numbers) != dimensions or dimensions not in (2, 3):
        raise sketch.wrong(
            f"{what} has {len(numbers)} numbers, of a net of {dimensions} dimensions"
        )
    z, y, x = [fill] * (3 - dimensions) + numbers
    return z, y, x


def both_sides(before: Triple, after: Triple) -> Sides:
    """Return pairs (before, after) along z, y, x."""
    z, y, x = zip(before, after, strict=True)
    return z, y, x


def _filters(sketch: Sketch, x: Value, weight: Floats) -> Floats:
    if weight.ndim != x.dimensions + 2 or x.dimensions not in (2, 3):
        raise sketch.wrong(f"filters of shape {weight.shape} for a tensor {x.seen}")
    return weight[:, :, None] if weight.ndim == 4 else weight


def convolved(
    sketch: Sketch,
    name: str,
    x: Value,
    weight: Floats,
    bias: Floats | None,
    *,
    stride: Triple = ONCE,
    padding: Sides = BARE,
    dilation: Triple = ONCE,
    groups: int = 1,
    edge: str = "",
) -> Value:
    """Add a convolution by filters (out, in / groups, ...)."""
    sketch.refuse_rearranged(x)
    filters = _filters(sketch, x, weight)
    _refuse_channels(sketch, x, filters.shape[1] * groups, filters.shape[0], groups, bias)
    size = _triple_of(filters.shape[2:])
    if x.spread and (size != ONCE or padding != BARE or stride != ONCE):
        raise sketch.wrong(
            "a convolution of a mean over all of space must have filters of one voxel"
        )
    keys: dict[str, Any] = {"size": list(size), **_said(stride, padding, groups)}
    if dilation != ONCE and size != ONCE:
        keys["sparsity"] = list(dilation)
    return sketch.operated(
        name, x, "conv", keys, channels=filters.shape[0], filters=filters, bias=bias, edge=edge
    )


def transposed(
    sketch: Sketch,
    name: str,
    x: Value,
    weight: Floats,
    bias: Floats | None,
    *,
    stride: Triple = ONCE,
    padding: Sides = BARE,
    more: Triple = (0, 0, 0),
    groups: int = 1,
    edge: str = "",
) -> Value:
    """Add a transposed convolution by filters (in, out / groups, ...); `more`: voxels that it adds at the end."""
    sketch.refuse_rearranged(x)
    filters = _filters(sketch, x, weight)
    inputs, outputs = filters.shape[0], filters.shape[1] * groups
    _refuse_channels(sketch, x, inputs, outputs, groups, bias)
    if x.spread:
        raise sketch.wrong("of a mean over all of space is not supported")
    swapped = [part.swapaxes(0, 1) for part in np.split(filters, groups)]
    size = _triple_of(filters.shape[2:])
    most = [(min(a, n - 1), min(b, n - 1)) for (a, b), n in zip(padding, size, strict=True)]
    rest = [(a - c, b - d) for (a, b), (c, d) in zip(padding, most, strict=True)]
    padding = most[0], most[1], most[2]
    keys: dict[str, Any] = {"size": list(size), **_said(stride, padding, groups)}
    if any(more):
        keys["output_padding"] = list(more)
    made = sketch.operated(
        name, x, "conv_transpose", keys, channels=outputs, bias=bias, edge=edge,
        filters=np.concatenate(swapped),
    )  # fmt: skip
    # What is cut off beyond the filters' reach is cut off afterwards.
    return cropped(sketch, f"{name}.inside", made, (rest[0], rest[1], rest[2]))


def linear(
    sketch: Sketch, name: str, x: Value, weight: Floats, bias: Floats | None, edge: str = ""
) -> Value:
    """Add a product of channels with a matrix (out, in), of means over all of space."""
    if not x.spread or x.seen != (x.batch, x.channels) or weight.ndim != 2:
        raise sketch.wrong(
            f"a linear layer of a tensor {x.seen} is not supported: of means over all of space, it is"
        )
    whole = x.seen_as((x.batch, x.channels, 1, 1, 1))
    made = convolved(sketch, name, whole, weight[:, :, None, None, None], bias, edge=edge)
    return made.seen_as((x.batch, made.channels))


def _refuse_channels(
    sketch: Sketch, x: Value, inputs: int, outputs: int, groups: int, bias: Floats | None
) -> None:
    if groups < 1 or inputs != x.channels or inputs % groups or outputs % groups:
        raise sketch.wrong(
            f"filters of {inputs} channels in {groups} groups for {x.channels} channels"
        )
    if bias is not None and bias.shape != (outputs,):
        raise sketch.wrong(f"a bias of shape {bias.shape} for {outputs} channels")


def _triple_of(numbers: Sequence[int]) -> Triple:
    z, y, x = numbers
    return z, y, x


def _said(stride: Triple, padding: Sides, groups: int) -> dict[str, Any]:
    """Return the keys that differ from what is usual."""
    found: dict[str, Any] = {}
    if stride != ONCE:
        found["stride"] = list(stride)
    if padding != BARE:
        found["padding"] = [list(pair) for pair in padding]
    if groups > 1:
        found["groups"] = groups
    return found


def pooled(
    sketch: Sketch,
    name: str,
    x: Value,
    kind: Literal["max_pool", "avg_pool"],
    size: Triple,
    stride: Triple,
    padding: Sides,
    *,
    up: bool = False,
    counted: bool = True,
) -> Value:
    """Add a pooling; `up`: sizes are rounded up, which is only taken where it makes no difference."""
    sketch.refuse_rearranged(x)
    if up:
        for length, window, step, pair in zip(x.size, size, stride, padding, strict=True):
            if (length + sum(pair) - window) % step:
                raise sketch.wrong(
                    f"ceil_mode with a feature map of {x.size} voxels is not supported"
                )
    keys: dict[str, Any] = {"size": list(size), "stride": list(stride)}
    if padding != BARE:
        keys["padding"] = [list(pair) for pair in padding]
        if kind == "avg_pool":
            keys["count_padding"] = counted
    return sketch.operated(name, x, kind, keys)


def shuffled(sketch: Sketch, name: str, x: Value, factor: Triple) -> Value:
    """Add what turns so many neighbouring channels into the voxels of a block (pixel shuffle)."""
    sketch.refuse_rearranged(x)
    each = prod(factor)
    if min(factor) < 1 or x.channels % each or each > 1 << 12:
        raise sketch.wrong(f"{x.channels} channels cannot become blocks of {factor} voxels")
    outputs = x.channels // each
    return sketch.operated(name, x, "depth_to_space", {"factor": list(factor)}, channels=outputs)


def padded(sketch: Sketch, name: str, x: Value, sides: Sides, border: BorderName) -> Value:
    """Add padding; negative numbers crop."""
    sketch.refuse_rearranged(x)
    more = [[max(side, 0) for side in pair] for pair in sides]
    less = both_sides(
        *((max(-a, 0), max(-b, 0), max(-c, 0)) for a, b, c in zip(*sides, strict=True))
    )
    x = cropped(sketch, name, x, less)
    if not any(map(any, more)):
        return x
    if x.spread:
        raise sketch.wrong("padding of a mean over all of space is not supported")
    if border == "reflect" and any(max(pair) >= n for n, pair in zip(x.size, more, strict=True)):
        raise sketch.wrong(f"mirrors {more} voxels of a feature map of {x.size}")
    size = _triple_of([n + sum(pair) for n, pair in zip(x.size, more, strict=True)])
    made = sketch.node(name, "sum", x, x.channels, size)
    keys: dict[str, Any] = {"padding": more} | ({} if border == "zeros" else {"border": border})
    sketch.link(f"{made.node}.pad", x, made, "pad", None, **keys)
    return made


def cropped(sketch: Sketch, name: str, x: Value, sides: Sides) -> Value:
    """Add what is left without so many voxels before and after; sides that differ are padded first."""
    if not any(map(any, sides)):
        return x
    sketch.refuse_rearranged(x)
    if x.spread:
        raise sketch.wrong("cropping of a mean over all of space is not supported")
    most = [max(pair) for pair in sides]
    even = [[m - before, m - after] for m, (before, after) in zip(most, sides, strict=True)]
    z, y, w = ((a, b) for a, b in even)
    x = padded(sketch, f"{name}.even", x, (z, y, w), "zeros")
    return sketch.operated(name, x, "crop", {"offset": most})
