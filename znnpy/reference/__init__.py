"""Whole networks in plain NumPy and float64: the oracle of the tests and `precision: float64`."""

from znnpy.reference.evaluate import forward, gradients, moved_statistics

__all__ = ["forward", "gradients", "moved_statistics"]
