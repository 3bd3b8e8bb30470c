"""A finished sketch as the `nodes` and `edges` of a config, and its parameters by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from znnpy.errors import ModelFileError, ZnnpyError
from znnpy.geometry.receptive_field import lattice_of
from znnpy.interop.operators.fusion import fused
from znnpy.interop.operators.sketch import Bench, Floats, Sketch, plain_name
from znnpy.interop.operators.value import Value
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.network import load_network
from znnpy.network.parameters import parameter_shapes
from znnpy.network.types import Network, Triple


@dataclass(frozen=True)
class Described:
    """A net: `section` as in a config, the network that it means, its parameters, and those to freeze by name.

    `shapes`: sizes of the outputs, (z, y, x) by name, for the example that it was read with.
    `origin`: the class that it is, as `classes.origin` says it.
    """

    section: Mapping[str, Any]
    network: Network
    parameters: Mapping[str, Floats]
    frozen: tuple[str, ...]
    shapes: Mapping[str, Triple]
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] | None = None


def described(sketch: Sketch, outputs: Mapping[str, Value]) -> Described:
    """Return a sketch's net, whose outputs get these names; ModelFileError for what cannot be said."""
    sketch.at = ""
    ends = _outputs(sketch, outputs)
    fused(sketch, list(ends))
    for name, bench in sketch.nodes.items():
        if bench.keys.get("function", "linear") not in FUNCTIONS:
            raise ModelFileError(f"{name}: {bench.keys['function']} by itself is not supported")
    _name_outputs(sketch, ends)
    _write_factors(sketch)
    nodes = {name: _node_keys(bench) for name, bench in sketch.nodes.items()}
    edges = {
        name: {
            "kind": link.kind,
            "from": link.source,
            "to": link.target,
            **link.keys,
            **({} if link.filters is None or link.learns else {"learn": False}),
        }
        for name, link in sketch.links.items()
    }
    try:
        network = load_network({"nodes": nodes, "edges": edges})
        # In the order of the data, for people who read it.
        order = {node.name: place for place, node in enumerate(network.nodes)}
        nodes = {name: nodes[name] for name in order}
        edges = dict(sorted(edges.items(), key=lambda edge: order[edge[1]["to"]]))
        network = load_network({"nodes": nodes, "edges": edges})
        lattice_of(network)
    except ZnnpyError as error:
        raise ModelFileError("; ".join(str(error).split("\n"))) from error
    parameters, frozen = _parameters(sketch)
    for name, shape in parameter_shapes(network).items():
        if name not in parameters or parameters[name].shape != shape:
            found = parameters[name].shape if name in parameters else "none"
            raise ModelFileError(f"{name}: its values have shape {found}, and {shape} by the net")
        if not np.isfinite(parameters[name]).all():
            raise ModelFileError(f"{name}: has values that are not finite")
    shapes = {node.name: sketch.nodes[node.name].size for node in network.outputs}
    return Described(
        {"nodes": nodes, "edges": edges}, network, parameters, frozen, shapes, _notes(sketch)
    )


def _notes(sketch: Sketch) -> tuple[str, ...]:
    """Return a line for each note, with the first operator of which it is said."""
    found = []
    for text, places in sketch.notes.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        found.append(f"{places[0]}{more}: {text}")
    return tuple(found)


def _outputs(sketch: Sketch, outputs: Mapping[str, Value]) -> dict[str, str]:
    """Return wanted names by node; a node that others read, or that is an output twice, gets one more behind it."""
    read, ends = {link.source for link in sketch.links.values()}, dict[str, str]()
    nodes = [value.node for value in outputs.values()]
    for name, value in outputs.items():
        sketch.at = f"output {name}"
        if not value.plain or value.spread:
            raise sketch.wrong(f"of shape {value.seen} is not supported: channels at voxels are")
        node = value.node
        if node in read or nodes.count(node) > 1 or sketch.nodes[node].kind == "input":
            made = sketch.node(f"{name}.value", "sum", value)
            sketch.link(f"{name}.in", value, made)
            node = made.node
        ends[node] = name
    sketch.at = ""
    return ends


def _name_outputs(sketch: Sketch, ends: Mapping[str, str]) -> None:
    # All of them give their own names up first: one may have another's, or the one that it gets.
    found = {node: sketch.nodes.pop(node) for node in ends}
    for wanted in ends.values():
        _free(sketch, wanted)
    names = dict[str, str]()
    for node, wanted in ends.items():
        names[node] = sketch.name(wanted)
        sketch.nodes[names[node]] = found[node]
    for link in sketch.links.values():
        link.target = names.get(link.target, link.target)


def _free(sketch: Sketch, wanted: str) -> None:
    """Give another name to a node that has an output's: nobody looks for it. Edges keep theirs, which weights have."""
    name = plain_name(wanted)
    if name in sketch.nodes:
        other = sketch.name(f"{name}.inner")
        sketch.nodes[other] = sketch.nodes.pop(name)
        for link in sketch.links.values():
            link.source = other if link.source == name else link.source
            link.target = other if link.target == name else link.target


def _write_factors(sketch: Sketch) -> None:
    """Turn factors of channels that no norm took up into filters of one voxel for each channel."""
    for name, bench in sketch.nodes.items():
        if bench.factor is None:
            continue
        link = next(link for link in sketch.links.values() if link.target == name)
        link.kind, link.keys = "conv", {"size": [1, 1, 1]}
        if bench.channels > 1:
            link.keys["groups"] = bench.channels
        link.filters, link.learns = bench.factor.reshape(-1, 1, 1, 1, 1), bench.learns


def _node_keys(bench: Bench) -> dict[str, Any]:
    keys: dict[str, Any] = {"kind": bench.kind, "channels": bench.channels, **bench.keys}
    if bench.kind == "transfer":
        keys["bias"] = "bias" in bench.arrays
        if _fixed(bench):
            keys["learn"] = False
    return keys


def _fixed(bench: Bench) -> bool:
    """Return whether nothing that a node keeps learns; a fixed bias beside what learns is frozen by its name."""
    return not bench.learns and [*bench.arrays] == ["bias"]


def _parameters(sketch: Sketch) -> tuple[dict[str, Floats], tuple[str, ...]]:
    found, frozen = dict[str, Floats](), list[str]()
    for name, link in sketch.links.items():
        if link.filters is not None:
            found[name] = np.ascontiguousarray(link.filters, np.float32)
    for name, bench in sketch.nodes.items():
        for what, array in bench.arrays.items():
            own = name if what == "bias" else f"{name}.{what}"
            found[own] = np.ascontiguousarray(array, np.float32)
            if not bench.learns and what == "bias" and not _fixed(bench):
                frozen.append(own)
    return found, tuple(frozen)
