"""Strides, dilations, period and receptive field (field of view) of a network: all that sizes do not change.

"Sparsity" is ZNN's word for dilation that a node hands on: a max_filter with stride s makes all later filters
dilated by s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import NetworkError
from znnpy.geometry.axes import AXES, ONE, Steps, describe, scale, whole
from znnpy.layers.edges import edge_kind
from znnpy.layers.sizes import AllSizes, Sizes
from znnpy.network.types import Edge, Network, Triple

S = TypeVar("S", bound=Steps)
Places = NDArray[np.int64]
# Networks: a run has a handful (as written, as trained, dense, folded), which callers ask about again and again.
KEPT = 16
# Voxels: a volume of as many along each axis has 2 TiB in float32, more than a machine that trains has.
MOST_APART = 2**13


@dataclass(frozen=True)
class Lattice:
    """The part of a network's geometry that does not depend on sizes; all triples z, y, x.

    `sparsities`, `strides` by node and `dilations`, `sizes` by edge: see `NodeGeometry` and `Geometry`.
    `period`: the smallest shift of the inputs, in voxels, that moves every node by whole voxels. `views`: the
    receptive field by input.
    """

    sparsities: Mapping[str, Triple]
    dilations: Mapping[str, Triple]
    sizes: Mapping[str, AllSizes]
    strides: Mapping[str, Steps]
    period: Triple
    views: Mapping[str, Triple]


@lru_cache(KEPT)
def lattice_of(network: Network) -> Lattice:
    """Return the lattice of a network.

    Raises NetworkError where edges that converge disagree on stride or sparsity, where an output is finer than the
    input, and where voxels or the period lie more than `MOST_APART` apart.
    """
    # Refused in this order, since each step takes what the one before has checked: the sizes of an
    # edge grow with its dilation, and fields of view with the period.
    sparsities, dilations = _sparsities(network)
    _refuse_far_apart(dilations, "edge {!r}: the taps of its filter")
    _refuse_far_apart(sparsities, "node {!r}: the voxels that what follows sees")
    sizes = {e.name: edge_kind(e.kind).sizes(e, dilations[e.name]) for e in network.edges}
    _refuse_steps_on_sparse(network, sparsities, sizes)
    strides = _strides(network, sizes)
    period = _period(strides)
    if max(period) > MOST_APART:
        raise NetworkError(
            f"the steps of its strides agree every {describe(period)} input voxels (z, y, x) only, more than "
            f"{MOST_APART} along an axis; let them be multiples of each other"
        )
    along = [_views(network, sizes, axis, strides, period[axis]) for axis in range(3)]
    views = {n.name: (along[0][n.name], along[1][n.name], along[2][n.name]) for n in network.inputs}
    return Lattice(sparsities, dilations, sizes, strides, period, views)


def _sparsities(network: Network) -> tuple[dict[str, Triple], dict[str, Triple]]:
    sparsities: dict[str, Triple] = {}
    dilations: dict[str, Triple] = {}
    for node in network.nodes:
        found: dict[Triple, str] = {}
        for edge in network.incoming(node.name):
            inherited = sparsities[edge.source]
            dilations[edge.name] = scale(inherited, edge.sparsity)
            # The first edge that brings a value stands for it in an error.
            found.setdefault(scale(inherited, edge.sparsens), edge.name)
        sparsities[node.name] = _agreed(found, node.name, "sparsity") or ONE
    return sparsities, dilations


def _refuse_far_apart(distances: Mapping[str, Steps], what: str) -> None:
    """Refuse networks that no machine has memory for; their sizes would also take long to find."""
    for name, apart in distances.items():
        # Both ends of a fraction: upsampling far below the input's voxels is as hopeless as far
        # above.
        if any(max(step.numerator, step.denominator) > MOST_APART for step in apart):
            raise NetworkError(
                f"{what.format(name)} lie {describe(apart)} voxels apart (z, y, x), beyond {MOST_APART} or "
                f"1/{MOST_APART} along an axis; take fewer or smaller steps"
            )


def _refuse_steps_on_sparse(
    network: Network, sparsities: Mapping[str, Triple], sizes: Mapping[str, AllSizes]
) -> None:
    """Refuse strides and upsampling after a max_filter or sparsens: a stride would skip the voxels that dilated
    filters read.
    """
    for edge in network.edges:
        for axis, along, sparsity in zip(
            AXES, sizes[edge.name], sparsities[edge.source], strict=True
        ):
            if sparsity > 1 and (along.shrinks > 1 or along.grows > 1):
                what = "stride" if along.shrinks > 1 else "growth"
                raise NetworkError(
                    f"edge {edge.name!r}: {what} {along.shrinks * along.grows} along {axis} follows a "
                    f"max_filter or sparse layer (sparsity {sparsity}); use max_pool and stride "
                    "throughout, or none"
                )


def _strides(network: Network, sizes: Mapping[str, AllSizes]) -> dict[str, Steps]:
    strides: dict[str, Steps] = {}
    for node in network.nodes:
        found: dict[Steps, str] = {}
        # Reversed, so that the first edge with a value overwrites the others and names it in
        # errors.
        for edge in reversed(network.incoming(node.name)):
            z, y, x = (
                # Exact: a float would make 3 * (1 / 3) differ from 1, and paths disagree that do
                # not.
                whole(before * Fraction(along.shrinks, along.grows))
                for before, along in zip(strides[edge.source], sizes[edge.name], strict=True)
            )
            found[z, y, x] = edge.name
        strides[node.name] = _agreed(found, node.name, "stride") or ONE
    _refuse_far_apart(strides, "node {!r}: its voxels")
    for node in network.outputs:
        if any(isinstance(step, Fraction) for step in strides[node.name]):
            raise NetworkError(
                f"node {node.name!r}: its voxels lie {describe(strides[node.name])} input voxels apart "
                "(z, y, x), but those of an output lie whole numbers apart; let it grow less"
            )
    return strides


def _agreed(found: Mapping[S, str], node: str, what: str) -> S | None:
    """Return the value on which all edges into a node agree, None for inputs; NetworkError if they differ."""
    if len(found) > 1:
        (first, name), (second, other) = list(found.items())[:2]
        raise NetworkError(
            f"node {node!r}: edges that converge must have one {what}, but {name!r} brings "
            f"{describe(first)} and {other!r} brings {describe(second)}"
        )
    return next(iter(found), None)


def _period(strides: Mapping[str, Steps]) -> Triple:
    """Return the period: a shift moves a node by whole voxels if the numerator of its stride divides it."""
    z, y, x = (
        lcm(*(step.numerator for step in along)) for along in zip(*strides.values(), strict=True)
    )
    return (z, y, x)


def _views(
    network: Network,
    sizes: Mapping[str, AllSizes],
    axis: int,
    strides: Mapping[str, Steps],
    period: int,
) -> dict[str, int]:
    """Return the receptive field along one axis, by input: the most voxels that any place in a period sees."""
    edges = [(edge, sizes[edge.name][axis]) for edge in _backwards(network)]
    found = dict.fromkeys((node.name for node in network.inputs), 0)
    for output in network.outputs:
        # Behind a period everything repeats, so these places show the largest field of view
        # exactly.
        places = np.arange(int(period // strides[output.name][axis]))
        seen = _seen(edges, output.name, places)
        for name in found.keys() & seen.keys():
            low, high = seen[name]
            found[name] = max(found[name], int((high - low).max()) + 1)
    return found


def _backwards(network: Network) -> Iterator[Edge]:
    """Yield all edges from the outputs to the inputs: those into a node before those into its sources."""
    for node in reversed(network.nodes):
        # Topological order backwards: all readers of a node have been followed before its own edges
        # are.
        yield from network.incoming(node.name)


def _seen(
    edges: list[tuple[Edge, Sizes]], output: str, places: Places
) -> dict[str, tuple[Places, Places]]:
    """Return by node the first and last voxel that each of these output voxels sees."""
    seen = {output: (places, places)}
    for edge, along in edges:
        if edge.target in seen:
            low, high = along.seen(*seen[edge.target])
            before = seen.get(edge.source, (low, high))
            # Paths that part and meet again see the union of what each sees.
            seen[edge.source] = (np.minimum(low, before[0]), np.maximum(high, before[1]))
    return seen
