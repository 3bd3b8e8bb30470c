"""Tasks that set the gradients of taps which only ever meet padding to exactly 0.

FFTs leave rounding errors there, and an optimiser that divides by the size of gradients (Adam) would make whole steps
of these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE


def clear_unmet(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that write zeros at the taps of an edge that meet no voxel, if it has any."""
    parameter = build.parameters[edge.name]
    for low, high in unmet_runs(build.layout, edge):
        for index, piece in enumerate(parameter.pieces):
            tap = piece.inputs * piece.width
            step.add(
                zero_flat,
                {
                    "target": parameter.gradient + 4 * (piece.start + low * tap),
                    "length": (high - low) * tap,
                },
                what=Identity(edge.name, Pass.WEIGHT, Part.ZEROS),
                cost=(high - low) * tap * 4 / MEMORY_RATE,
                reads=[],
                writes=[parameter.gradient_region(index, index + 1)],
            )


def unmet_runs(layout: Layout, edge: Edge) -> list[tuple[int, int]]:
    """Return runs low..high of taps that meet no voxel, counted in z, y, x order."""
    # Other borders show voxels of the image everywhere, so every tap meets some.
    if edge.border != "zeros":
        return []
    z, y, x = (_met(layout, edge, axis) for axis in range(3))
    # A tap meets a voxel if it does along all three axes.
    unmet = ~(z[:, None, None] & y[:, None] & x).ravel()
    # Changes between met and unmet: a start and an end of each run, in turns.
    ends = np.flatnonzero(np.diff(unmet.astype(np.int8), prepend=0, append=0))
    return [(int(low), int(high)) for low, high in ends.reshape(-1, 2)]


def _met(layout: Layout, edge: Edge, axis: int) -> NDArray[np.bool_]:
    """Return by tap along an axis whether it meets a voxel of the larger end from any voxel of the smaller one."""
    shapes = layout.shape(edge.source)[axis], layout.shape(edge.target)[axis]
    seen, standing = shapes[::-1] if edge.kind == "conv_transpose" else shapes
    taps = np.arange(edge.size[axis]) * layout.geometry.dilations[edge.name][axis]
    places = taps[:, None] + np.arange(standing) * edge.stride[axis]
    inside = places - layout.padding(edge)[axis][0]
    return np.array([((row >= 0) & (row < seen)).any() for row in inside])
