"""Pictures for people."""

from znnpy.pictures.slices import side_by_side

__all__ = ["side_by_side"]
