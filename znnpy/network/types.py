"""The network as a graph: nodes are image groups, edges are operations. Knows nothing of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Triple = tuple[int, int, int]
ONCE: Triple = (1, 1, 1)
NodeKind = Literal["input", "transfer", "sum", "concat"]
EdgeKind = Literal["conv", "max_filter", "max_pool", "dropout", "crop"]
FunctionName = Literal[
    "linear", "relu", "leaky_relu", "elu", "tanh", "logistic", "softmax", "forward_logistic"
]
InitKind = Literal["he", "xavier", "uniform", "normal", "constant"]


@dataclass(frozen=True)
class Init:
    """How a filter bank or bias starts.

    `he`: normal, std sqrt(2 / fan_in); `xavier`: uniform on +-sqrt(6 / (fan_in + fan_out));
    `uniform`: on [low, high]; `normal`: mean, std; `constant`: value.
    """

    kind: InitKind = "he"
    low: float = -0.1
    high: float = 0.1
    mean: float = 0.0
    std: float = 0.01
    value: float = 0.0


@dataclass(frozen=True)
class Node:
    """A group of images of one size.

    `input` is fed by the user; `sum` adds its incoming edges; `transfer` adds them, adds one bias
    per image and applies `function`; `concat` stacks its incoming edges in the order of `Network.edges`.
    `slope` is leaky_relu's negative slope or elu's alpha; tanh is amplitude * tanh(gain * x).
    """

    name: str
    kind: NodeKind
    images: int
    function: FunctionName = "linear"
    slope: float = 0.01
    bias: bool = True
    init: Init = field(default_factory=lambda: Init("constant"))
    amplitude: float = 1.0
    gain: float = 1.0


@dataclass(frozen=True)
class Edge:
    """An operation from one node to another; all triples are z, y, x.

    `size`: filter or pooling window. `stride`: true stride, output voxel i reads input voxel i * stride.
    `sparsity`: this conv's own dilation, multiplied with the one inherited from its source node.
    `sparsens`: factor by which everything downstream gets sparser (a max_filter's stride, ZNN section II).
    `repeat`: a conv's filters are the same number over blocks of so many taps, which start at tap 0.
    `keep`: probability with which dropout keeps a voxel. `offset`: voxels that crop removes on both sides.
    """

    name: str
    kind: EdgeKind
    source: str
    target: str
    size: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    sparsity: Triple = (1, 1, 1)
    sparsens: Triple = (1, 1, 1)
    keep: float = 1.0
    offset: Triple = (0, 0, 0)
    init: Init = field(default_factory=Init)
    repeat: Triple = ONCE


@dataclass(frozen=True)
class Network:
    """A directed acyclic graph; `nodes` are in topological order, `edges` in the order of the file."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, name: str) -> Node:
        """The node of that name; KeyError if there is none."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def incoming(self, name: str) -> tuple[Edge, ...]:
        """Edges that converge on a node, in the order of the file."""
        return tuple(edge for edge in self.edges if edge.target == name)

    def outgoing(self, name: str) -> tuple[Edge, ...]:
        """Edges that leave a node, in the order of the file."""
        return tuple(edge for edge in self.edges if edge.source == name)

    @cached_property  # asked for in every update
    def inputs(self) -> tuple[Node, ...]:
        """Nodes that the user feeds."""
        return tuple(node for node in self.nodes if node.kind == "input")

    @cached_property
    def outputs(self) -> tuple[Node, ...]:
        """Nodes that no edge leaves."""
        return tuple(node for node in self.nodes if not self.outgoing(node.name))
