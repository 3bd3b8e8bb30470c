"""Whole networks in plain NumPy and float64: the oracle of the tests and `precision: float64`."""

from znnpy.reference.evaluate import forward, gradients
from znnpy.reference.losses import loss_and_gradient

__all__ = ["forward", "gradients", "loss_and_gradient"]
