"""Computes and checks the shapes of all nodes: `fit` for a wanted output, `fit_input` for a given input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index

import numpy as np

from znnpy.errors import NetworkError, ShapeError
from znnpy.fields import MOST_VOXELS, of_python, shown
from znnpy.geometry.axes import ONE, Steps, describe
from znnpy.geometry.axis_sizes import Conflict, Found, Line
from znnpy.geometry.receptive_field import Lattice, lattice_of
from znnpy.geometry.size_suggestions import Search, refuse
from znnpy.network.types import Network, Node, Norm, Triple

Extent = int | Triple
"""A size in voxels, (z, y, x); one number stands for all three."""


@dataclass(frozen=True)
class NodeGeometry:
    """Where the voxels of a node's feature map lie; all triples z, y, x.

    `shape`: voxels of one channel. `sparsity`: the dilation that this node hands on, that is the distance, in its
    voxels, between neighbouring taps of what follows. `stride`: distance, in input voxels, between neighbouring
    voxels of this node; a fraction where upsampling has made it finer than the input.
    """

    shape: Triple
    sparsity: Triple
    stride: Steps


@dataclass(frozen=True)
class Geometry:
    """All shapes of one network for one output size; triples are z, y, x.

    `nodes` by node name. `dilations` by edge name: the distance between the taps of a filter or window, inherited
    sparsity included. `fields_of_view` by input node: the receptive field, the most input voxels that one voxel of
    any output sees, padding counted. `periods` by input node: the shortest shift of the input that moves every
    node by whole voxels.
    """

    nodes: Mapping[str, NodeGeometry]
    dilations: Mapping[str, Triple]
    input_shapes: Mapping[str, Triple]
    output_shapes: Mapping[str, Triple]
    fields_of_view: Mapping[str, Triple]
    periods: Mapping[str, Triple]

    def output_stride(self, name: str) -> Triple:
        """Return the distance, in input voxels, between neighbouring voxels of an output node."""
        z, y, x = (int(step) for step in self.nodes[name].stride)
        return (z, y, x)

    def output_offset(self, name: str) -> Triple:
        """Return where the first output's patch begins in the patch of input `name`: both have one centre."""
        output, shape = next(iter(self.output_shapes.items()))
        sizes = zip(self.input_shapes[name], shape, self.output_stride(output), strict=True)
        # Both centres are halfway between the first and the last voxel; an odd difference leaves
        # the voxel more behind.
        z, y, x = ((size - 1 - (count - 1) * step) // 2 for size, count, step in sizes)
        return (z, y, x)


def fit(network: Network, output_shape: Extent | Mapping[str, Extent]) -> Geometry:
    """Return the shapes of all nodes for which the outputs have the wanted shape (z, y, x).

    One shape is for all outputs of the least stride (others get what follows), a mapping gives one by output name.
    Of several possible inputs the smallest is taken; with padding the largest, preferring multiples of the period.
    Raises ShapeError for a shape that is not possible, with the nearest that are, and NetworkError if converging
    paths never agree, with both edges and the crop that would mend it.
    """
    wanted, lattice = wanted_shapes(network, output_shape), lattice_of(network)
    if not isinstance(output_shape, Mapping):
        wanted = _finest(wanted, lattice)
    searches = [_outputs(line, wanted) for line in _lines(network, lattice)]
    return _geometry(network, lattice, _sizes_at("output", searches))


def fit_input(network: Network, input_shape: Extent | Mapping[str, Extent]) -> Geometry:
    """Return the shapes of all nodes for inputs of given shapes (z, y, x), one for all or a mapping by name.

    Raises ShapeError with the nearest possible input shapes.
    """
    names, lattice = [node.name for node in network.inputs], lattice_of(network)
    given = _shapes("input", names, input_shape)
    lines = _lines(network, lattice)
    searches = [_inputs(line, given) for line in lines]
    return _geometry(network, lattice, _sizes_at("input", searches))


def wanted_shapes(
    network: Network, output_shape: Extent | Mapping[str, Extent]
) -> dict[str, Triple]:
    """Return one checked shape by output node, from one for all or a mapping by name."""
    return _shapes("output", [node.name for node in network.outputs], output_shape)


def smallest(network: Network, at_least: Triple = ONE) -> Triple:
    """Return the smallest possible shape (z, y, x) of the finest outputs that is at least `at_least`."""
    lattice = lattice_of(network)
    names = [node.name for node in network.outputs]
    wanted = _finest(dict.fromkeys(names, at_least), lattice)
    searches = [_outputs(line, wanted) for line in _lines(network, lattice)]
    # The next larger size, or the wanted one itself if it is possible.
    sizes = [search.nearest()[1] for search in searches]
    if None in sizes:
        refuse("output", searches)
    z, y, x = (size or 0 for size in sizes)
    return (z, y, x)


def largest(network: Network, at_most: Mapping[str, Triple]) -> dict[str, Triple]:
    """Return the largest possible shapes (z, y, x) of the finest outputs that are at most these; empty if none is."""
    lattice = lattice_of(network)
    wanted = _finest(at_most, lattice)
    searches = [_outputs(line, wanted) for line in _lines(network, lattice)]
    below = [search.nearest()[0] for search in searches]
    if None in below:
        return {}
    # One difference for all outputs: outputs of one stride lose the same number of voxels.
    dz, dy, dx = ((size or 0) - search.size for size, search in zip(below, searches, strict=True))
    return {name: (z + dz, y + dy, x + dx) for name, (z, y, x) in wanted.items()}


def _inputs(line: Line, given: Mapping[str, Triple]) -> Search:
    periods = [*line.input_periods.values()]
    return Search(line, _along(given, line.axis), line.made, line.reach, periods)


def _outputs(line: Line, wanted: Mapping[str, Triple]) -> Search:
    alike = len({line.lattice.strides[name] for name in wanted}) == 1
    # Adding one number of voxels to outputs of different strides would move them apart, so nearby
    # sizes are not searched then.
    far = line.output_reach if alike else 0
    periods = [*line.output_periods.values()]
    return Search(line, _along(wanted, line.axis), line.solved, far, periods)


def _finest(wanted: Mapping[str, Triple], lattice: Lattice) -> dict[str, Triple]:
    """Return the wanted shapes of the outputs of least stride.

    Raises NetworkError if two of these have different strides: one shape would cover different input voxels.
    """
    apart = {name: prod(lattice.strides[name]) for name in wanted}
    found = {name: shape for name, shape in wanted.items() if apart[name] == min(apart.values())}
    first, *others = found
    for other in others:
        steps = lattice.strides[first], lattice.strides[other]
        if steps[0] != steps[1]:
            raise NetworkError(
                f"outputs {first!r} and {other!r}: their voxels lie {describe(steps[0])} and {describe(steps[1])} "
                "input voxels apart (z, y, x), so that no one output shape is right for both; let one of them be the "
                "finer along every axis, or both have one stride"
            )
    return found


def _shapes(what: str, names: list[str], given: Extent | Mapping[str, Extent]) -> dict[str, Triple]:
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise ShapeError(
                f"{what} shapes for {sorted(map(str, given))}, but the {what}s are {names}"
            )
        return {name: _sizes(what, name, shape) for name, shape in given.items()}
    return {name: _sizes(what, name, given) for name in names}


def _sizes(what: str, name: str, shape: Extent) -> Triple:
    """Return a shape as three ints; ShapeError for anything else."""
    given = of_python(shape)
    # Bytes are sequences of ints, but nobody means a shape by them.
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, bytes | memoryview)
    try:
        sizes = [_size(size) for size in (given if several else [given] * 3)]
    except TypeError:
        sizes = []
    if len(sizes) != 3 or min(sizes) < 1 or max(sizes) > MOST_VOXELS:
        raise ShapeError(
            f"{what} {name!r}: shape {shown(shape)} must be three sizes (z, y, x) of at least 1, or one, "
            f"and at most {MOST_VOXELS}"
        )
    return (sizes[0], sizes[1], sizes[2])


