"""Warnings about what came out of a segmentation: nothing, or one object of almost all."""

from __future__ import annotations

import warnings

import numpy as np

from znnpy.data.volume import Volume
from znnpy.segment.method import Method
from znnpy.segment.summary import Summary
from znnpy.segment.wanted import Wanted


def remark(volume: Volume, method: Method, wanted: Wanted, found: Summary) -> None:
    """Warn of no objects, and of one of more than half the volume: boundaries have gaps, as a rule."""
    if not found.objects:
        _on_none(volume, method, wanted)
    elif wanted.kind != "foreground":
        _on_largest(volume, wanted.kind, found)


def _on_none(volume: Volume, method: Method, wanted: Wanted) -> None:
    least = f", in {wanted.min_size:,} voxels at least" if wanted.min_size > 1 else ""
    smaller = " or a smaller --min-size" if least else ""
    if method.begins is None:
        words, change = f"--method {method.name} found none{least}", "another"
    else:
        level = method.begins * wanted.level
        rising = wanted.kind == "boundary"
        side, change = ("below", "a higher") if rising else ("above", "a lower")
        share = f" ({method.begins:g} of the way to --threshold {wanted.threshold:g})"
        words = (
            f"--method {method.name} begins where values are {side} {level if rising else 1 - level:.3g}"
            f"{share if method.begins < 1 else ''}{least}"
        )
    warnings.warn(
        f"no objects in {volume.name}: {words}; take {change} --threshold{smaller}", stacklevel=3
    )


def _on_largest(volume: Volume, kind: str, found: Summary) -> None:
    voxels = int(np.prod(volume.extent, dtype=np.int64))
    if found.voxels <= voxels / 2:
        return
    change = "raise" if kind == "affinity" else "lower"
    warnings.warn(
        f"object {found.largest} has {found.voxels / voxels:.0%} of the voxels of {volume.name}: where it is "
        f"several that flow together through gaps, {change} --threshold, or take another --method",
        stacklevel=4,
    )
