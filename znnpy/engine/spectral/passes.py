"""The three passes of an edge: transforms of a group of tiles, its products, and back."""

from __future__ import annotations

from znnpy_kernels.lanes import LANES

from znnpy.engine.build import Build
from znnpy.engine.fusion import applied_forward
from znnpy.engine.spectral.buffers import ring_slot, source_spectra, tiling_of
from znnpy.engine.spectral.filters import emit_gradients, filters_for, gradients_of, shares_filters
from znnpy.engine.spectral.products import (
    emit_backward_products,
    emit_products,
    emit_weight_products,
)
from znnpy.engine.spectral.transforms import ORIGIN, emit_images, emit_spectra
from znnpy.engine.step import Step
from znnpy.engine.tensors import Tensor
from znnpy.engine.tiles import TileSpectra, Window
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.tiles import group_size


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Correlation of the source's tiles with the filters, into the edge's contribution."""
    target = build.images.contributions[edge.name]
    x = source_spectra(build, edge, "forward")
    y = TileSpectra(x.tiling, target.blocks, x.most)
    w = filters_for(step, build, edge, backward=False)
    for group in range(x.groups):
        _emit_source(step, build, edge, x, group, "forward")
        y.places[group] = ring_slot(step, build, edge, "sums", y, group)
        emit_products(step, edge, x, w, y, group, "products")
        name, node = f"{edge.name} inverse", applied_forward(build.layout, edge)
        emit_images(step, build, y, target, ORIGIN, group, name, node)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient's tiles with the filters, into what goes back to the source."""
    target, tiling = build.images.backward[edge.name], tiling_of(build, edge, "gradient")
    blocks = -(-gradient.images // LANES)
    dy = TileSpectra(tiling, blocks, group_size(tiling.tile, tiling.tiles, blocks))
    dx = TileSpectra(tiling, target.blocks, dy.most)
    w = filters_for(step, build, edge, backward=True)
    shared = shares_filters(build, edge)
    z, y, x = tiling.overlap
    window = Window((-z, -y, -x), tiling.tile)
    for group in range(dy.groups):
        dy.places[group] = ring_slot(step, build, edge, "backward", dy, group)
        dx.places[group] = ring_slot(step, build, edge, "backward sums", dx, group)
        emit_spectra(step, build, dy, gradient, window, 0, group, f"{edge.name} gradient tiles")
        if shared:
            emit_backward_products(step, build, edge, dy, w, dx, group)
        else:
            emit_products(step, edge, dy, w, dx, group, "backward products")
        emit_images(step, build, dx, target, tiling.overlap, group, f"{edge.name} backward inverse")


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient tiles summed over all tiles, then back to filters."""
    x = source_spectra(build, edge, "weight")
    dy = TileSpectra(x.tiling, -(-gradient.images // LANES), x.most)
    window = Window(ORIGIN, x.tiling.step)
    w = gradients_of(build, edge)
    for group in range(x.groups):
        _emit_source(step, build, edge, x, group, "weight")
        dy.places[group] = ring_slot(step, build, edge, "outputs", dy, group)
        emit_spectra(step, build, dy, gradient, window, 1, group, f"{edge.name} output tiles")
        emit_weight_products(step, edge, x, w, dy, group)
    emit_gradients(step, build, edge, w)


def _emit_source(
    step: Step, build: Build, edge: Edge, x: TileSpectra, group: int, which: PassName
) -> None:
    """Transforms of a group of the source's tiles; kept ones once a step for all that ask."""
    if group not in x.places:
        x.places[group] = ring_slot(step, build, edge, f"{which} source", x, group)
        name = f"{edge.name} {which} tiles"
    elif step.once(x.places[group].key):
        name = f"{edge.source} tiles"
    else:
        return
    source, window = build.value(edge.source), Window(ORIGIN, x.tiling.tile)
    emit_spectra(step, build, x, source, window, 0, group, name)
