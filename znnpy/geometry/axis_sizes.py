"""Solves for the sizes of all nodes along one axis: from wanted outputs back, or from given inputs forward.

Each edge relates the size of its source to that of its target (`layers/sizes.py`). docs/design/geometry.md
says which size is taken where several are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, count, product
from math import ceil, lcm

from znnpy.geometry.axes import AXES, Step
from znnpy.geometry.receptive_field import Lattice
from znnpy.layers.sizes import Sizes, lost_voxels, sees_beyond
from znnpy.network.types import Edge, Network, Node

# Voxels: how far a message looks for a size that one edge takes. A window of that size along one axis is none that
# memory holds, so the search always ends with a size.
MOST = 2**16
Found = dict[str, int]
"""The size of each node along the axis, by name."""
Possible = dict[str, frozenset[int] | None]
"""All sizes of each node that make the wanted outputs; None: any size does, no wanted output depends on the node."""


@dataclass(frozen=True)
class Conflict:
    """The reason why no sizes exist: a message, the node, and the two edges that need different sizes of it.

    `period`: sizes that differ from the given or wanted ones by multiples of so many voxels have the same conflict, as
    long as they are large enough. `sizes`: what each of `edges` needs.
    """

    say: Callable[[], str]
    period: int
    node: str = ""
    edges: tuple[Edge, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The message; made on demand, since a search meets many conflicts and shows one."""
        return self.say()


