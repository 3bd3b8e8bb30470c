"""Arithmetic on triples along z, y, x, and how a shape is written in messages."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from znnpy.layers.types import AXES, Triple

__all__ = ["AXES", "ONE", "Step", "Steps", "describe", "scale", "voxels", "whole"]

ONE: Triple = (1, 1, 1)
Step = int | Fraction
"""A distance in input voxels: an int where it is whole, else a Fraction (after upsampling)."""
Steps = tuple[Step, Step, Step]


def scale(a: Triple, b: Triple) -> Triple:
    """Return the product of two triples, axis by axis."""
    return (a[0] * b[0], a[1] * b[1], a[2] * b[2])


def voxels(shape: Sequence[int]) -> int:
    """Return the number of voxels in a box of this shape."""
    return prod(shape)


def whole(step: Fraction) -> Step:
    """Return a whole fraction as an int, any other unchanged."""
    return step.numerator if step.denominator == 1 else step


def describe(shape: Sequence[Step]) -> str:
    """Return a shape as text for messages: 12 x 12 x 12."""
    return " x ".join(map(str, shape))
