"""Every pass of a conv edge, and sums that end in one inverse transform.

What an edge brings stays a spectrum until the node's `finish_forward` or `finish_backward`.
"""

from __future__ import annotations

from collections import defaultdict

from znnpy.engine.convolution.fft import filters
from znnpy.engine.convolution.fft.products import Product, emit_product
from znnpy.engine.convolution.fft.spectra import (
    Spectra,
    border_of,
    combine_spectra,
    grid_of,
    image_spectra_of,
    images_of_spectra,
)
from znnpy.engine.convolution.unmet import clear_unmet
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PassName, Plan

IMAGE_SPECTRA = Use("spectra of images", "source spectra")
OUTPUT_SPECTRA = Use("spectra of gradients", "gradient spectra")
FORWARD_SUMS = Use("spectra of sums")
BACKWARD_SUMS = Use("spectra of gradient sums", "spectra of sums")


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Spectra of what a conv edge brings to its target."""
    source = build.seen(edge)
    x = _source_spectra(step, build, edge)
    out = _sum(build, edge, "forward")
    what = Identity(edge.name, Pass.FORWARD, Part.PRODUCTS)
    if not filters.filters_stay_cached(build, edge):
        filters.emit_filtered_sum(step, build, edge, x, out, what)
        return
    w = filters.filter_spectra_of(step, build, edge)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=inputs, rows=source.batch, columns=outputs, a_term=1, a_row=inputs, b_term=1,
        b_column=inputs, out_row=outputs, out_column=1, conjugate=True,
    )  # fmt: skip
    emit_product(step, x, w, out, pairs, what)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Spectra of what a conv edge brings to its source's gradient."""
    dy = _gradient_spectra(step, build, edge, gradient)
    out = _sum(build, edge, "gradient")
    what = Identity(edge.name, Pass.BACKWARD, Part.PRODUCTS)
    if not filters.filters_stay_cached(build, edge):
        filters.emit_filtered_sum(step, build, edge, dy, out, what)
        return
    w = filters.filter_spectra_of(step, build, edge)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=outputs, rows=gradient.batch, columns=inputs, a_term=1, a_row=outputs,
        b_term=inputs, b_column=1, out_row=inputs, out_column=1, conjugate=False,
    )  # fmt: skip
    emit_product(step, dy, w, out, pairs, what)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Gradient of an edge's filters, from its source's images and its target's gradient."""
    x = _source_spectra(step, build, edge)
    dy = _gradient_spectra(step, build, edge, gradient)
    filters.weight_gradient(step, build, edge, x, dy)
    clear_unmet(step, build, edge)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Spectra of an edge's filters, or dense copies where spectra are made as they are used."""
    forward = build.layout.plan.layers[edge.name].forward == "fft"
    serves = Pass.FORWARD if forward else Pass.BACKWARD
    if filters.filters_stay_cached(build, edge):
        filters.filter_spectra_of(step, build, edge, serves)
    else:
        filters.densify(step, build, edge, serves)


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Sum what incoming edges brought; one inverse transform for each grid."""
    edges = build.layout.network.incoming(node.name)
    _finish(step, build, edges, "forward", node.name)


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """The same for the gradients that outgoing edges brought back."""
    edges = build.layout.network.outgoing(node.name)
    _finish(step, build, edges, "gradient", node.name)


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
    """Edges whose contribution another edge's inverse transform already includes."""
    return {edge.name for group in _by_grid(build, edges, which) for edge in group[1:]}


def _finish(
    step: Step,
    build: Build,
    edges: tuple[Edge, ...],
    which: PassName,
    owner: str,
) -> None:
    for group in _by_grid(build, edges, which):
        leaves = [_sum(build, edge, which) for edge in group]
        combine_spectra(step, leaves, Identity(owner, PASS_OF[which], Part.SPECTRAL_SUM))
        what = Identity(owner, PASS_OF[which], Part.INVERSE)
        first = group[0]
        target = (
            build.back(first) if which == "gradient" else build.images.contributions[first.name]
        )
        images_of_spectra(step, leaves[0], target, what)


def _by_grid(build: Build, edges: tuple[Edge, ...], which: PassName) -> list[list[Edge]]:
    """Edges that run this pass by FFT, together where one inverse transform makes images for all.

    They have one grid, and gradients one way to be folded.
    """
    groups: dict[object, list[Edge]] = defaultdict(list)
    for edge in edges:
        if _by_fft(build.layout.plan, edge, which):
            border = border_of(build, edge) if which == "gradient" else ()
            groups[grid_of(build, edge), border].append(edge)
    return list(groups.values())


def _source_spectra(step: Step, build: Build, edge: Edge) -> Spectra:
    grid, source = grid_of(build, edge), build.seen(edge)
    what = source_identity(build.layout.network, build.layout.plan, edge)
    border = border_of(build, edge)
    return image_spectra_of(step, build, source, IMAGE_SPECTRA, what, grid, border)


def _gradient_spectra(step: Step, build: Build, edge: Edge, gradient: Tensor) -> Spectra:
    grid = grid_of(build, edge)
    what = output_identity(build.layout.network, build.layout.plan, edge)
    return image_spectra_of(step, build, gradient, OUTPUT_SPECTRA, what, grid)


def source_identity(network: Network, plan: Plan, edge: Edge) -> Identity:
    """What transforms an edge's source: of the first pass for which an edge that leaves it asks."""
    forward = _any_by_fft(plan, network.outgoing(edge.source), "forward")
    return Identity(edge.source, Pass.FORWARD if forward else Pass.WEIGHT, Part.IMAGE_SPECTRA)


def output_identity(network: Network, plan: Plan, edge: Edge) -> Identity:
    """What transforms the gradient of an edge's target; the weight gradient asks first."""
    weight = _any_by_fft(plan, network.incoming(edge.target), "weight")
    return Identity(edge.target, Pass.WEIGHT if weight else Pass.BACKWARD, Part.OUTPUT_SPECTRA)


def _any_by_fft(plan: Plan, edges: tuple[Edge, ...], which: PassName) -> bool:
    return any(_by_fft(plan, edge, which) for edge in edges)


def _by_fft(plan: Plan, edge: Edge, which: PassName) -> bool:
    return edge.kind == "conv" and plan.layers[edge.name].method(which).algorithm == "fft"


def _sum(build: Build, edge: Edge, which: PassName) -> Spectra:
    """Spectra of what an edge brings to its target (forward) or its source (gradient)."""
    layout, end = build.layout, edge.target if which == "forward" else edge.source
    count = layout.batch * layout.network.node(end).images
    use = FORWARD_SUMS if which == "forward" else BACKWARD_SUMS
    return Spectra(build, use, edge.name, count, grid_of(build, edge))
