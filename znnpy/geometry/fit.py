"""Exact shapes of every image in a network for a wanted output, and what one output voxel sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import TypeVar

from znnpy.errors import NetworkError, ShapeError
from znnpy.geometry.axes import AXES, Steps, describe, scale, whole
from znnpy.layers.edges import edge_kind
from znnpy.network.types import Edge, Network, Triple

ONE: Triple = (1, 1, 1)
S = TypeVar("S", bound=Steps)
Extent = int | Triple
"""Voxels z, y, x; one number stands for all three."""


@dataclass(frozen=True)
class NodeGeometry:
    """Where a node's voxels lie; all triples z, y, x.

    `shape`: voxels of one image. `sparsity`: distance, in voxels of this node, between the inputs of
    what follows. `stride`: distance, in input voxels, between neighbouring voxels of this node; a
    fraction where images have grown.
    """

    shape: Triple
    sparsity: Triple
    stride: Steps


@dataclass(frozen=True)
class Geometry:
    """Shapes for one network and one output size.

    `nodes` by node name; `dilations` by edge name: the distance between the taps of a filter or
    window, inherited sparsity included; `field_of_view` by input node: how many input voxels along
    z, y, x one voxel of any output sees.
    """

    nodes: Mapping[str, NodeGeometry]
    dilations: Mapping[str, Triple]
    input_shapes: Mapping[str, Triple]
    output_shapes: Mapping[str, Triple]
    fields_of_view: Mapping[str, Triple]

    def output_stride(self, name: str) -> Triple:
        """Distance, in input voxels, between neighbouring voxels of an output node."""
        z, y, x = (int(step) for step in self.nodes[name].stride)
        return (z, y, x)

    def output_offset(self, name: str) -> Triple:
        """First voxel of the output patch inside input `name`'s patch, by centring: (fov - 1) // 2."""
        z, y, x = self.fields_of_view[name]
        return ((z - 1) // 2, (y - 1) // 2, (x - 1) // 2)


def fit(network: Network, output_shape: Extent | Mapping[str, Extent]) -> Geometry:
    """Shapes of all nodes so that every output has the wanted shape (z, y, x), by valid operations.

    One number stands for all three. Raises NetworkError when converging paths disagree, naming both
    and the crop that would mend it.
    """
    wanted = wanted_shapes(network, output_shape)
    sparsities, dilations = _sparsities(network)
    shapes = _shapes(network, wanted, dilations)
    single = dict.fromkeys(wanted, ONE)
    try:
        seen = _shapes(network, single, dilations)
    except NetworkError:
        seen = shapes  # outputs of different size: no common voxel, report the whole patch
    strides = _strides(network, dilations)
    nodes = {
        node.name: NodeGeometry(shapes[node.name], sparsities[node.name], strides[node.name])
        for node in network.nodes
    }
    return Geometry(
        nodes=nodes,
        dilations=dilations,
        input_shapes={node.name: shapes[node.name] for node in network.inputs},
        output_shapes={node.name: shapes[node.name] for node in network.outputs},
        fields_of_view={node.name: seen[node.name] for node in network.inputs},
    )


def fit_input(network: Network, input_shape: Triple) -> Geometry:
    """Shapes for inputs of one given shape (z, y, x); refuses shapes that leave a remainder.

    Raises ShapeError with the nearest possible input shapes.
    """
    base = fit(network, ONE)
    steps = _output_strides(network, base)
    output, below, above = [], [], []
    view = tuple(max(axis) for axis in zip(*base.fields_of_view.values(), strict=True))
    for size, seen, step in zip(input_shape, view, steps, strict=True):
        count = max(0, (size - seen) // step) + 1
        output.append(count)
        below.append(seen + (count - 1) * step)
        above.append(seen + count * step if size > seen + (count - 1) * step else below[-1])
    if tuple(below) != tuple(input_shape):
        raise ShapeError(
            f"input {describe(input_shape)} (z, y, x) does not fit this network; the nearest "
            f"possible sizes are {describe(tuple(below))} and {describe(tuple(above))}"
        )
    return fit(network, (output[0], output[1], output[2]))


def wanted_shapes(
    network: Network, output_shape: Extent | Mapping[str, Extent]
) -> dict[str, Triple]:
    """One shape per output node, from one for all or a mapping by name; checked."""
    names = [node.name for node in network.outputs]
    if isinstance(output_shape, Mapping):
        if set(output_shape) != set(names):
            raise ShapeError(
                f"output shapes for {sorted(output_shape)}, but the outputs are {names}"
            )
        given = dict(output_shape)
    else:
        given = dict.fromkeys(names, output_shape)
    return {name: _sizes(name, shape) for name, shape in given.items()}


def _sizes(name: str, shape: Extent) -> Triple:
    """Three whole numbers; ShapeError for anything else."""
    try:
        sizes = [index(size) for size in (shape if isinstance(shape, Iterable) else [shape] * 3)]
    except TypeError:
        sizes = []
    if len(sizes) != 3 or min(sizes) < 1:
        raise ShapeError(
            f"output {name!r}: shape {shape} must be three sizes (z, y, x) of at least 1, or one"
        )
    return (sizes[0], sizes[1], sizes[2])


def needed(edge: Edge, shape: Triple, dilation: Triple) -> Triple:
    """Smallest input shape that an edge makes an output shape of; axes z, y, x."""
    along = zip(edge_kind(edge.kind).sizes(edge, dilation), shape, strict=True)
    found = [sizes.sources(n) for sizes, n in along]
    if not all(found):
        raise NetworkError(f"edge {edge.name!r}: nothing makes {describe(shape)} voxels of")
    z, y, x = (sizes[0] for sizes in found)
    return (z, y, x)


def _sparsities(network: Network) -> tuple[dict[str, Triple], dict[str, Triple]]:
    sparsities: dict[str, Triple] = {}
    dilations: dict[str, Triple] = {}
    for node in network.nodes:
        found: dict[Triple, str] = {}
        for edge in network.incoming(node.name):
            inherited = sparsities[edge.source]
            _refuse_stride_on_sparse(edge, inherited)
            dilations[edge.name] = scale(inherited, edge.sparsity)
            found.setdefault(scale(inherited, edge.sparsens), edge.name)
        sparsities[node.name] = _agreed(found, node.name, "sparsity") or ONE
    return sparsities, dilations


def _refuse_stride_on_sparse(edge: Edge, sparsity: Triple) -> None:
    for axis, stride, step in zip(AXES, edge.stride, sparsity, strict=True):
        if stride > 1 and step > 1:
            raise NetworkError(
                f"edge {edge.name!r}: stride {stride} along {axis} follows a max_filter or sparse "
                f"layer (sparsity {step}); use max_pool and stride throughout, or none"
            )


def _strides(network: Network, dilations: Mapping[str, Triple]) -> dict[str, Steps]:
    strides: dict[str, Steps] = {}
    for node in network.nodes:
        found: dict[Steps, str] = {}
        for edge in reversed(network.incoming(node.name)):
            sizes = edge_kind(edge.kind).sizes(edge, dilations[edge.name])
            z, y, x = (
                whole(before * Fraction(along.shrinks, along.grows))
                for before, along in zip(strides[edge.source], sizes, strict=True)
            )
            found[z, y, x] = edge.name
        strides[node.name] = _agreed(found, node.name, "stride") or ONE
    for node in network.outputs:
        if any(isinstance(step, Fraction) for step in strides[node.name]):
            raise NetworkError(
                f"node {node.name!r}: its voxels lie {describe(strides[node.name])} input voxels apart "
                "(z, y, x), but those of an output lie whole numbers apart; let it grow less"
            )
    return strides


def _agreed(found: Mapping[S, str], node: str, what: str) -> S | None:
    """The value that all edges into a node bring (none into inputs); NetworkError if they differ."""
    if len(found) > 1:
        (first, name), (second, other) = list(found.items())[:2]
        raise NetworkError(
            f"node {node!r}: edges that converge must have one {what}, but {name!r} brings "
            f"{describe(first)} and {other!r} brings {describe(second)}"
        )
    return next(iter(found), None)


def _shapes(
    network: Network, wanted: Mapping[str, Triple], dilations: Mapping[str, Triple]
) -> dict[str, Triple]:
    shapes = dict(wanted)
    for node in reversed(network.nodes):
        for edge in network.outgoing(node.name):
            need = needed(edge, shapes[edge.target], dilations[edge.name])
            have = shapes.setdefault(node.name, need)
            if have != need:
                raise NetworkError(_disagreement(network, node.name, edge, have, need))
    return shapes


def _disagreement(network: Network, node: str, edge: Edge, have: Triple, need: Triple) -> str:
    first = network.outgoing(node)[0]
    margin = tuple(abs(a - b) for a, b in zip(have, need, strict=True))
    smaller = edge if all(n <= h for n, h in zip(need, have, strict=True)) else first
    text = (
        f"node {node!r}: edge {first.name!r} needs {describe(have)} voxels (z, y, x), edge "
        f"{edge.name!r} needs {describe(need)}"
    )
    if all(m % 2 == 0 for m in margin):
        half = (margin[0] // 2, margin[1] // 2, margin[2] // 2)
        return f"{text}; a crop edge with offset {describe(half)} before {smaller.name!r} fits"
    return f"{text}; no crop fits an odd difference {describe(margin)}: change a filter size"


def _output_strides(network: Network, geometry: Geometry) -> Triple:
    z, y, x = (
        max(geometry.output_stride(node.name)[axis] for node in network.outputs)
        for axis in range(3)
    )
    return (z, y, x)
