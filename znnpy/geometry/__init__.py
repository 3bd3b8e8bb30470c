"""Geometry: shapes, strides, sparsity, field of view. Knows nothing of algorithms."""

from znnpy.geometry.axes import AXES, describe, voxels
from znnpy.geometry.fit import Extent, Geometry, NodeGeometry, fit, fit_input, largest, smallest
from znnpy.geometry.samples import refuse_single_values
from znnpy.geometry.trained import trained_geometry

__all__ = [
    "AXES",
    "Extent",
    "Geometry",
    "NodeGeometry",
    "describe",
    "fit",
    "fit_input",
    "largest",
    "refuse_single_values",
    "smallest",
    "trained_geometry",
    "voxels",
]
