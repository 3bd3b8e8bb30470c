"""The form of an edge kind's entry, `EdgeKind`: keys that users write, sizes, float64 forward and gradients.

Arrays are (batch, channel, z, y, x), filters (out, in / groups, z, y, x). `sizes.py` alone says how many voxels an
operation takes and makes, and which it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from znnpy.fields import Strict
from znnpy.layers.sizes import AllSizes, windows
from znnpy.layers.types import Array, EdgeKindName, Numbers, Triple

NodeKind = Literal["input", "transfer", "sum", "max", "concat", "product"]
"""How a node combines its edges (see `Node`). The set is closed: every room matches all of them."""


@dataclass(frozen=True)
class Applied:
    """An operation in its place in a network: its numbers, inherited dilation, filters and dropout mask.

    `dilation`: distance between its taps, z y x, in voxels of its source. `filters`: empty for kinds without.
    `mask`: nonzero where dropout keeps a voxel, in the shape of its source; None in inference.
    """

    edge: Numbers
    dilation: Triple
    filters: Array = field(default_factory=lambda: np.empty(0))
    mask: Array | None = None


@dataclass(frozen=True)
class Filters:
    """The filters that a kind learns: one array for each edge, which maps any number of channels to any other.

    `shape(edge, inputs, outputs)`: of the array, which begins (out, in). `gradient(values, gradient, applied)`: of
    the loss by the array, from the edge's input and the gradient by its output.
    """

    shape: Callable[[Numbers, int, int], tuple[int, ...]]
    gradient: Callable[[Array, Array, Applied], Array]


@dataclass(frozen=True, kw_only=True)
class EdgeKind:
    """One kind of edge.

    `name`: in configs. `summary`: describes its key in a chain. `example`: a layer and its comment, for the template
    of a config. `keys`: of an edge; `layer`: of a layer of a chain, where its node has keys of its own as well.
    `short`: the key that a bare value of these types stands for.
    `forward(values, applied)`: the edge's output. `data_gradient(values, gradient, applied)`: of the loss by the
    edge's input, in its shape. `learns`: its filters; None: it keeps the number of channels.
    `channels(numbers, inputs)`: of what it makes; None: it keeps their number, or makes any, where it learns.
    `sizes(numbers, dilation)`: along z, y, x. `dense`: the kind that takes its place when strides become dilation
    (`network/dense_conversion.py`); None: itself. `wrong(numbers)`: problems with them, a line each.
    `of_patch(numbers)`: why values depend on how large a patch is, in a few words; "": they do not.
    `tasks()`: its tasks in float32, a `znnpy.engine.emit.Emitter`, for a kind that is not in
    `znnpy.engine.emit.EMITTERS`; imports of the engine stand in it.
    `read(keys)`, `written(numbers)`: numbers from keys and back; by default a key is the number of its name.
    """

    name: str
    summary: str
    keys: type[Strict]
    forward: Callable[[Array, Applied], Array]
    data_gradient: Callable[[Array, Array, Applied], Array]
    example: str = ""
    layer: type[Strict] | None = None
    short: tuple[str, tuple[type, ...]] | None = None
    learns: Filters | None = None
    channels: Callable[[Numbers, int], int] | None = None
    sizes: Callable[[Numbers, Triple], AllSizes] = windows
    dense: EdgeKindName | None = None
    wrong: Callable[[Numbers], Iterable[str]] = lambda numbers: ()
    of_patch: Callable[[Numbers], str] = lambda numbers: ""
    read: Callable[[Any], Mapping[str, Any]] | None = None
    written: Callable[[Numbers], Mapping[str, Any]] | None = None
    tasks: Callable[[], Any] | None = None

    def brings(self, numbers: Numbers, inputs: int, wanted: int) -> int:
        """Return how many channels an edge brings to its target, which has `wanted`, from `inputs`."""
        if self.learns:
            return wanted
        return self.channels(numbers, inputs) if self.channels else inputs

    def numbers(self, keys: Strict) -> Mapping[str, Any]:
        """Return fields of `Numbers` from the keys of an edge or layer."""
        if self.read is not None:
            return self.read(keys)
        return {name: getattr(keys, name) for name in self.keys.model_fields}

    def data(self, numbers: Numbers) -> Mapping[str, Any]:
        """Return the keys, as a config holds them, from which `numbers` makes the same again."""
        if self.written is not None:
            return self.written(numbers)
        return {name: getattr(numbers, name) for name in self.keys.model_fields}
