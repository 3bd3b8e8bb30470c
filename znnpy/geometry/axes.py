"""Triples along z, y, x: scaled, counted, and written for people."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from znnpy.layers.types import AXES, Triple

__all__ = ["AXES", "ONE", "Step", "Steps", "describe", "scale", "voxels", "whole"]

ONE: Triple = (1, 1, 1)
Step = int | Fraction
"""A distance in input voxels; a fraction only where it is no whole number."""
Steps = tuple[Step, Step, Step]


def scale(a: Triple, b: Triple) -> Triple:
    """Product axis by axis."""
    return (a[0] * b[0], a[1] * b[1], a[2] * b[2])


def voxels(shape: Sequence[int]) -> int:
    """Number of voxels in a box."""
    return prod(shape)


def whole(step: Fraction) -> Step:
    """The number itself where it is whole."""
    return step.numerator if step.denominator == 1 else step


def describe(shape: Sequence[Step]) -> str:
    """A shape as users write it: 12 x 12 x 12."""
    return " x ".join(map(str, shape))
