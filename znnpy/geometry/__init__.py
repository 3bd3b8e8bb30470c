"""Shapes, strides, dilations (ZNN's sparsity) and receptive fields of networks; no algorithm, no memory."""

from znnpy.geometry.axes import AXES, describe, voxels
from znnpy.geometry.finest_outputs import trained_geometry
from znnpy.geometry.shape_inference import (
    Extent,
    Geometry,
    NodeGeometry,
    fit,
    fit_input,
    largest,
    refuse_single_values,
    smallest,
)

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
