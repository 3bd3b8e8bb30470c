"""What there is to say of an edge kind: the keys that users write, its sizes, its float64 meaning.

Images are (batch, channel, z, y, x), filters (out, in, z, y, x). How many voxels an operation takes and makes,
and which it sees, is said once, by `sizes.py`.

What a node does with what its edges bring: a closed set, which every room matches in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from znnpy.fields import Strict
from znnpy.layers.operation import EdgeKindName, Numbers
from znnpy.layers.sizes import AllSizes, windows
from znnpy.layers.types import Array, Triple

NodeKind = Literal["input", "transfer", "sum", "max", "concat"]


@dataclass(frozen=True)
class Applied:
    """An operation where it stands in a network: its numbers, what it inherits, has learned and has drawn.

    `dilation`: distance between its taps, z y x, in voxels of its source. `filters`: empty for kinds
    without. `mask`: nonzero where dropout keeps a voxel, in its source's shape; None in inference.
    """

    edge: Numbers
    dilation: Triple
    filters: Array = field(default_factory=lambda: np.empty(0))
    mask: Array | None = None


@dataclass(frozen=True)
class Filters:
    """What a kind learns: an array for each edge, and with it any number of images from any number.

    `shape(edge, inputs, outputs)`: of the array, which begins (out, in). `gradient(image, gradient,
    applied)`: of the loss for the array, from the edge's input and the gradient for its output.
    """

    shape: Callable[[Numbers, int, int], tuple[int, ...]]
    gradient: Callable[[Array, Array, Applied], Array]


@dataclass(frozen=True, kw_only=True)
class EdgeKind:
    """One kind of edges.

    `name`: in configs. `summary`: of its key in a chain. `example`: a layer and its comment, for the
    template of a config. `keys`: those of an edge; `layer`: those of a layer where its node has keys of
    its own beside them. `short`: the key that a bare value of these types stands for.
    `forward(image, applied)`: the images that arrive. `data_gradient(image, gradient, applied)`: of the
    loss for the edge's input, in its shape. `learns`: None keeps the number of images.
    `sizes(numbers, dilation)`: along z, y, x. `dense`: the kind that it is where its stride is taken away
    and every voxel is wanted; itself unless said. `wrong(numbers)`: what of them cannot be, a line each.
    `tasks`: its tasks in float32, a `znnpy.engine.emit.Emitter` or "module:name" of one, for a kind that is not in
    `znnpy.engine.emit.EMITTERS`.
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
    sizes: Callable[[Numbers, Triple], AllSizes] = windows
    dense: EdgeKindName | None = None
    wrong: Callable[[Numbers], Iterable[str]] = lambda numbers: ()
    read: Callable[[Any], Mapping[str, Any]] | None = None
    written: Callable[[Numbers], Mapping[str, Any]] | None = None
    tasks: Any = None

    def numbers(self, keys: Strict) -> Mapping[str, Any]:
        """Fields of `Numbers` from the keys of an edge or layer."""
        if self.read is not None:
            return self.read(keys)
        return {name: getattr(keys, name) for name in self.keys.model_fields}

    def data(self, numbers: Numbers) -> Mapping[str, Any]:
        """Keys as a config holds them, from which `numbers` makes the same again."""
        if self.written is not None:
            return self.written(numbers)
        return {name: getattr(numbers, name) for name in self.keys.model_fields}
