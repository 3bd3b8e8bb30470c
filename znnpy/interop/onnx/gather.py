"""ONNX's Gather of voxels that a resize by nearest ones takes, of a slice of voxels, or of channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading
from znnpy.interop.onnx.resize import said_by_export
from znnpy.interop.operators import arithmetic, resizing, windows
from znnpy.interop.operators.value import Value
from znnpy.layers.resizing import taken
from znnpy.layers.types import Interpolation

MODES: tuple[Interpolation, ...] = ("nearest", "nearest_exact")


def gather(reading: Reading, op: Operator, name: str) -> Value:
    """Take channels in any order, a slice of voxels, or those of a resize; the axis stays."""
    x, rank = reading.value(op), len(reading.value(op).seen)
    axis, places = op.attribute("axis", 0), reading.array(op, 1, "indices")
    if not -rank <= axis < rank or places.dtype.kind not in "iu" or places.ndim != 1:
        raise op.wrong(f"of indices {places.shape} along axis {axis} is not supported: a list is")
    axis, old = axis % rank, x.seen[axis]
    places = np.where(places < 0, places + old, places)
    if not places.size or places.min() < 0 or places.max() >= old:
        raise op.wrong(f"indices {places[:8].tolist()} are not among {old}")
    if np.array_equal(places, np.arange(old)):
        return x
    if axis == 1:
        return arithmetic.chosen(reading.sketch, name, x, places.tolist())
    if axis == 0:
        raise op.wrong("of samples is not supported")
    return _of_space(reading, op, name, axis, places)


def _of_space(
    reading: Reading, op: Operator, name: str, axis: int, places: NDArray[np.int64]
) -> Value:
    x, new = reading.value(op), list(reading.value(op).seen[2:])
    old, new[axis - 2] = x.seen[axis], len(places)
    size = windows.triple(reading.sketch, new, x.dimensions, 1, "sizes")
    said = said_by_export(reading, op.inputs[1].rpartition(".voxels_")[0], x, size)
    first = int(places[0])
    if said is None and np.array_equal(places, np.arange(first, first + len(places))):
        sides = [(0, 0)] * 3
        sides[axis - len(x.seen)] = (first, old - first - len(places))
        return windows.cropped(reading.sketch, name, x, (sides[0], sides[1], sides[2]))
    for mode in MODES:
        if np.array_equal(places, taken(old, len(places), mode)[0]):
            alone = reading.read.get(op.inputs[0], 0) == 1
            return resizing.grown(reading.sketch, name, x, size, mode, said, alone=alone)
    raise op.wrong(
        f"takes voxels {places[:8].tolist()} ... of {old}, which are neither a slice nor those of a resize"
    )
