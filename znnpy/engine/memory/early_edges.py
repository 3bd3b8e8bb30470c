"""When edges that others add to are computed: between their source and target, where least memory is needed.

Right behind its source such an edge lets that go; but where other readers of the source are about to make large
images of their own, all of them stand beside the source at once, and a moment later may be better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.tensor_aliases import is_early, sum_in_place
from znnpy.network.types import Edge

Lives = Mapping[str, tuple[int, int]]
"""The first and the last moment of memory by its node."""


def early_edges(layout: Layout) -> dict[str, tuple[Edge, ...]]:
    """Return by node the edges to be computed once it has its values; the first of the moments that are equally good.

    By the bytes of nodes alone, as nodes are computed one after the other; edges are looked at in their order.
    """
    found = {e.name: e for e in layout.network.edges if is_early(layout, e)}
    if not found:
        return {}
    order = {node.name: number for number, node in enumerate(layout.network.nodes)}
    memory = {name: _memory(layout, name) for name in order}
    sizes = {name: _bytes(layout, name) for name in {*memory.values()}}
    places = {name: order[edge.source] for name, edge in found.items()}
    for name, edge in found.items():
        moments = range(order[edge.source], order[edge.target])
        first, last = (
            _lives(layout, order, memory, {**places, name: at}) for at in (moments[0], moments[-1])
        )
        ends = memory[edge.source], memory[edge.target]
        places[name] = min(moments, key=lambda at: _peak(_between(first, last, ends, at), sizes))
    behind = dict[str, tuple[Edge, ...]]()
    for name, at in places.items():
        node = layout.network.nodes[at].name
        behind[node] = (*behind.get(node, ()), found[name])
    return behind


def _lives(
    layout: Layout, order: Mapping[str, int], memory: Mapping[str, str], early: Mapping[str, int]
) -> Lives:
    """Return the lives of memory, if each early edge is computed behind a node.

    There are two moments of each node: it is made, and what is early is made behind it.
    """
    lives = dict[str, tuple[int, int]]()
    for name, number in order.items():
        leaving, arriving = layout.network.outgoing(name), layout.network.incoming(name)
        ends = [2 * early[e.name] + 1 if e.name in early else 2 * order[e.target] for e in leaving]
        starts = [2 * early[e.name] + 1 for e in arriving if e.name in early]
        own = min(starts, default=2 * number), max(ends, default=2 * len(order))
        first, last = lives.get(memory[name], own)
        lives[memory[name]] = min(first, own[0]), max(last, own[1])
    return lives


def _between(first: Lives, last: Lives, ends: tuple[str, str], at: int) -> Lives:
    """Return the lives if an edge is computed behind a node, from those if that is the first or the last possible.

    `ends`: the memory of the edge's source, which it needs until then, and of its target, which it needs from then on.
    """
    source, target = ends
    lives = {
        target: (min(last[target][0], 2 * at + 1), last[target][1]),
        source: (first[source][0], max(first[source][1], 2 * at + 1)),
    }
    # In one memory it is needed all the time.
    return {**first, **(lives if source != target else {})}


def _peak(lives: Lives, sizes: Mapping[str, int]) -> int:
    """Return the most bytes that are needed at a moment."""
    changes = Counter[int]()
    for name, (first, last) in lives.items():
        changes[first] += sizes[name]
        changes[last + 1] -= sizes[name]
    return max(accumulate(changes[moment] for moment in sorted(changes)))


def _memory(layout: Layout, name: str) -> str:
    """Return the node in whose memory a node's values lie."""
    home = layout.home(name)
    target = home.target if home else sum_in_place(layout, name)
    return name if target is None else _memory(layout, target)


def _bytes(layout: Layout, name: str) -> int:
    """Return the bytes of a node with what stands around it."""
    lanes = layout.lanes(name)
    sides = zip(layout.shape(name), layout.frame(name), strict=True)
    channels = -(-layout.network.node(name).channels // lanes) * lanes
    found = 4 * layout.batch * channels
    for voxels, (before, after) in sides:
        found *= before + voxels + after
    return found
