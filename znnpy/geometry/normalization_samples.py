"""Refuses networks in which a normalisation would take its statistics from a single value."""

from __future__ import annotations

from math import prod

from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry
from znnpy.network.types import Network, Node, Norm


def refuse_single_values(network: Network, geometry: Geometry, batch: int | None) -> None:
    """Raise ShapeError if a node would be normalised by statistics of one value, which always gives 0.

    `batch`: samples at once; None for prediction, where batch normalisation uses running statistics.
    """
    for node in network.nodes:
        if node.norm is None or (node.norm.kind == "batch" and batch is None):
            continue
        # One value minus its own mean is 0, whatever the image shows.
        if _values(node, node.norm, geometry, batch or 1) == 1:
            more = "a larger patch" + (" or batch" if node.norm.kind == "batch" else "")
            raise ShapeError(
                f"node {node.name!r}: its {node.norm.kind} normalisation has one voxel to take "
                f"statistics from, which would always become 0; take {more}"
            )


def _values(node: Node, norm: Norm, geometry: Geometry, batch: int) -> int:
    channels = node.channels // norm.parts(node.channels)
    return channels * prod(geometry.nodes[node.name].shape) * (batch if norm.kind == "batch" else 1)