@dataclass(frozen=True)
class Line:
    """A network along one axis; axes are independent of each other."""

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
        """Whether any edge reads padding."""
        return any(sees_beyond(sizes) for edges in self._outgoing.values() for _, sizes in edges)

    def solved(self, wanted: Mapping[str, int]) -> Found | Conflict:
        """Return sizes of all nodes for which the outputs have the wanted sizes, or the conflict that prevents it.

        Outputs that are not in `wanted` get the size that follows. Of several possible inputs the smallest is
        taken; with padding the largest, preferring multiples of the period (even sizes where padded strides halve).
        """
        possible = self.possible(wanted)
        if isinstance(possible, Conflict):
            return possible
        # The usual case, without padding: going back decides every size, and nothing has to be
        # tried.
        alone = {name: min(sizes) for name, sizes in possible.items() if sizes and len(sizes) == 1}
        if len(alone) == len(possible):
            return alone
        names = [node.name for node in self.network.inputs]
        # Going back each edge was looked at alone; only going forward shows which combination of
        # inputs makes all outputs at once.
        choices = [self._in_order(possible[name] or frozenset()) for name in names]
        whole = self.output_period
        last: Found | Conflict = Conflict(lambda: f"no wanted output sees {names}", whole)
        # In order of preference, so the first that works is the one to take.
        for sizes in product(*choices):
            last = self.made(dict(zip(names, sizes, strict=True)))
            if not isinstance(last, Conflict) and wanted.items() <= last.items():
                return last
        say = last.say if isinstance(last, Conflict) else lambda: "no input makes all outputs"
        return Conflict(say, whole)

    def _in_order(self, sizes: frozenset[int]) -> list[int]:
        """Return sizes of an input in order of preference."""
        if not self._pads:
            return sorted(sizes)
        period = self.lattice.period[self.axis]
        # With padding larger inputs lose nothing that was asked for, and whole periods keep padded
        # strides aligned: 8 voxels of 7 and 8 (docs/design/geometry.md, "Fit").
        return sorted(sizes, key=lambda size: (size % period == 0, size), reverse=True)

    def possible(self, wanted: Mapping[str, int], before: str = "") -> Possible | Conflict:
        """Return for each node all sizes from which every edge that leaves it makes a possible size of its target.

        Goes from the outputs to the inputs and ends before the node named `before`, if any.
        """
        found: Possible = {}
        # Nodes are in topological order, so all targets of a node are known before it is asked.
        for node in reversed(self.network.nodes):
            if node.name == before:
                break
            size = wanted.get(node.name)
            known = None if size is None else frozenset([size])
            first: Edge | None = None
            for edge, sizes in self._outgoing[node.name]:
                target = found[edge.target]
                # No wanted output depends on that target, so it puts no bound on this node.
                if target is None:
                    continue
                sources = frozenset(n for made in target for n in sizes.sources(made))
                if not sources:
                    say = partial(_never, edge, sizes, self.axis, min(target))
                    return Conflict(say, self.output_periods[node.name])
                # `first` is the edge that narrowed `known`; without it the wanted size itself is to
                # blame, and is refused further below.
                if known is not None and first and not known & sources:
                    both, needs = (first, edge), (min(known), min(sources))
                    say = partial(_disagree, node.name, both, needs, "needs", self.axis)
                    return Conflict(say, self.output_periods[node.name], node.name, both, needs)
                known = sources if known is None else known & sources
                first = first or edge
            found[node.name] = known
        return found

    def needs(self, wanted: Mapping[str, int], edges: tuple[Edge, ...]) -> tuple[int, ...]:
        """Return the smallest size that each of these edges needs of their common source; 0 where none exists."""
        found = self.possible(wanted, edges[0].source)
        if isinstance(found, Conflict):
            return tuple(0 for _ in edges)
        sizes = [self.lattice.sizes[edge.name][self.axis] for edge in edges]
        return tuple(
            min((n for size in found[edge.target] or () for n in along.sources(size)), default=0)
            for edge, along in zip(edges, sizes, strict=True)
        )

    def made(self, given: Mapping[str, int]) -> Found | Conflict:
        """Return the sizes of all nodes for inputs of these sizes, or the first conflict on the way forward."""
        found, brought = dict(given), dict[str, Edge]()
        for node in self.network.nodes:
            for edge, sizes in self._outgoing[node.name]:
                size = found[node.name]
                made = sizes.made(size)
                period = self.input_periods[edge.target]
                # A size that leaves a remainder would make `made`, too, but the voxels left over
                # would go unseen.
                if made < 1 or size not in sizes.sources(made):
                    return Conflict(partial(_untaken, edge, sizes, self.axis, size), period)
                if found.setdefault(edge.target, made) != made:
                    both = (brought[edge.target], edge)
                    sizes_ = (found[edge.target], made)
                    say = partial(_disagree, edge.target, both, sizes_, "brings", self.axis)
                    return Conflict(say, period)
                # The first edge into a node sets its size; it is the one that a later edge
                # disagrees with.
                brought.setdefault(edge.target, edge)
        return found

    @property
    def reach(self) -> int:
        """A size of inputs, in voxels, that is large enough for every edge."""
        views = [view[self.axis] for view in self.lattice.views.values()]
        edges = (edge for edges in self._outgoing.values() for edge in edges)
        # Every edge's loss, in input voxels, as if all followed each other: an upper bound for any
        # path.
        lost = sum(lost_voxels(sizes) * self._step(edge.source) for edge, sizes in edges)
        # Two periods: one to reach a whole period from any size, one for the search within it.
        return max(views) + 2 * self.lattice.period[self.axis] + ceil(lost)

    def _step(self, node: str) -> Step:
        return self.lattice.strides[node][self.axis]

    @property
    def output_reach(self) -> int:
        """A size of outputs, in voxels, that is large enough for every edge."""
        return int(self.reach // min(self._output_strides)) + 1

    @property
    def output_period(self) -> int:
        """The number of output voxels after which possible sizes repeat."""
        return self.output_periods[self.network.nodes[0].name]

    @cached_property
    def input_periods(self) -> Mapping[str, int]:
        """By node: the shift of the inputs, in voxels, that moves the node and all before it by whole voxels."""
        return self._periods(self.network.nodes, 1)

    @cached_property
    def output_periods(self) -> Mapping[str, int]:
        """By node: the shift of the outputs, in voxels, that moves the node and all after it by whole voxels."""
        return self._periods(self.network.nodes[::-1], min(self._output_strides))

    def _periods(self, nodes: Sequence[Node], step: Step) -> dict[str, int]:
        strides = [self.lattice.strides[node.name][self.axis] for node in nodes]
        # A shift moves a node by whole voxels if it is a multiple of the numerator of its stride,
        # so nodes passed so far need the least common multiple.
        whole = accumulate((Fraction(stride, step).numerator for stride in strides), lcm)
        return {node.name: period for node, period in zip(nodes, whole, strict=True)}

    @property
    def _output_strides(self) -> list[Step]:
        return [self.lattice.strides[node.name][self.axis] for node in self.network.outputs]


def _never(edge: Edge, sizes: Sizes, axis: int, size: int) -> str:
    # The nearest size on each side, for the message alone.
    below = next((n for n in range(size - 1, 0, -1) if sizes.sources(n)), None)
    above = next((n for n in range(size + 1, size + MOST) if sizes.sources(n)), None)
    nearest = " or ".join(str(n) for n in (below, above) if n is not None)
    why = "; reflect padding is smaller than the image" if edge.border == "reflect" else ""
    return f"edge {edge.name!r} makes {nearest} voxels along {AXES[axis]}, never {size}{why}"


def _untaken(edge: Edge, sizes: Sizes, axis: int, size: int) -> str:
    # Two reasons for a refusal: the size is too small for one target voxel, or it leaves voxels
    # over.
    made, along = sizes.made(size), f"voxels along {AXES[axis]}"
    if made < 1 or not sizes.sources(made):
        # Looked for by what is made, of which the first few voxels are enough however far a filter reaches.
        least = next(sources[0] for n in count(1) if (sources := sizes.sources(n)))
        return f"edge {edge.name!r} takes at least {least} {along}, there are {size}"
    return f"edge {edge.name!r} leaves {size - sizes.sources(made)[-1]} of {size} {along} over"


def _disagree(
    node: str, edges: tuple[Edge, Edge], sizes: tuple[int, int], word: str, axis: int
) -> str:
    first, second = (f"edge {e.name!r} {word} {n}" for e, n in zip(edges, sizes, strict=True))
    return f"node {node!r}: {first} voxels along {AXES[axis]}, {second}"