def _size(given: object) -> int:
    """Return a size as an int; TypeError for anything that is no whole number."""
    # `index` takes True for 1.
    if isinstance(given, bool | np.bool_):
        raise TypeError
    return index(given)  # type: ignore[arg-type]


def _lines(network: Network, lattice: Lattice) -> list[Line]:
    return [Line(network, lattice, axis) for axis in range(3)]


def _along(shapes: Mapping[str, Triple], axis: int) -> dict[str, int]:
    return {name: shape[axis] for name, shape in shapes.items()}


def _sizes_at(what: str, searches: list[Search]) -> list[Found]:
    """Return the sizes of all nodes along each axis for what is given; `refuse` raises if there are none."""
    found = [search.at(0) for search in searches]
    sizes = [one for one in found if not isinstance(one, Conflict)]
    if len(sizes) < len(found):
        refuse(what, searches)
    return sizes


def _geometry(network: Network, lattice: Lattice, found: list[Found]) -> Geometry:
    z, y, x = found
    shapes = {n.name: (z[n.name], y[n.name], x[n.name]) for n in network.nodes}
    return Geometry(
        nodes={
            name: NodeGeometry(shape, lattice.sparsities[name], lattice.strides[name])
            for name, shape in shapes.items()
        },
        dilations=lattice.dilations,
        input_shapes={node.name: shapes[node.name] for node in network.inputs},
        output_shapes={node.name: shapes[node.name] for node in network.outputs},
        fields_of_view=lattice.views,
        periods={node.name: lattice.period for node in network.inputs},
    )


def refuse_single_values(network: Network, geometry: Geometry, batch: int | None) -> None:
    """Raise ShapeError if a node would be normalised by statistics of one value, which always gives 0.

    `batch`: samples at once; None for prediction, where batch normalisation uses running statistics.
    """
    for node in network.nodes:
        if node.norm is None or (node.norm.kind == "batch" and batch is None):
            continue
        if node.norm.of_voxels or node.norm.adds:  # over channels; what a norm divides is not 0
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
