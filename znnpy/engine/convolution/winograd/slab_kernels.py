"""Decides which kernel computes slabs of tiles."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.winograd import cubes, lines
from znnpy_kernels.winograd.both_gradients import NO_WEIGHTS
from znnpy_kernels.winograd.cubes import CUBE
from znnpy_kernels.winograd.flat import TAPS_OF_PLANES, flat_floats
from znnpy_kernels.winograd.flat_back import flat_back_floats, winograd_flat_back
from znnpy_kernels.winograd.forward import WINOGRAD, scratch_floats, winograd_flat
from znnpy_kernels.winograd.lines import TAPS_OF_LINES
from znnpy_kernels.winograd.planar import WINOGRAD_PLANAR, planar_scratch_floats
from znnpy_kernels.winograd.planar_back import WINOGRAD_PLANAR_BACK, planar_back_floats

from znnpy.engine.convolution.winograd.operands import Ends
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import joins
from znnpy.network.types import ONCE, Edge


def slab_kernel(ends: Ends, *, weights: bool) -> tuple[Kernel, int, Mapping[str, int]]:
    """Return the kernel of slabs, floats of its scratch, and argument words that it alone has.

    `weights`: with the weight gradient.
    """
    size, channels = ends.edge.size, (ends.source.channels, ends.target.channels)
    if ends.source.lanes == 1 and weights:
        width = ends.build.parameters[ends.edge.name].pieces[0].width
        return WINOGRAD_PLANAR_BACK[size], planar_back_floats(size, *channels), {"width": width}
    if ends.source.lanes == 1:
        return WINOGRAD_PLANAR[size], planar_scratch_floats(size, *channels), {}
    joined = ends.build.layout.takes_joined(ends.edge, "gradient" if ends.backward else "forward")
    if joined and _are_lines(ends):
        kernel = lines.winograd_lines_back if weights else lines.winograd_lines
        return kernel, lines.lines_floats(*channels, weights=weights), NO_WEIGHTS
    if joined and size == CUBE and ends.dilation == ONCE:
        kernel = cubes.winograd_cubes_back if weights else cubes.winograd_cubes
        return kernel, cubes.cubes_floats(*channels, weights=weights), NO_WEIGHTS
    if weights:
        return winograd_flat_back, flat_back_floats(*channels), {}
    if joined and size == TAPS_OF_PLANES:
        return winograd_flat, flat_floats(*channels), {}
    return WINOGRAD[size], scratch_floats(size, *channels), {}


def _are_lines(ends: Ends) -> bool:
    """Return whether a pass of 3 x 1 x 1 filters goes row by row: rows of both ends are the same."""
    rows = ends.source.shape[1:] == ends.target.shape[1:]
    outside = ends.words["before_y"] or ends.words["before_x"] or ends.words["accumulate"]
    return ends.edge.size == TAPS_OF_LINES and rows and not outside


def makes_both(build: Build, edge: Edge) -> bool:
    """Return whether a layer's weight gradient makes its data gradient in passing."""
    return edge.name in build.maps.backward and joins(build.layout, edge)
