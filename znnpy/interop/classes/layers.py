"""`Layers`: PyTorch's layers by the names of their parameters, added to a sketch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from znnpy.errors import ModelFileError
from znnpy.interop.classes.state import State
from znnpy.interop.operators import arithmetic, functions, resizing, windows
from znnpy.interop.operators.sketch import Bench, Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import both_sides, triple
from znnpy.layers.types import Interpolation
from znnpy.network.types import Triple

Sizes = int | Sequence[int]
"""One number for all axes of the net, or one for each."""
SIDE = 192  # voxels of the example: many halves are whole


@dataclass(frozen=True)
class Norm:
    """A norm: `kind` instance, batch, group or channel (of each voxel); `tracked`: an instance norm that keeps
    running statistics.
    """

    kind: Literal["instance", "batch", "group", "channel"]
    epsilon: float = 1e-5
    affine: bool = True
    momentum: float = 0.1
    groups: int = 1
    tracked: bool = False


@dataclass(frozen=True)
class Function:
    """A function by its name here; relu6 is cut at 6, prelu has `slopes` that are learned."""

    name: str
    slope: float | None = None
    slopes: int = 1


class Layers:
    """A net in progress, of 2 or 3 dimensions; `input` is its image, of so many channels and voxels (z, y, x)."""

    def __init__(
        self, state: State, dimensions: int, channels: int, size: Triple | None = None
    ) -> None:
        self.state, self.dimensions = state, dimensions
        self.sketch = Sketch()
        z, y, x = size or (SIDE,) * 3
        extent: Triple = (z if dimensions == 3 else 1, y, x)
        self.sketch.nodes["input"] = Bench("input", channels, extent)
        seen = (1, channels, *extent[3 - dimensions :])
        self.input = Value("input", channels, extent, seen)

    def at(self, name: str) -> None:
        """Say which layer is added, for errors."""
        self.sketch.at = f"{self.state.where}: {name}"

    def triple(self, sizes: Sizes, fill: int = 1) -> Triple:
        """Return sizes along z, y, x."""
        given = [sizes] if isinstance(sizes, int) else list(sizes)
        return triple(self.sketch, given, self.dimensions, fill, "a size")

    def conv(
        self, x: Value, name: str, channels: int, size: Sizes = 3, *, stride: Sizes = 1, padding: Sizes | None = None,
        dilation: Sizes = 1, groups: int = 1, bias: bool = False,
    ) -> Value:  # fmt: skip
        """Add a convolution; by default with padding that keeps the size, which needs odd filters."""
        self.at(name)
        taps, apart = self.triple(size), self.triple(dilation)
        if padding is None:
            if any(n % 2 == 0 for n in taps):
                raise self.sketch.wrong(f"filters of {taps} taps with padding that keeps the size")
            z, y, w = ((n - 1) // 2 * d for n, d in zip(taps, apart, strict=True))
            pad: Triple = (z, y, w)
        else:
            pad = self.triple(padding, 0)
        weight = self._filters(name, channels, x.channels // max(groups, 1), taps)
        return windows.convolved(
            self.sketch, name, x, weight, self._bias(name, channels, bias), stride=self.triple(stride),
            padding=both_sides(pad, pad), dilation=apart, groups=groups, edge=name,
        )  # fmt: skip

    def grow(
        self, x: Value, name: str, channels: int, size: Sizes, *, stride: Sizes, padding: Sizes = 0, more: Sizes = 0,
        groups: int = 1, bias: bool = False, learns: bool = True,
    ) -> Value:  # fmt: skip
        """Add a transposed convolution; `more`: voxels that it adds at the end."""
        self.at(name)
        weight = self._filters(name, x.channels, channels // max(groups, 1), self.triple(size))
        pad = self.triple(padding, 0)
        made = windows.transposed(
            self.sketch, name, x, weight, self._bias(name, channels, bias), stride=self.triple(stride),
            padding=both_sides(pad, pad), more=self.triple(more, 0), groups=groups, edge=name,
        )  # fmt: skip
        if not learns:
            self.sketch.links[name].learns = False
        return made

    def _filters(self, name: str, first: int, second: int, taps: Triple) -> Floats:
        return self.state.floats(f"{name}.weight", (first, second, *taps[3 - self.dimensions :]))

    def _bias(self, name: str, channels: int, there: bool) -> Floats | None:
        return self.state.floats(f"{name}.bias", (channels,)) if there else None

    def linear(self, x: Value, name: str, outputs: int) -> Value:
        """Add a linear layer with bias, of a mean over space seen as (samples, channels)."""
        self.at(name)
        weight = self.state.floats(f"{name}.weight", (outputs, x.channels))
        return windows.linear(self.sketch, name, x, weight, self._bias(name, outputs, True), name)

    def norm(self, x: Value, name: str, norm: Norm | None) -> Value:
        """Add a norm, if there is one."""
        if norm is None:
            return x
        self.at(name)
        parts = {"scale": "weight", "shift": "bias"} if norm.affine else {}
        kind: str = norm.kind
        if norm.tracked or kind == "batch":  # in prediction they are the same
            kind = "batch"
            parts |= {"running_mean": "running_mean", "running_variance": "running_var"}
        if kind == "group":
            if norm.groups < 1 or x.channels % norm.groups:
                raise self.sketch.wrong(f"{norm.groups} groups of {x.channels} channels")
            kind = {x.channels: "instance", 1: "layer"}.get(norm.groups, "group")
        arrays = {
            ours: self.state.floats(f"{name}.{theirs}", (x.channels,))
            for ours, theirs in parts.items()
        }
        return arithmetic.normed(
            self.sketch, name, x, kind, norm.epsilon, arrays, norm.groups, norm.momentum
        )

    def response(self, x: Value, name: str, epsilon: float) -> Value:
        """Add global response normalisation, whose tensors are NAME_gamma and NAME_beta, as large as a feature map."""
        self.at(name)
        shape = (1, x.channels, *(1,) * self.dimensions)
        arrays = {
            ours: self.state.floats(f"{name}_{theirs}", shape).reshape(-1)
            for ours, theirs in {"scale": "gamma", "shift": "beta"}.items()
        }
        return arithmetic.normed(self.sketch, name, x, "response", epsilon, arrays)

    def function(self, x: Value, name: str, function: Function | None) -> Value:
        """Add a function, if there is one."""
        if function is None or function.name == "linear":
            return x
        self.at(name)
        if function.name == "relu6":
            return functions.clipped(self.sketch, name, x, 0, 6)
        if function.name == "prelu":
            if f"{name}.weight" in self.state.taken:
                self.sketch.note("slopes that an earlier layer has, too, learn apart")
            slopes = self.state.floats(f"{name}.weight", (function.slopes,))
            return functions.prelu(self.sketch, name, x, slopes)
        keys = {} if function.slope is None else {"slope": function.slope}
        return functions.activated(self.sketch, name, x, function.name, **keys)

    def pool(
        self,
        x: Value,
        name: str,
        kind: Literal["max_pool", "avg_pool"],
        size: Sizes,
        stride: Sizes | None = None,
    ) -> Value:
        """Add a pooling, by default in steps of its size; ModelFileError where a rest would be left out."""
        self.at(name)
        taps = self.triple(size)
        step = self.triple(size if stride is None else stride)
        return windows.pooled(
            self.sketch, name, x, kind, taps, step, both_sides((0, 0, 0), (0, 0, 0))
        )

    def resize(self, x: Value, name: str, factor: Sizes, mode: Interpolation) -> Value:
        """Add an upsampling by whole factors."""
        self.at(name)
        z, y, w = (n * f for n, f in zip(x.size, self.triple(factor), strict=True))
        return resizing.grown(self.sketch, name, x, (z, y, w), mode)

    def cat(self, name: str, *values: Value) -> Value:
        """Add what stacks channels."""
        self.at(name)
        return arithmetic.concatenated(self.sketch, name, values)

    def add(self, name: str, one: Value, other: Value) -> Value:
        """Add a sum."""
        self.at(name)
        return arithmetic.added(self.sketch, name, one, other)

    def constant(self, x: Value, name: str, factor: float) -> Value:
        """Add a product with a number."""
        self.at(name)
        return functions.scaled(self.sketch, name, x, np.array([factor], np.float32), None)


Net = tuple[Sketch, dict[str, Value]]
"""A finished sketch and its outputs by name."""


def finished(layers: Layers, outputs: Value | Sequence[Value]) -> Net:
    """Return a net whose first output is the finest one; ModelFileError for tensors that nothing has asked for."""
    layers.state.refuse_rest()
    values = [outputs] if isinstance(outputs, Value) else list(outputs)
    return layers.sketch, {f"output{n or ''}": value for n, value in enumerate(values)}


def example(factors: Sequence[Any], dimensions: int) -> Triple:
    """Return a size (z, y, x) that all of these factors divide, one after the other, into at least two voxels."""
    products = [1, 1, 1]
    for factor in factors:
        along = [factor] * dimensions if isinstance(factor, int) else list(factor)
        if len(along) != dimensions:
            raise ModelFileError(f"a stride {along} of a net of {dimensions} dimensions")
        for axis, step in enumerate([1] * (3 - dimensions) + along):
            products[axis] *= step
        if max(products) > 1 << 12:
            raise ModelFileError(f"strides whose product is {max(products)} are not supported")
    z, y, x = (product * max(2, round(SIDE / product)) for product in products)
    return z, y, x
