"""Which layer a task belongs to: the row of a report that counts it."""

from __future__ import annotations

from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.network.types import Edge, Network

ALL = "all layers"


class Layers:
    """Finds layers in one network. Tasks of a node go to its only edge, else to the node itself."""

    def __init__(self, network: Network) -> None:
        self._into = {node.name: _only(network.incoming(node.name)) for node in network.nodes}
        self._from = {node.name: _only(network.outgoing(node.name)) for node in network.nodes}

    def of(self, task: Identity) -> str:
        """Name of the edge or node; ALL for tasks of the whole network."""
        if task.owner is None:
            return ALL
        near = self._from if _of_what_follows(task) else self._into
        return near.get(task.owner) or task.owner


def _of_what_follows(task: Identity) -> bool:
    """Whether it is made of a node for the edges that leave it."""
    if task.part is Part.INVERSE:
        return task.serves is Pass.BACKWARD
    return task.part in (Part.IMAGE_SPECTRA, Part.KEPT_TILES)


def _only(edges: tuple[Edge, ...]) -> str | None:
    return edges[0].name if len(edges) == 1 else None
