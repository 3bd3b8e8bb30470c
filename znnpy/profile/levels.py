"""What bounds a network that goes down and up again: work, critical path and idle time, level by level.

A level is what has the same distance between voxels, in input voxels: of a U-Net, the way down and the way up
at one resolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from znnpy.geometry.axes import describe
from znnpy.geometry.lattice import lattice_of
from znnpy.network.types import Network

Entries = Iterable[Mapping[str, Any]]


def levels(
    network: Network, names: Entries, path: Entries, waited_for: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Figures of each level, the finest first, JSON-able; none where all voxels lie equally far apart.

    Of `names` and `path`, entries with the `layer` and `seconds` of tasks; `waited_for`: idle seconds by
    the name of tasks. `stride`: z, y, x; `first`, `last`: layers in the order of the data; `work`, `path`,
    `waited_for` in seconds; `width`: work by path, the workers that the level alone keeps busy.
    """
    strides = _strides(network)
    if len(set(strides.values())) < 2:
        return []
    found: dict[Any, dict[str, Any]] = {}
    layer_of = {entry["name"]: entry["layer"] for entry in names}
    waits = [{"layer": layer_of.get(n, ""), "seconds": s} for n, s in waited_for.items()]
    for key, entries in (("work", names), ("path", path), ("waited_for", waits)):
        for entry in entries:
            if (stride := strides.get(entry["layer"])) is not None:
                level = found.setdefault(stride, dict.fromkeys(("work", "path", "waited_for"), 0.0))
                level[key] += entry["seconds"]
    ends = _ends(network, strides)
    return [
        {
            "stride": describe(stride),
            **dict(zip(("first", "last"), ends[stride], strict=True)),
            **found[stride],
            "width": found[stride]["work"] / max(found[stride]["path"], 1e-12),
        }
        for stride in sorted(found)
    ]


def _strides(network: Network) -> dict[str, Any]:
    """By node, and by edge as what it leads to."""
    nodes = dict(lattice_of(network).strides)
    return nodes | {edge.name: nodes[edge.target] for edge in network.edges}


def _ends(network: Network, strides: Mapping[str, Any]) -> dict[Any, tuple[str, str]]:
    """The first and the last node of each level."""
    found: dict[Any, tuple[str, str]] = {}
    for node in network.nodes:
        if node.kind != "input":
            first, _ = found.get(strides[node.name], (node.name, ""))
            found[strides[node.name]] = first, node.name
    return found
