"""Whole networks in plain float64 NumPy: `precision: float64`, and the reference that tests compare with."""

from znnpy.reference.evaluate import forward, gradients, moved_statistics

__all__ = ["forward", "gradients", "moved_statistics"]
