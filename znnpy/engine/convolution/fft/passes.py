"""The passes of FFT convolution: products of spectra, and sums at nodes that end in one inverse transform.

An edge's output stays a spectrum until the node's `finish_forward` or `finish_backward`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from znnpy_kernels.fft.products import spectral_product

from znnpy.engine.convolution.fft import filters
from znnpy.engine.convolution.fft.spectra import (
    Spectra,
    border_of,
    combine_spectra,
    grid_of,
    image_spectra_of,
    images_of_spectra,
)
from znnpy.engine.convolution.padding_taps import clear_unmet
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PassName, Plan
from znnpy.plan.cost import PRODUCT_RATE

# Fewer columns load each term more often; more need more registers for their sums.
COLUMNS = 4  # output images of one product task: they share the loads of the terms

IMAGE_SPECTRA = Use("spectra of feature maps", "source spectra")
OUTPUT_SPECTRA = Use("spectra of gradients", "gradient spectra")
FORWARD_SUMS = Use("spectra of sums")
BACKWARD_SUMS = Use("spectra of gradient sums", "spectra of sums")


@dataclass(frozen=True)
class Product:
    """Which spectra meet: out[row, column] = sum over terms of a[term, row] * b[term, column].

    Steps and firsts count spectra. `conjugate` multiplies with the conjugate of b.
    """

    terms: int
    rows: int
    columns: int
    a_term: int
    a_row: int
    b_term: int
    b_column: int
    out_row: int
    out_column: int
    conjugate: bool
    a_first: int = 0
    b_first: int = 0
    out_first: int = 0

    def touched(self, columns: range) -> tuple[list[int], list[int], list[int]]:
        """Return the numbers of the spectra of a and b read, and of those of out written, for some columns."""
        terms, rows = range(self.terms), range(self.rows)
        return (
            [self.a_first + t * self.a_term + r * self.a_row for t in terms for r in rows],
            [self.b_first + t * self.b_term + c * self.b_column for t in terms for c in columns],
            [
                self.out_first + r * self.out_row + c * self.out_column
                for r in rows
                for c in columns
            ],
        )


def emit_product(
    step: Step,
    a: Spectra,
    b: Spectra,
    out: Spectra,
    shape: Product,
    what: Identity,
) -> None:
    """Declare sums of products of spectra, cut by output columns and ranges of frequencies."""
    seconds = shape.terms * shape.rows * a.floats * 4 / PRODUCT_RATE
    # Each task sums all terms for its columns, so no two tasks add to one spectrum.
    for first in range(0, shape.columns, COLUMNS):
        columns = range(first, min(first + COLUMNS, shape.columns))
        for low, high in a.cuts(seconds * len(columns)):
            values = {
                "a": a.at(shape.a_first, low),
                "a_term": shape.a_term * a.floats,
                "a_row": shape.a_row * a.floats,
                "b": b.at(shape.b_first + first * shape.b_column, low),
                "b_term": shape.b_term * b.floats,
                "b_column": shape.b_column * b.floats,
                "out": out.at(shape.out_first + first * shape.out_column, low),
                "out_row": shape.out_row * out.floats,
                "out_column": shape.out_column * out.floats,
                "terms": shape.terms,
                "rows": shape.rows,
                "columns": len(columns),
                "floats": high - low,
                "conjugate": int(shape.conjugate),
                "add": 0,
            }
            read_a, read_b, written = shape.touched(columns)
            step.add(
                spectral_product,
                values,
                what=what,
                cost=seconds * len(columns) * (high - low) / a.floats,
                reads=[a.region(i, low, high) for i in read_a]
                + [b.region(i, low, high) for i in read_b],
                writes=[out.region(i, low, high) for i in written],
            )


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the spectra of what a conv edge brings to its target."""
    source = build.seen(edge)
    x = _source_spectra(step, build, edge)
    out = _sum(build, edge, "forward")
    what = Identity(edge.name, Pass.FORWARD, Part.PRODUCTS)
    # Few filters: spectra from a cache. Many: made in scratch, just before they are multiplied.
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
    """Declare the spectra of what a conv edge brings to its source's gradient."""
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
    """Declare the gradient of an edge's filters, from its source's images and its target's gradient."""
    x = _source_spectra(step, build, edge)
    dy = _gradient_spectra(step, build, edge, gradient)
    filters.weight_gradient(step, build, edge, x, dy)
    clear_unmet(step, build, edge)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Declare spectra of an edge's filters, or dense copies where spectra are made as they are used."""
    # Charged to the first pass that reads them.
    forward = build.layout.plan.layers[edge.name].forward == "fft"
    serves = Pass.FORWARD if forward else Pass.BACKWARD
    if filters.filters_stay_cached(build, edge):
        filters.filter_spectra_of(step, build, edge, serves)
    else:
        filters.densify(step, build, edge, serves)


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Declare the sum of what incoming edges brought; one inverse transform for each grid."""
    edges = build.layout.network.incoming(node.name)
    _finish(step, build, edges, "forward", node.name)


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """Declare the same for the gradients that outgoing edges brought back."""
    edges = build.layout.network.outgoing(node.name)
    _finish(step, build, edges, "gradient", node.name)


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
    """Return the edges whose contribution another edge's inverse transform already includes."""
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
        target = build.back(first) if which == "gradient" else build.maps.contributions[first.name]
        images_of_spectra(step, leaves[0], target, what)


def _by_grid(build: Build, edges: tuple[Edge, ...], which: PassName) -> list[list[Edge]]:
    """Return the edges that run this pass by FFT, in groups for which one inverse transform makes the images.

    They have one grid, and gradients one way to be folded.
    """
    groups: dict[object, list[Edge]] = defaultdict(list)
    for edge in edges:
        if _by_fft(build.layout.plan, edge, which):
            # Gradients that are folded differently cannot be summed before they are transformed
            # back.
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
    """Return the identity of the task that transforms an edge's source.

    It belongs to the first pass for which an edge that leaves the source asks.
    """
    # Reports charge what is shared to the pass that asks first (docs/design/tasks.md).
    forward = _any_by_fft(plan, network.outgoing(edge.source), "forward")
    return Identity(edge.source, Pass.FORWARD if forward else Pass.WEIGHT, Part.IMAGE_SPECTRA)


def output_identity(network: Network, plan: Plan, edge: Edge) -> Identity:
    """Return the identity of the task that transforms the gradient of an edge's target.

    The weight gradient asks first.
    """
    weight = _any_by_fft(plan, network.incoming(edge.target), "weight")
    return Identity(edge.target, Pass.WEIGHT if weight else Pass.BACKWARD, Part.OUTPUT_SPECTRA)


def _any_by_fft(plan: Plan, edges: tuple[Edge, ...], which: PassName) -> bool:
    return any(_by_fft(plan, edge, which) for edge in edges)


def _by_fft(plan: Plan, edge: Edge, which: PassName) -> bool:
    return edge.kind == "conv" and plan.layers[edge.name].method(which).algorithm == "fft"


def _sum(build: Build, edge: Edge, which: PassName) -> Spectra:
    """Return the spectra of what an edge brings to its target (forward) or its source (gradient)."""
    layout, end = build.layout, edge.target if which == "forward" else edge.source
    count = layout.batch * layout.network.node(end).channels
    use = FORWARD_SUMS if which == "forward" else BACKWARD_SUMS
    return Spectra(build, use, edge.name, count, grid_of(build, edge))
