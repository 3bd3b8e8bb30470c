"""Sizes of all nodes along one axis: which make the wanted outputs, and what given inputs make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import lcm

from znnpy.geometry.axes import AXES, Step
from znnpy.geometry.lattice import Lattice
from znnpy.layers.sizes import Sizes, sees_beyond
from znnpy.network.types import Edge, Network

MOST = 2**16  # voxels beyond which no size is looked for that one edge takes
Found = dict[str, int]
Possible = dict[str, frozenset[int] | None]
"""Sizes of a node that make what is wanted; None: any, for nodes of which nothing is wanted."""


@dataclass(frozen=True)
class Conflict:
    """Why there are no sizes: in words, and the node and the edges that need different sizes of it."""

    words: str
    node: str = ""
    edges: tuple[Edge, ...] = ()
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Line:
    """A network along one axis."""

    network: Network
    lattice: Lattice
    axis: int

    @cached_property
    def _outgoing(self) -> Mapping[str, list[tuple[Edge, Sizes]]]:
        found: dict[str, list[tuple[Edge, Sizes]]] = {n.name: [] for n in self.network.nodes}
        for edge in self.network.edges:
            found[edge.source].append((edge, self.lattice.sizes[edge.name][self.axis]))
        return found

    @cached_property
    def _pads(self) -> bool:
        """Whether voxels beyond an image are seen."""
        return any(sees_beyond(sizes) for edges in self._outgoing.values() for _, sizes in edges)

    def solved(self, wanted: Mapping[str, int]) -> Found | Conflict:
        """Sizes of all nodes that make the wanted ones of outputs, which get the size that follows if none is wanted.

        Of several possible inputs the smallest; with padding the largest, of those that are whole periods if
        any is: even ones where padded strides halve.
        """
        possible = self.possible(wanted)
        if isinstance(possible, Conflict):
            return possible
        alone = {name: min(sizes) for name, sizes in possible.items() if sizes and len(sizes) == 1}
        if len(alone) == len(possible):
            return alone
        names = [node.name for node in self.network.inputs]
        choices = [self._in_order(possible[name] or frozenset()) for name in names]
        last: Found | Conflict = Conflict(f"no wanted output sees {names}")
        for sizes in product(*choices):
            last = self.made(dict(zip(names, sizes, strict=True)))
            if not isinstance(last, Conflict) and wanted.items() <= last.items():
                return last
        return last if isinstance(last, Conflict) else Conflict("no input makes all outputs")

    def _in_order(self, sizes: frozenset[int]) -> list[int]:
        """Sizes of an input, the one to take first."""
        if not self._pads:
            return sorted(sizes)
        period = self.lattice.period[self.axis]
        return sorted(sizes, key=lambda size: (size % period == 0, size), reverse=True)

    def possible(self, wanted: Mapping[str, int], before: str = "") -> Possible | Conflict:
        """For each node the sizes of which every edge that leaves it makes one that is possible.

        `before`: the node, from the outputs on, before which to end.
        """
        found: Possible = {}
        for node in reversed(self.network.nodes):
            if node.name == before:
                break
            size = wanted.get(node.name)
            known = None if size is None else frozenset([size])
            first: Edge | None = None
            for edge, sizes in self._outgoing[node.name]:
                target = found[edge.target]
                if target is None:
                    continue
                sources = frozenset(n for made in target for n in sizes.sources(made))
                if not sources:
                    return Conflict(_never(edge, sizes, self.axis, min(target)))
                if known is not None and first and not known & sources:
                    needs = (min(known), min(sources))
                    words = _disagree(node.name, (first, edge), needs, "needs", self.axis)
                    return Conflict(words, node.name, (first, edge), needs)
                known = sources if known is None else known & sources
                first = first or edge
            found[node.name] = known
        return found

    def needs(self, wanted: Mapping[str, int], edges: tuple[Edge, ...]) -> tuple[int, ...]:
        """The smallest size that each of some edges needs of the node that they leave; 0 if there is none."""
        found = self.possible(wanted, edges[0].source)
        if isinstance(found, Conflict):
            return tuple(0 for _ in edges)
        sizes = [self.lattice.sizes[edge.name][self.axis] for edge in edges]
        return tuple(
            min((n for size in found[edge.target] or () for n in along.sources(size)), default=0)
            for edge, along in zip(edges, sizes, strict=True)
        )

    def made(self, given: Mapping[str, int]) -> Found | Conflict:
        """Sizes of all nodes that inputs of these sizes make."""
        found, brought = dict(given), dict[str, Edge]()
        for node in self.network.nodes:
            for edge, sizes in self._outgoing[node.name]:
                size = found[node.name]
                made = sizes.made(size)
                if made < 1 or size not in sizes.sources(made):
                    return Conflict(_untaken(edge, sizes, self.axis, size))
                if found.setdefault(edge.target, made) != made:
                    both = (brought[edge.target], edge)
                    sizes_ = (found[edge.target], made)
                    return Conflict(_disagree(edge.target, both, sizes_, "brings", self.axis))
                brought.setdefault(edge.target, edge)
        return found

    @property
    def reach(self) -> int:
        """Input voxels within which sizes are possible again, if any are."""
        views = [view[self.axis] for view in self.lattice.views.values()]
        return max(views) + 2 * self.lattice.period[self.axis]

    @property
    def output_reach(self) -> int:
        """Output voxels within which sizes are possible again, if any are."""
        return int(self.reach // min(self._output_strides)) + 1

    @property
    def output_period(self) -> int:
        """Sizes of outputs that are possible come again after so many voxels."""
        period = self.lattice.period[self.axis]
        return lcm(*(int(period // step) for step in self._output_strides))

    @property
    def _output_strides(self) -> list[Step]:
        return [self.lattice.strides[node.name][self.axis] for node in self.network.outputs]


def _never(edge: Edge, sizes: Sizes, axis: int, size: int) -> str:
    below = next((n for n in range(size - 1, 0, -1) if sizes.sources(n)), None)
    above = next((n for n in range(size + 1, size + MOST) if sizes.sources(n)), None)
    nearest = " or ".join(str(n) for n in (below, above) if n is not None)
    why = "; reflect padding is smaller than the image" if edge.border == "reflect" else ""
    return f"edge {edge.name!r} makes {nearest} voxels along {AXES[axis]}, never {size}{why}"


def _untaken(edge: Edge, sizes: Sizes, axis: int, size: int) -> str:
    made, along = sizes.made(size), f"voxels along {AXES[axis]}"
    if made < 1 or not sizes.sources(made):
        more = ((n, sizes.made(n)) for n in range(size + 1, size + MOST))
        least = next(n for n, made in more if made > 0 and n in sizes.sources(made))
        return f"edge {edge.name!r} takes at least {least} {along}, there are {size}"
    return f"edge {edge.name!r} leaves {size - sizes.sources(made)[-1]} of {size} {along} over"


def _disagree(
    node: str, edges: tuple[Edge, Edge], sizes: tuple[int, int], word: str, axis: int
) -> str:
    first, second = (f"edge {e.name!r} {word} {n}" for e, n in zip(edges, sizes, strict=True))
    return f"node {node!r}: {first} voxels along {AXES[axis]}, {second}"
