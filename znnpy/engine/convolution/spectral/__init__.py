"""Tiled FFT convolution (overlap-save) in tasks: transforms of tiles, products of each frequency, and back.

See docs/design/spectral.md. Forward pass and weight gradient share the spectra of the source's tiles where their
tiles are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from znnpy.engine.convolution.algorithm import (
    finish_backward,
    finish_forward,
    summed_elsewhere,
    updates_at_once,
)
from znnpy.engine.convolution.flops import Operations, of_transform
from znnpy.engine.convolution.spectral.filters import derive
from znnpy.engine.convolution.spectral.passes import data_gradient, forward, weight_gradient
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan import ConvShape, PassName
from znnpy.plan.algorithms.spectral import TURNED, dense
from znnpy.plan.tiles import frequencies, tiles_of

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
    """Return the operations; kept tiles of a source are counted once for all passes and edges that use them."""
    whole, found = layout.conv_shape(edge), Operations()
    inputs = whole.phases.count * (whole.outputs if whole.transposed else whole.inputs)
    shape = replace(dense(whole), inputs=inputs)  # idle lanes are not counted
    for which in passes:
        tile = layout.plan.layers[edge.name].method(which).tile
        assert tile, "a spectral pass has a tile"
        tiles = tiles_of(shape, tile)
        flops = 8.0 * frequencies(tile) * tiles * shape.inputs * shape.outputs
        found[Identity(edge.name, PASS_OF[which], Part.PRODUCTS)] = flops
        for part, count in _transforms(shape, whole, which, tiles).items():
            found[Identity(edge.name, PASS_OF[which], part)] = count * of_transform(tile)
        # Edges that agree on all of this read the same kept tiles (`source_spectra`).
        key = (
            "kept tiles",
            edge.source,
            tile,
            edge.size,
            edge.stride,
            shape.dilation,
            shape.padding,
            edge.border,
        )
        if which != "gradient" and not whole.transposed and key not in counted:
            counted.add(key)
            kept = Identity(edge.source, Pass.FORWARD, Part.KEPT_TILES)
            found[kept] = found.get(kept, 0.0) + tiles * shape.inputs * of_transform(tile)
    return found


def _transforms(shape: ConvShape, whole: ConvShape, which: PassName, tiles: int) -> dict[Part, int]:
    """Return the number of transforms of one pass by part; `TILES` are those of a source's tiles that are not kept."""
    if whole.transposed:
        turned = _transforms(shape, shape, TURNED.get(which, which), tiles)
        ends = turned.get(Part.TILES, 0) + turned.pop(Part.OUTPUT_TILES, 0)
        return turned | {Part.TILES: ends}
    inputs, outputs = tiles * shape.inputs, tiles * shape.outputs
    pairs = shape.inputs * shape.outputs
    if which == "gradient":
        return {Part.OUTPUT_TILES: outputs, Part.INVERSE: inputs, Part.FILTER_TILES: pairs}
    if which == "weight":
        return {Part.OUTPUT_TILES: outputs, Part.INVERSE: pairs, Part.TILES: inputs}
    return {Part.INVERSE: outputs, Part.FILTER_TILES: pairs, Part.TILES: inputs}
