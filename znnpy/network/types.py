"""The network as a graph: `Node` (feature maps), `Edge` (operations), `Network`, its digest; no sizes, no arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cached_property
from hashlib import sha256
from operator import attrgetter
from typing import Any

from znnpy.layers.activation_functions import FunctionName
from znnpy.layers.edge_kind import NodeKind
from znnpy.layers.types import ONCE, EdgeKindName, Init, Norm, Numbers, Sides, Triple

__all__ = ["ONCE", "Edge", "Init", "Network", "Node", "NodeKind", "Norm", "Sides", "Triple"]


@dataclass(frozen=True)
class Node:
    """A node of the graph: a feature map of some channels, and how it is made from what its edges bring.

    `kind`: `input` is fed by the user; `sum` adds its incoming edges; `max` takes the maximum over them (maxout);
    `product` multiplies them, voxel by voxel; `concat` stacks their channels in the order of `Network.edges`;
    `transfer` adds them, adds one bias for each channel, normalises by `norm` and applies the activation
    function `function`.
    `shown`: the activation function that the loss applies to an output's values in place of the node.
    `tied`: prelu has one slope for all channels. `learn`: bias, scale, shift and slopes have gradients and are updated.
    `slope` is leaky_relu's negative slope or elu's alpha; tanh is amplitude * tanh(gain * x).
    """

    name: str
    kind: NodeKind
    channels: int
    function: FunctionName = "linear"
    slope: float = 0.01
    bias: bool = True
    init: Init = field(default_factory=lambda: Init("constant"))
    amplitude: float = 1.0
    gain: float = 1.0
    norm: Norm | None = None
    shown: FunctionName | None = None
    learn: bool = True
    tied: bool = False


@dataclass(frozen=True)
class Edge(Numbers):
    """An operation of one kind, with its numbers, from one node to another."""

    name: str
    kind: EdgeKindName
    source: str
    target: str


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph; `nodes` are in topological order, `edges` in the order of the file.

    Immutable and hashable: may be shared by threads and be a key of caches. `checked_network` makes valid ones.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, name: str) -> Node:
        """Return the node of that name; KeyError if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def incoming(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that enter a node, in the order of the file."""
        return self._arriving.get(name, ())

    def outgoing(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that leave a node, in the order of the file."""
        return self._leaving.get(name, ())

    @cached_property  # `incoming` is called for every node: a search of all edges would take quadratic time
    def _arriving(self) -> Mapping[str, tuple[Edge, ...]]:
        return _by(self.edges, attrgetter("target"))

    @cached_property
    def _leaving(self) -> Mapping[str, tuple[Edge, ...]]:
        return _by(self.edges, attrgetter("source"))

    @cached_property  # asked for in every update
    def inputs(self) -> tuple[Node, ...]:
        """Nodes that the user feeds."""
        return tuple(node for node in self.nodes if node.kind == "input")

    @cached_property
    def outputs(self) -> tuple[Node, ...]:
        """Nodes that no edge leaves."""
        return tuple(node for node in self.nodes if not self.outgoing(node.name))


def _by(edges: Iterable[Edge], node: Callable[[Edge], str]) -> dict[str, tuple[Edge, ...]]:
    """Return edges grouped by one of their nodes, in their order."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        found.setdefault(node(edge), []).append(edge)
    return {name: tuple(own) for name, own in found.items()}


def network_digest(network: Network) -> str:
    """Return a digest, 32 hexadecimal digits, of all nodes and edges in order; how parameters start does not count.

    Fields with their default value do not count either: so a field that a later version adds leaves the digests of
    networks that do not use it as they were.
    """
    parts = (network.nodes, network.edges)
    return sha256(repr([[_told(part) for part in some] for some in parts]).encode()).hexdigest()[
        :32
    ]


def _told(value: Any) -> Any:
    """Return the fields of a dataclass that differ from their defaults, by name; any other value unchanged."""
    if not is_dataclass(value):
        return value
    said = ((it.name, getattr(value, it.name), _default(it)) for it in fields(value))
    return [
        (name, _told(own))
        for name, own, usual in sorted(said, key=lambda it: it[0])
        if own != usual and not isinstance(own, Init)
    ]


def _default(field: Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is MISSING else made()
