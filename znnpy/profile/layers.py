"""Which layer and pass a task belongs to, read from its name: the emitters name tasks after edges."""

from __future__ import annotations

from typing import NamedTuple

from znnpy.network.types import Network

PASSES = ("forward", "backward", "weight gradient", "update", "loss", "order")
"""`order`: tasks without work that only make others wait."""

_UPDATE = ("update", "norm", "clip", "transpose", "dense filters", "filter tiles", "filter spectra")
_ORDER = ("gate", "barrier")
_OF_WHAT_FOLLOWS = (
    "tiles",
    "spectra",
    "gradient inverse",
)  # made of a node for the edges that leave it


class Place(NamedTuple):
    """The row of a report that a task belongs to."""

    layer: str
    step: str  # one of PASSES


class Layers:
    """Finds places in one network. Tasks of a node go to its only edge, else to the node itself."""

    def __init__(self, network: Network) -> None:
        self._edges = {edge.name for edge in network.edges}
        self._names = sorted(
            self._edges | {node.name for node in network.nodes}, key=len, reverse=True
        )
        self._into = {node.name: _only(network.incoming(node.name)) for node in network.nodes}
        self._from = {node.name: _only(network.outgoing(node.name)) for node in network.nodes}
        self.order = [*(edge.name for edge in network.edges), *(n.name for n in network.nodes)]

    def place(self, name: str) -> Place:
        """Layer and pass of a task by its name."""
        owner = next((known for known in self._names if _begins(name, known)), None)
        if owner is None:
            return Place("all layers", "order" if name in _ORDER else "update")
        rest = name[len(owner) + 1 :]
        if owner in self._edges:
            return Place(owner, _pass_of(rest, edge=True))
        near = self._from if rest in _OF_WHAT_FOLLOWS else self._into
        return Place(near[owner] or owner, _pass_of(rest, edge=False))


def _only(edges: tuple[object, ...]) -> str | None:
    return getattr(edges[0], "name", None) if len(edges) == 1 else None


def _begins(name: str, known: str) -> bool:
    return name == known or name.startswith(known + " ")


def _pass_of(rest: str, *, edge: bool) -> str:
    if rest.startswith("loss"):
        return "loss"
    if rest.startswith(_UPDATE):
        return "update"
    if "weight" in rest or "bias" in rest or rest == "output tiles":
        return "weight gradient"
    if edge and rest == "gradient sum":
        return "weight gradient"
    if any(word in rest for word in ("backward", "gradient", "spread", "split")):
        return "backward"
    return "forward"
