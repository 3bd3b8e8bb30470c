"""Tasks of conv edges: every pass by the algorithm that the plan chose."""

from __future__ import annotations

from collections import defaultdict
from types import ModuleType

from znnpy.engine import direct, spectra, spectral
from znnpy.engine.build import Build
from znnpy.engine.spectra import Product, Spectra
from znnpy.engine.step import Step
from znnpy.engine.tensors import Tensor
from znnpy.network.types import Edge, Node, Triple

# Algorithms that keep to one edge; by whole-image FFT spectra of several edges meet.
_EMITTERS: dict[str, ModuleType] = {"direct": direct, "spectral": spectral}


def forward(step: Step, build: Build, edge: Edge) -> None:
    """What a conv edge brings to its target; by FFT it stays a spectrum until `finish_forward`."""
    emitter = _EMITTERS.get(build.layout.plan.layers[edge.name].forward)
    if emitter:
        emitter.forward(step, build, edge)
        return
    grid, source = spectra.grid_of(build, edge), build.value(edge.source)
    x = spectra.image_spectra_of(step, build, source, edge.source, "spectra", grid)
    out = _forward_sum(build, edge)
    name = f"{edge.name} products"
    if not spectra.filters_stay_cached(build, edge):
        spectra.emit_filtered_sum(step, build, edge, x, out, backward=False, name=name)
        return
    w = spectra.filter_spectra_of(step, build, edge, emit=False)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=inputs, rows=source.batch, columns=outputs, a_term=1, a_row=inputs, b_term=1,
        b_column=inputs, out_row=outputs, out_column=1, conjugate=True,
    )  # fmt: skip
    spectra.emit_product(step, x, w, out, pairs, name)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """What a conv edge brings to its source's gradient; by FFT a spectrum until `finish_backward`."""
    emitter = _EMITTERS.get(build.layout.plan.layers[edge.name].gradient)
    if emitter:
        emitter.data_gradient(step, build, edge, gradient)
        return
    dy = _gradient_spectra(step, build, edge, gradient)
    out = _backward_sum(build, edge)
    name = f"{edge.name} backward products"
    if not spectra.filters_stay_cached(build, edge):
        spectra.emit_filtered_sum(step, build, edge, dy, out, backward=True, name=name)
        return
    w = spectra.filter_spectra_of(step, build, edge, emit=False)
    outputs, inputs = build.parameters[edge.name].shape[:2]
    pairs = Product(
        terms=outputs, rows=gradient.batch, columns=inputs, a_term=1, a_row=outputs,
        b_term=inputs, b_column=1, out_row=inputs, out_column=1, conjugate=False,
    )  # fmt: skip
    spectra.emit_product(step, dy, w, out, pairs, name)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Gradient of an edge's filters, from its source's images and its target's gradient."""
    emitter = _EMITTERS.get(build.layout.plan.layers[edge.name].weight)
    if emitter:
        emitter.weight_gradient(step, build, edge, gradient)
        return
    grid, source = spectra.grid_of(build, edge), build.value(edge.source)
    x = spectra.image_spectra_of(step, build, source, edge.source, "spectra", grid)
    dy = _gradient_spectra(step, build, edge, gradient)
    spectra.weight_gradient(step, build, edge, x, dy)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """What the passes need of filters beside themselves, made anew after each update."""
    layer = build.layout.plan.layers[edge.name]
    trains_source = edge.name in build.images.backward
    if layer.forward == "fft" or (trains_source and layer.gradient == "fft"):
        if spectra.filters_stay_cached(build, edge):
            spectra.filter_spectra_of(step, build, edge, emit=True)
        else:
            spectra.densify(step, build, edge)
    if layer.forward == "spectral":
        spectral.derive(step, build, edge, backward=False)
    if trains_source and layer.gradient == "spectral":
        spectral.derive(step, build, edge, backward=True)
    if trains_source and layer.gradient == "direct":
        direct.transpose(step, build, edge)


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Sum what edges brought in the frequency domain; one inverse transform for each grid."""
    edges = [
        edge
        for edge in build.layout.network.incoming(node.name)
        if edge.kind == "conv" and build.layout.plan.layers[edge.name].forward == "fft"
    ]
    for group in _by_grid(build, edges).values():
        leaves = [_forward_sum(build, edge) for edge in group]
        spectra.combine_spectra(step, leaves, f"{node.name} spectral sum")
        target = build.images.contributions[group[0].name]
        spectra.images_of_spectra(step, leaves[0], target, f"{node.name} inverse")


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """The same for the gradients that outgoing edges brought back."""
    edges = [
        edge
        for edge in build.layout.network.outgoing(node.name)
        if edge.kind == "conv" and build.layout.plan.layers[edge.name].gradient == "fft"
    ]
    for group in _by_grid(build, edges).values():
        leaves = [_backward_sum(build, edge) for edge in group]
        spectra.combine_spectra(step, leaves, f"{node.name} gradient spectral sum")
        target = build.images.backward[group[0].name]
        spectra.images_of_spectra(step, leaves[0], target, f"{node.name} gradient inverse")


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], *, backward: bool) -> set[str]:
    """Edges whose contribution another edge's inverse transform already includes."""
    step = "gradient" if backward else "forward"
    by_fft = [
        edge
        for edge in edges
        if edge.kind == "conv" and getattr(build.layout.plan.layers[edge.name], step) == "fft"
    ]
    return {edge.name for group in _by_grid(build, by_fft).values() for edge in group[1:]}


def _by_grid(build: Build, edges: list[Edge]) -> dict[Triple, list[Edge]]:
    groups: dict[Triple, list[Edge]] = defaultdict(list)
    for edge in edges:
        groups[spectra.grid_of(build, edge)].append(edge)
    return groups


def _gradient_spectra(step: Step, build: Build, edge: Edge, gradient: Tensor) -> Spectra:
    grid = spectra.grid_of(build, edge)
    return spectra.image_spectra_of(step, build, gradient, edge.target, "gradient spectra", grid)


def _forward_sum(build: Build, edge: Edge) -> Spectra:
    layout = build.layout
    count = layout.batch * layout.network.node(edge.target).images
    return Spectra(build, ("forward", edge.name), count, spectra.grid_of(build, edge))


def _backward_sum(build: Build, edge: Edge) -> Spectra:
    layout = build.layout
    count = layout.batch * layout.network.node(edge.source).images
    return Spectra(build, ("backward", edge.name), count, spectra.grid_of(build, edge))
