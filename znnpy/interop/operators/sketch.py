"""`Sketch`: a network in progress, each operator a node of its own; `fusion.py` joins them afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ModelFileError
from znnpy.fields import MOST_VOXELS
from znnpy.interop.operators.value import Value
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import MOST_EDGES, Numbers
from znnpy.network.types import Triple

Floats = NDArray[np.float32]
_PLAIN = re.compile(r"[^A-Za-z0-9_.:-]+")
TERM = "reads a part of a norm that is not supported"
LONGEST = 150  # letters of a name: what a node keeps and what is told apart is added


@dataclass
class Bench:
    """A node: its keys as a config has them, its parameters by what they are ("bias", "scale", "slopes" ...).

    `kind` input, transfer, sum, max, product or concat; `factor`: what a channel is multiplied with before the bias.
    """

    kind: str
    channels: int
    size: Triple
    keys: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Floats] = field(default_factory=dict)
    factor: Floats | None = None
    learns: bool = True


@dataclass
class Link:
    """An edge: its ends, kind, keys as a config has them, filters, and whether they learn."""

    source: str
    target: str
    kind: str
    keys: dict[str, Any] = field(default_factory=dict)
    filters: Floats | None = None
    learns: bool = True


def plain_name(wanted: str) -> str:
    """Return a name that nodes and edges may have, like one that any may be."""
    return _PLAIN.sub(".", wanted).strip(".")[-LONGEST:].strip(".") or "node"


class Sketch:
    """Nodes and links by name, in the order in which they are added. Errors name the operator that is added (`at`).

    `functions`: of nodes that are functions of another node, the function and that node.
    `notes`: what is other than in the program, for the user, and the operators of which it is said.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Bench] = {}
        self.links: dict[str, Link] = {}
        self.at = ""
        self.functions: dict[str, tuple[str, str]] = {}
        self.notes: dict[str, list[str]] = {}

    def wrong(self, text: str) -> ModelFileError:
        """Return the error that an operator is not supported."""
        return ModelFileError(f"{self.at}: {text}" if self.at else text)

    def note(self, text: str) -> None:
        """Remember what is other than in the program, of the operator that is added."""
        self.notes.setdefault(text, []).append(self.at)

    def name(self, wanted: str) -> str:
        """Return a name that nodes and edges may have, and that is free."""
        plain = plain_name(wanted)
        found, number = plain, 1
        while found in self.nodes or found in self.links:
            number += 1
            found = f"{plain}.{number}"
        return found

    def node(
        self,
        wanted: str,
        kind: str,
        like: Value,
        channels: int | None = None,
        size: Triple | None = None,
        **keys: Any,
    ) -> Value:
        """Add a node and return its value, which the program sees as it sees `like`, of these channels and size."""
        if len(self.nodes) >= MOST_EDGES:
            raise self.wrong(f"the net has more than {MOST_EDGES:,} operators")
        name, count = self.name(wanted), like.channels if channels is None else channels
        extent = like.size if size is None else size
        if min(count, *extent) < 1 or count > 1 << 20 or max(extent) > MOST_VOXELS:
            raise self.wrong(f"would make {count} channels of {extent} voxels")
        self.nodes[name] = Bench(kind, count, extent, dict(keys))
        if channels is None and size is None:
            return Value(name, count, extent, like.seen, like.spread)
        space = (1, 1, 1) if like.spread else extent
        dimensions = like.dimensions
        return Value(
            name, count, extent, (like.batch, count, *space[3 - dimensions :]), like.spread
        )

    def link(
        self,
        wanted: str,
        source: Value,
        target: Value,
        kind: str = "identity",
        filters: Floats | None = None,
        *,
        learns: bool = True,
        **keys: Any,
    ) -> str:
        """Add an edge and return its name."""
        if source.term is not None:
            raise self.wrong(TERM)
        name = self.name(wanted)
        self.links[name] = Link(source.node, target.node, kind, dict(keys), filters, learns)
        return name

    def only_source(self, node: str | None) -> str | None:
        """Return the node that alone enters another; None if several do, or none."""
        found = [link.source for link in self.links.values() if link.target == node]
        return found[0] if len(found) == 1 else None

    def made(self, kind: str, source: Value, keys: Mapping[str, Any]) -> Triple:
        """Return the size that an edge of these keys makes of a source; raise where it is too small."""
        section = edge_kind(kind).keys.model_validate(dict(keys))
        numbers = Numbers(**edge_kind(kind).numbers(section))
        along = edge_kind(kind).sizes(numbers, numbers.sparsity)
        found = tuple(sizes.made(size) for sizes, size in zip(along, source.size, strict=True))
        if min(found) < 1:
            raise self.wrong(f"a feature map of {source.size} voxels (z, y, x) is too small for it")
        return found[0], found[1], found[2]

    def operated(
        self,
        wanted: str,
        source: Value,
        kind: str,
        keys: Mapping[str, Any],
        *,
        channels: int | None = None,
        filters: Floats | None = None,
        bias: Floats | None = None,
        edge: str = "",
        learns: bool = True,
    ) -> Value:
        """Add an edge of a kind and the node that it makes; `edge` is what its filters are called."""
        self.refuse_rearranged(source)
        if source.spread and edge_kind(kind).learns is None:
            raise self.wrong("of a mean over all of space is not supported")
        size = source.size if source.spread else self.made(kind, source, keys)
        node = "transfer" if edge_kind(kind).learns else "sum"
        name = self.name(edge) if edge else ""
        made = self.node(
            f"{name}.out" if edge else wanted, node, source, channels or source.channels, size
        )
        if bias is not None:
            self.nodes[made.node].arrays["bias"] = bias
        self.link(name or f"{made.node}.{kind}", source, made, kind, filters, learns=learns, **keys)
        return made

    def refuse_rearranged(self, *values: Value) -> None:
        """Raise for values that a reshape has rearranged."""
        for value in values:
            if value.term is not None:
                raise self.wrong(TERM)
            if value.turned is not None:
                raise self.wrong("reads a tensor that was transposed, which is not supported")
            if not value.plain:
                raise self.wrong(
                    f"reads a tensor that was reshaped to {value.seen}, which is not supported"
                )
