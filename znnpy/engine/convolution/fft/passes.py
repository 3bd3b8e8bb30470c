"""Every pass of a conv edge, and sums that end in one inverse transform.

What an edge brings stays a spectrum until the node's `finish_forward` or `finish_backward`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from znnpy.engine.convolution.fft import filters
from znnpy.engine.convolution.fft.products import Product, emit_product
from znnpy.engine.convolution.fft.spectra import (
    Spectra,
    combine_spectra,
    grid_of,
    image_spectra_of,
    images_of_spectra,
)
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge, Node, Triple
from znnpy.plan import PassName


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Spectra of what a conv edge brings to its target."""
    source = build.value(edge.source)
    x = _source_spectra(step, build, edge)
    out = _sum(build, edge, "forward")
    name = f"{edge.name} products"
    if not filters.filters_stay_cached(build, edge):
        filters.emit_filtered_sum(step, build, edge, x, out, backward=False, name=name)
        return
    w = filters.filter_spectra_of(step, build, edge, emit=False)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=inputs, rows=source.batch, columns=outputs, a_term=1, a_row=inputs, b_term=1,
        b_column=inputs, out_row=outputs, out_column=1, conjugate=True,
    )  # fmt: skip
    emit_product(step, x, w, out, pairs, name)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Spectra of what a conv edge brings to its source's gradient."""
    dy = _gradient_spectra(step, build, edge, gradient)
    out = _sum(build, edge, "gradient")
    name = f"{edge.name} backward products"
    if not filters.filters_stay_cached(build, edge):
        filters.emit_filtered_sum(step, build, edge, dy, out, backward=True, name=name)
        return
    w = filters.filter_spectra_of(step, build, edge, emit=False)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=outputs, rows=gradient.batch, columns=inputs, a_term=1, a_row=outputs,
        b_term=inputs, b_column=1, out_row=inputs, out_column=1, conjugate=False,
    )  # fmt: skip
    emit_product(step, dy, w, out, pairs, name)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Gradient of an edge's filters, from its source's images and its target's gradient."""
    x = _source_spectra(step, build, edge)
    dy = _gradient_spectra(step, build, edge, gradient)
    filters.weight_gradient(step, build, edge, x, dy)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Spectra of an edge's filters, or dense copies where spectra are made as they are used."""
    if filters.filters_stay_cached(build, edge):
        filters.filter_spectra_of(step, build, edge, emit=True)
    else:
        filters.densify(step, build, edge)


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Sum what incoming edges brought; one inverse transform for each grid."""
    edges = build.layout.network.incoming(node.name)
    _finish(step, build, edges, "forward", build.images.contributions, node.name)


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """The same for the gradients that outgoing edges brought back."""
    edges = build.layout.network.outgoing(node.name)
    _finish(step, build, edges, "gradient", build.images.backward, f"{node.name} gradient")


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], step: PassName) -> set[str]:
    """Edges whose contribution another edge's inverse transform already includes."""
    return {edge.name for group in _by_grid(build, edges, step) for edge in group[1:]}


def _finish(
    step: Step,
    build: Build,
    edges: tuple[Edge, ...],
    which: PassName,
    targets: Mapping[str, Tensor],
    name: str,
) -> None:
    for group in _by_grid(build, edges, which):
        leaves = [_sum(build, edge, which) for edge in group]
        combine_spectra(step, leaves, f"{name} spectral sum")
        images_of_spectra(step, leaves[0], targets[group[0].name], f"{name} inverse")


def _by_grid(build: Build, edges: tuple[Edge, ...], step: PassName) -> list[list[Edge]]:
    """Edges that run this pass by FFT, those with the same grid together."""
    groups: dict[Triple, list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.kind == "conv" and getattr(build.layout.plan.layers[edge.name], step) == "fft":
            groups[grid_of(build, edge)].append(edge)
    return list(groups.values())


def _source_spectra(step: Step, build: Build, edge: Edge) -> Spectra:
    grid, source = grid_of(build, edge), build.value(edge.source)
    return image_spectra_of(step, build, source, edge.source, "spectra", grid)


def _gradient_spectra(step: Step, build: Build, edge: Edge, gradient: Tensor) -> Spectra:
    grid = grid_of(build, edge)
    return image_spectra_of(step, build, gradient, edge.target, "gradient spectra", grid)


def _sum(build: Build, edge: Edge, step: PassName) -> Spectra:
    """Spectra of what an edge brings to its target (forward) or its source (gradient)."""
    layout, end = build.layout, edge.target if step == "forward" else edge.source
    count = layout.batch * layout.network.node(end).images
    return Spectra(build, (step, edge.name), count, grid_of(build, edge))
