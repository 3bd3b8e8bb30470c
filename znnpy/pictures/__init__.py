"""Draws PNGs of volumes: slices side by side, object colours, overlays; opens napari."""

from znnpy.pictures.panels import side_by_side

__all__ = ["side_by_side"]
