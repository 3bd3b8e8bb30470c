"""Each kind of edge as the operations that other programs have: the table `EDGES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from znnpy.interop.export.computation import Tensor
from znnpy.layers.resizing import resized_sizes
from znnpy.layers.types import BARE, ONCE, Numbers, Sides, Triple
from znnpy.layers.windows import sides


@dataclass(frozen=True, eq=False)
class Step:
    """An operation of an edge: `kind`, `attributes` as in `Operation`, and the tensors themselves."""

    kind: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


Told = Callable[[Numbers, Triple, Tensor | None], list[Step]]
"""Returns the steps of an edge from its numbers, the distance between its taps and its filters; none: nothing to do."""


def _even(padding: Sides) -> bool:
    return all(before == after for before, after in padding)


def _before(padding: Sides) -> Triple:
    (z, _), (y, _), (x, _) = padding
    return z, y, x


def _padded(padding: Sides, border: str = "zeros", fill: float = 0.0) -> tuple[list[Step], Triple]:
    """Return the steps that pad, and the padding that the operation after them is left to do."""
    if border == "zeros" and _even(padding):
        return [], _before(padding)
    return [Step("pad", {"sides": padding, "border": border, "fill": fill})], (0, 0, 0)


def _conv(edge: Numbers, dilation: Triple, filters: Tensor | None) -> list[Step]:
    assert filters is not None
    pads, left = _padded(sides(edge, dilation), edge.border)
    attributes = {
        "size": edge.size,
        "stride": edge.stride,
        "dilation": dilation,
        "padding": left,
        "groups": edge.groups,
        "standardized": edge.weight_standardization,
    }
    return [*pads, Step("conv", attributes, {"weight": filters})]


def _conv_transpose(edge: Numbers, dilation: Triple, filters: Tensor | None) -> list[Step]:
    assert filters is not None
    padding = sides(edge, dilation)
    even = _even(padding)
    attributes = {
        "size": edge.size,
        "stride": edge.stride,
        "dilation": dilation,
        "padding": _before(padding) if even else (0, 0, 0),
        "output_padding": edge.output_padding,
        "groups": edge.groups,
    }
    grown = Step("conv_transpose", attributes, {"weight": exchanged(filters, edge.groups)})
    return [grown] if even else [grown, Step("crop", {"sides": padding})]


def exchanged(filters: Tensor, groups: int) -> Tensor:
    """Return filters (out, in / groups, z, y, x) as (in, out / groups, z, y, x)."""
    split = filters.reshape(groups, -1, *filters.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(split).reshape(-1, *split.shape[2:])


def _pool(edge: Numbers, dilation: Triple) -> dict[str, Any]:
    return {"size": edge.size, "stride": edge.stride, "dilation": dilation}


def _maximum(edge: Numbers, dilation: Triple, _: Tensor | None) -> list[Step]:
    pads, left = _padded(sides(edge, dilation), fill=-np.inf)
    return [*pads, Step("max_pool", {**_pool(edge, dilation), "padding": left})]


def _average(edge: Numbers, dilation: Triple, _: Tensor | None) -> list[Step]:
    padding = sides(edge, dilation)
    more = {"sides": padding, "count_padding": edge.count_padding or padding == BARE}
    return [Step("avg_pool", {**_pool(edge, dilation), **more})]


def _upsample(edge: Numbers, _: Triple, __: Tensor | None) -> list[Step]:
    if edge.factor == ONCE:
        return []
    return [Step("upsample", {"factor": edge.factor, "mode": edge.mode})]


def _resize(edge: Numbers, dilation: Triple, _: Tensor | None) -> list[Step]:
    along = resized_sizes(edge, dilation)
    ratios = tuple((sizes.shrinks, sizes.grows) for sizes in along)
    if ratios == ((1, 1),) * 3 and not any(edge.more):
        return []
    return [Step("resize", {"ratios": ratios, "more": edge.more, "mode": edge.mode})]


def _depth_to_space(edge: Numbers, _: Triple, __: Tensor | None) -> list[Step]:
    return [] if edge.factor == ONCE else [Step("depth_to_space", {"factor": edge.factor})]


def _crop(edge: Numbers, _: Triple, __: Tensor | None) -> list[Step]:
    if not any(edge.offset):
        return []
    return [Step("crop", {"sides": tuple((cut, cut) for cut in edge.offset)})]


def _pad(edge: Numbers, dilation: Triple, _: Tensor | None) -> list[Step]:
    padding = sides(edge, dilation)
    if padding == BARE:
        return []
    return [Step("pad", {"sides": padding, "border": edge.border, "fill": 0.0})]


def _dropout(edge: Numbers, _: Triple, __: Tensor | None) -> list[Step]:
    return [Step("dropout", {"keep": edge.keep})]


EDGES: Mapping[str, Told] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_filter": _maximum,
    "max_pool": _maximum,
    "avg_pool": _average,
    "upsample": _upsample,
    "resize": _resize,
    "depth_to_space": _depth_to_space,
    "identity": lambda edge, dilation, filters: [],
    "dropout": _dropout,
    "crop": _crop,
    "pad": _pad,
    "mean": lambda edge, dilation, filters: [Step("mean")],
}
