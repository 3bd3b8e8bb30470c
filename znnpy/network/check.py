"""Checks nodes and edges and sorts them into a Network; one error lists everything that is wrong."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import chain
from math import prod
from typing import get_args

from znnpy.errors import NetworkError
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS, edge_kind
from znnpy.layers.types import MOST_EDGES
from znnpy.network.parameters import held
from znnpy.network.types import Edge, Network, Node, NodeKind, Norm

Where = Callable[[str], str]
"""Returns file and line of the node or edge of that name; empty if it has none."""

# Names become names of files and of datasets: no separator, nothing that a terminal would act upon, and with a suffix
# still within the 255 bytes of a file's name where they are ASCII.
_NAME = re.compile(r"[^\s/\x00-\x1f\x7f]{1,200}")


def no_place(_: str) -> str:
    """Return no place, for networks that come from no file."""
    return ""


def checked_network(
    nodes: Sequence[Node], edges: Sequence[Edge], where: Where = no_place
) -> Network:
    """Return the network with its nodes in topological order; edges keep their order.

    Among nodes that could come next, the one given first comes first: the order depends on the file alone.
    Raises a NetworkError that lists every problem, each with its node or edge and its place.
    """
    if max(len(nodes), len(edges)) > MOST_EDGES:
        has = f"the network has {len(nodes):,} nodes and {len(edges):,} edges"
        _refuse([("", f"{has}; at most {MOST_EDGES:,} of each are taken")], where)
    _refuse(chain(_naming(nodes, edges), _words(nodes, edges), _ends(nodes, edges)), where)
    ordered = _topological(nodes, edges, where)
    network = Network(tuple(ordered), tuple(edges))
    _refuse(_meaning(network), where)
    return network


def _refuse(problems: Iterable[tuple[str, str]], where: Where) -> None:
    lines = []
    for name, message in problems:
        place = where(name)
        lines.append(f"{place}: {message}" if place else message)
    if lines:
        raise NetworkError("\n".join(lines))


def _naming(nodes: Sequence[Node], edges: Sequence[Edge]) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    for kind, name in [("node", n.name) for n in nodes] + [("edge", e.name) for e in edges]:
        if not _NAME.fullmatch(name) or set(name) == {"."}:
            text = "a name is 1 to 200 characters without spaces and '/'"
            yield name, f"{kind} '{name[:60]}': {text}"
        if name in seen:
            yield name, f"{kind} '{name}': the name is taken; nodes and edges share their names"
        seen.add(name)
    for node in nodes:
        for name in held(node):
            if name in seen:
                kept = f"it is that of what node '{node.name}' keeps"
                yield name, f"'{name}': the name is taken; {kept}"


def _words(nodes: Sequence[Node], edges: Sequence[Edge]) -> Iterable[tuple[str, str]]:
    """Yield unknown kinds and functions, of networks that no config has checked."""
    said: list[tuple[str, str, str, str, list[str]]]
    said = [("edge", e.name, "kind", e.kind, [*EDGE_KINDS]) for e in edges]
    said += [("node", n.name, "kind", n.kind, [*get_args(NodeKind)]) for n in nodes]
    said += [("node", n.name, "function", n.function, [*FUNCTIONS]) for n in nodes]
    for what, name, key, word, known in said:
        if word not in known:
            yield name, f"{what} '{name}': {key} is '{word}' (allowed: {', '.join(known)})"


def _ends(nodes: Sequence[Node], edges: Sequence[Edge]) -> Iterable[tuple[str, str]]:
    by_name = {node.name: node for node in nodes}
    for edge in edges:
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in by_name:
                yield (
                    edge.name,
                    f"edge '{edge.name}': {end} '{name}' is no node{_near(name, by_name)}",
                )
        target = by_name.get(edge.target)
        if target is not None and target.kind == "input":
            yield edge.name, f"edge '{edge.name}': leads into '{target.name}', an input node"
    reached = {edge.target for edge in edges}
    left = {edge.source for edge in edges}
    if not any(node.kind == "input" for node in nodes):
        yield "", "the network has no input node"
    # A node that an edge was meant for looks unconnected only because the edge misspells it.
    meant = {
        near
        for name in (reached | left) - set(by_name)
        for near in get_close_matches(name, list(by_name), n=1)
    }
    for node in nodes:
        if node.name in meant:
            continue
        if node.kind != "input" and node.name not in reached:
            yield node.name, f"node '{node.name}': no edge leads to it"
        if node.kind == "input" and node.name not in left:
            yield node.name, f"node '{node.name}': no edge leaves this input"


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f" (nodes: {', '.join(list(names)[:12])})"


def _topological(nodes: Sequence[Node], edges: Sequence[Edge], where: Where) -> list[Node]:
    """Return the nodes in topological order by Kahn's algorithm, the earliest given node first."""
    index = {node.name: i for i, node in enumerate(nodes)}
    waiting = [0] * len(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    for edge in edges:
        waiting[index[edge.target]] += 1
        after[index[edge.source]].append(index[edge.target])
    ready = [i for i, count in enumerate(waiting) if count == 0]
    ordered = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(ordered) < len(nodes):
        _refuse([_cycle({n.name for n in nodes} - {n.name for n in ordered}, edges)], where)
    return ordered


def _cycle(left: set[str], edges: Sequence[Edge]) -> tuple[str, str]:
    """Return a problem that names one cycle, found by walking backwards until a node returns."""
    before = {e.target: e.source for e in reversed(edges) if {e.source, e.target} <= left}
    path = [min(left)]
    while path.count(path[-1]) < 2:
        path.append(before[path[-1]])
    cycle = path[path.index(path[-1]) :][::-1]
    start = cycle.index(min(cycle))
    cycle = [*cycle[start:-1], *cycle[:start], cycle[start]]
    return cycle[0], f"node '{cycle[0]}': in a cycle, {' -> '.join(cycle)}; edges must lead forward"


def _meaning(network: Network) -> Iterable[tuple[str, str]]:
    for edge in network.edges:
        for text in _edge_meaning(edge, network.node(edge.source), network.node(edge.target)):
            yield edge.name, f"edge '{edge.name}': {text}"
    for node in network.nodes:
        for text in _node_meaning(network, node):
            yield node.name, f"node '{node.name}': {text}"


def _edge_meaning(edge: Edge, source: Node, target: Node) -> Iterable[str]:
    if any(size % block for size, block in zip(edge.size, edge.repeat, strict=True)):
        yield f"repeat {edge.repeat} must divide the filter's size {edge.size}, z y x"
    yield from edge_kind(edge.kind).wrong(edge)
    if source.channels % edge.groups or target.channels % edge.groups:
        counts = (
            f"{source.channels} of '{source.name}' and the {target.channels} of '{target.name}'"
        )
        yield f"groups {edge.groups} must divide the channels, the {counts}"
    if edge.weight_standardization and source.channels // edge.groups * prod(edge.size) < 2:
        yield "weight_standardization makes a filter of a single weight 0; take it away"
    if edge_kind(edge.kind).learns:
        if target.kind in ("concat", "max", "product"):
            into = f"the {target.kind} node '{target.name}'"
            yield f"a {edge.kind} cannot enter {into}; put a sum node between"
        return
    kind, wanted = edge_kind(edge.kind), target.channels
    if kind.channels and source.channels % prod(edge.factor):
        block = f"{prod(edge.factor)}, the voxels of a block"
        yield f"the {source.channels} channels of '{source.name}' are no multiple of {block}"
    elif target.kind != "concat" and kind.channels:
        if (made := kind.channels(edge, source.channels)) != wanted:
            yield f"{edge.kind} makes {made} channels of {source.channels}, but '{target.name}' has {wanted}"
    elif target.kind != "concat" and source.channels != target.channels:
        counts = f"'{source.name}' has {source.channels}, '{target.name}' {target.channels}"
        yield f"{edge.kind} keeps the number of channels, but {counts}"


def _node_meaning(network: Network, node: Node) -> Iterable[str]:
    if node.kind == "concat":
        arriving = [
            edge_kind(e.kind).brings(e, network.node(e.source).channels, node.channels)
            for e in network.incoming(node.name)
        ]
        if sum(arriving) != node.channels:
            parts = " + ".join(map(str, arriving))
            yield f"has {node.channels} channels, but {parts} = {sum(arriving)} arrive"
    if node.tied and "tied" not in FUNCTIONS[node.function].shaped:
        yield f"tied is for slopes that are learned, of prelu; the function is {node.function}"
    if node.norm is not None:
        yield from _norm_meaning(node, node.norm)
    if not FUNCTIONS[node.function].pointwise and node.channels < 2:
        yield f"{node.function} needs at least 2 channels"


def _norm_meaning(node: Node, norm: Norm) -> Iterable[str]:
    if node.kind != "transfer":
        yield f"only a transfer node is normalised; this is {node.kind}"
    parts = norm.parts(node.channels)
    if norm.adds and not norm.affine:
        yield f"norm: {norm.kind} without its scale changes nothing; take affine: true"
    if norm.kind == "channel" and node.channels < 2:
        yield "norm: channel makes a single channel 0; it needs at least 2"
    if node.channels % parts:
        fitting = [n for n in range(1, node.channels + 1) if node.channels % n == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(n - parts))[:2])
        words = " or ".join(map(str, near))
        yield f"norm: {parts} groups do not divide its {node.channels} channels; {words} would"
