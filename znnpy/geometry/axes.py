"""Triples along z, y, x: scaled, counted, and written for people."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from znnpy.network.types import Triple

AXES = ("z", "y", "x")


def scale(a: Triple, b: Triple) -> Triple:
    """Product axis by axis."""
    return (a[0] * b[0], a[1] * b[1], a[2] * b[2])


def voxels(shape: Sequence[int]) -> int:
    """Number of voxels in a box."""
    return prod(shape)


def describe(shape: Sequence[int]) -> str:
    """A shape as users write it: 12 x 12 x 12."""
    return " x ".join(map(str, shape))
