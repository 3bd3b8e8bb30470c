"""Recognises nnU-Net's architectures among networks, and says their parameters by the names that they have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from znnpy.errors import NetworkError, ZnnpyError
from znnpy.interop.model import Arrays
from znnpy.interop.nnunet.architecture import NORMS, PLAIN, RESIDUAL, Architecture
from znnpy.interop.nnunet.names import places
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.normalization import norm_data
from znnpy.network import load_network, network_digest
from znnpy.network.parameters import parameter_shapes
from znnpy.network.types import Edge, Network, Node

Edges = Mapping[str, Edge]
_COUNTER = "num_batches_tracked"


def recognised(network: Network) -> Architecture | None:
    """Return the architecture of nnU-Net that a network is, supervised outputs included; None if it is none."""
    edges = {edge.name: edge for edge in network.edges}
    nodes = {node.name: node for node in network.nodes}
    if _first(edges, 0) not in edges or "output" not in nodes or len(network.inputs) != 1:
        return None
    try:
        found = _read(edges, nodes)
        keys = found.unet(network.inputs[0].channels, nodes["output"].channels)
        same = load_network({"unet": keys})
    except (ZnnpyError, KeyError):  # some other U-Net
        return None
    placed = {place.name for place in places(found, network).values()}
    whole = parameter_shapes(network).keys() <= placed  # slopes of prelu have no name there
    return found if whole and network_digest(same) == network_digest(network) else None


def state_dict(architecture: Architecture, network: Network, parameters: Arrays) -> dict[str, Any]:
    """Return all parameters by the names in nnU-Net's class; those that it keeps several times are one array."""
    found: dict[str, Any] = {}
    for theirs, place in places(architecture, network).items():
        if place.name not in parameters:
            continue
        array = parameters[place.name]
        if place.turned:
            array = np.roll(array, place.turned, axis=1)
        if place.transposed:
            array = array.swapaxes(0, 1)
        if array.ndim == 5 and architecture.dimensions == 2:
            array = array[:, :, 0]
        found[theirs] = np.ascontiguousarray(array)
        unit, _, part = theirs.rpartition(".")
        if part == "running_var":
            found[f"{unit}.{_COUNTER}"] = np.array(0, np.int64)
    return {name: array for first, array in found.items() for name in _names(first)}


def _names(first: str) -> Iterator[str]:
    """Yield all names of a parameter, the first one first."""
    for name in (first, f"decoder.{first}") if first.startswith("encoder.") else (first,):
        yield name
        unit, _, part = name.rpartition(".")
        module, _, what = unit.rpartition(".")
        if what in ("conv", "norm"):
            yield f"{module}.all_modules.{int(what == 'norm')}.{part}"


def _read(edges: Edges, nodes: Mapping[str, Node]) -> Architecture:
    """Return the architecture whose names these are; whether it is all of the network is not looked at."""
    residual = "stem.conv" in edges
    levels = 1
    while _first(edges, levels) in edges:
        levels += 1
    firsts = [edges[_first(edges, level)] for level in range(levels)]
    bearer = nodes[firsts[0].target]
    if bearer.norm is not None and bearer.norm.kind not in NORMS.values():
        raise NetworkError(f"nnU-Net has no {bearer.norm.kind} norm")
    sizes, steps = [edge.size for edge in firsts], [edge.stride for edge in firsts]
    norm = {} if bearer.norm is None else {"norm": norm_data(bearer.norm)}
    slope = {"slope": bearer.slope} if "slope" in FUNCTIONS[bearer.function].shaped else {}
    counts = _blocks if residual else _convolutions
    return Architecture(
        RESIDUAL if residual else PLAIN,
        2 if all(size[0] == step[0] == 1 for size, step in zip(sizes, steps, strict=True)) else 3,
        [nodes[edge.target].channels for edge in firsts],
        sizes,
        steps,
        [counts(edges, f"down{level}") for level in range(levels)],
        [_convolutions(edges, f"up{level}") for level in range(levels - 1)],
        {"bias": bearer.bias, "function": bearer.function, **norm, **slope},
    )


def _first(edges: Edges, level: int) -> str:
    """Return the name of the first convolution of a level."""
    block = f"down{level}.block1.conv1"
    return block if block in edges else f"down{level}.conv1"


def _convolutions(edges: Edges, prefix: str) -> int:
    return _count(edges, f"{prefix}.conv{{}}")


def _blocks(edges: Edges, prefix: str) -> int:
    return max(1, _count(edges, f"{prefix}.block{{}}.conv1"))


def _count(edges: Edges, pattern: str) -> int:
    """Return how many names of a pattern, numbered from 1, there are."""
    number = 0
    while pattern.format(number + 1) in edges:
        number += 1
    return number
