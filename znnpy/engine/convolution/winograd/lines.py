"""Decides which passes of 3 x 1 x 1 filters go row by row, and where one task makes both gradients; by sizes alone."""

from __future__ import annotations

from znnpy_kernels.winograd.lines import LINES, SUMS_BYTES, TAPS_OF_LINES, sums_bytes

from znnpy.engine.convolution.winograd.operands import Ends
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.layout import Layout
from znnpy.network.types import Edge


def are_lines(ends: Ends) -> bool:
    """Return whether a pass between blocks of channels goes row by row: rows of both ends are the same."""
    rows = ends.source.shape[1:] == ends.target.shape[1:]
    outside = ends.words["before_y"] or ends.words["before_x"] or ends.words["accumulate"]
    return LINES and ends.edge.size == TAPS_OF_LINES and rows and not outside


def joins(layout: Layout, edge: Edge) -> bool:
    """Return whether data and weight gradient go in the same tasks where both are wanted."""
    layer = layout.plan.layers[edge.name]
    return layer.gradient == layer.weight == "winograd" and edge.learn and sums_lines(layout, edge)


def sums_lines(layout: Layout, edge: Edge) -> bool:
    """Return whether weight gradients go row by row: those by Winograd, made with the data gradient or alone."""
    shape = layout.conv_shape(edge)
    plain = not (layout.bands(edge) or layout.folded(edge) or layout.lanes(edge.source) == 1)
    _, *others = layout.padding(edge)
    small = sums_bytes(shape.inputs, shape.outputs) <= SUMS_BYTES
    lines = LINES and edge.size == TAPS_OF_LINES and not any(map(any, others))
    return plain and small and lines


def makes_both(build: Build, edge: Edge) -> bool:
    """Return whether a layer's weight gradient makes its data gradient in passing."""
    return edge.name in build.maps.backward and joins(build.layout, edge)
