"""Convolution by FFT of whole images, in tasks: spectra are computed once an update and shared by the passes.

Products and converging sums happen in the frequency domain; one inverse transform ends each sum
(ZNN, arXiv 1510.06706, section IV). A step remembers which spectra it has made.
"""

from __future__ import annotations

from collections.abc import Collection

from znnpy.engine.convolution.algorithm import updates_at_once
from znnpy.engine.convolution.fft.filters import spectra_stay_cached
from znnpy.engine.convolution.fft.passes import (
    data_gradient,
    derive,
    finish_backward,
    finish_forward,
    forward,
    output_identity,
    source_identity,
    summed_elsewhere,
    weight_gradient,
)
from znnpy.engine.convolution.flops import Operations, of_transform
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape, PassName
from znnpy.plan.fftw import good_size
from znnpy.plan.tiles import frequencies

__all__ = [
    "data_gradient",
    "derive",
    "finish_backward",
    "finish_forward",
    "forward",
    "operations",
    "summed_elsewhere",
    "updates_at_once",
    "weight_gradient",
]


def operations(
    layout: Layout, edge: Edge, passes: Collection[PassName], counted: set[object]
) -> Operations:
    """Count operations; what edges with a node in common share counts once for each grid."""
    shape = layout.conv_shape(edge)
    # The grid that tasks really transform, not the image: rounding up to fast sizes is part of the
    # algorithm.
    z, y, x = (good_size(size) for size in shape.seen)
    grid, found = (z, y, x), _products(edge, shape, (z, y, x), passes)
    for task, count in _image_transforms(layout, edge, shape, passes).items():
        # Edges share spectra only if grid and what surrounds the image are the same.
        key = task, grid, shape.padding, edge.border
        if key not in counted:
            counted.add(key)
            found[task] = count * of_transform(grid)
    return found


def _image_transforms(
    layout: Layout, edge: Edge, shape: ConvShape, passes: Collection[PassName]
) -> dict[Identity, int]:
    sources, targets = shape.batch * shape.inputs, shape.batch * shape.outputs
    counts: dict[Identity, int] = {}
    if "forward" in passes:
        counts[Identity(edge.target, Pass.FORWARD, Part.INVERSE)] = targets
    if "gradient" in passes:
        counts[Identity(edge.source, Pass.BACKWARD, Part.INVERSE)] = sources
    if "forward" in passes or "weight" in passes:
        counts[source_identity(layout.network, layout.plan, edge)] = sources
    if "gradient" in passes or "weight" in passes:
        counts[output_identity(layout.network, layout.plan, edge)] = targets
    return counts


def _products(
    edge: Edge, shape: ConvShape, grid: Triple, passes: Collection[PassName]
) -> Operations:
    """Return the operations of products, with the filters' transforms where these are made on the way."""
    pairs = shape.inputs * shape.outputs
    product = 8.0 * frequencies(grid) * shape.batch * pairs
    filters = pairs * of_transform(grid)
    kept = spectra_stay_cached(pairs, grid)
    flops = {
        Identity(edge.name, PASS_OF[which], Part.PRODUCTS): product
        # Gradients of filters are always transformed where they are made; filters are, unless their
        # spectra are kept.
        + (filters if which == "weight" or not kept else 0.0)
        for which in passes
    }
    serves = Pass.FORWARD if "forward" in passes else Pass.BACKWARD
    return flops | ({Identity(edge.name, serves, Part.FILTER_SPECTRA): filters} if kept else {})
