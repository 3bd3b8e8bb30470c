"""ONNX's Resize by nearest voxels, as far as PyTorch has their rounding, or linear interpolation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from znnpy.fields import MOST_VOXELS
from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading
from znnpy.interop.operators import resizing, windows
from znnpy.interop.operators.resizing import Said
from znnpy.interop.operators.value import Value
from znnpy.layers.types import Interpolation
from znnpy.network.types import Triple

CENTRES, CORNERS = ("half_pixel", "pytorch_half_pixel"), "align_corners"
PART = 1e-6  # of a size: what float32 leaves of a scale
_NEAREST: dict[tuple[str, str], Interpolation] = {
    ("asymmetric", "floor"): "nearest",
    ("half_pixel", "round_prefer_ceil"): "nearest_exact",
    ("pytorch_half_pixel", "round_prefer_ceil"): "nearest_exact",
}
"""By the mode of coordinates and that of rounding."""


def resize(reading: Reading, op: Operator, name: str) -> Value:
    """Resize to any size, if nearest voxels are PyTorch's or each is as often there, or interpolate linearly."""
    x, mode = reading.value(op), op.attribute("mode", "nearest")
    where = op.attribute("coordinate_transformation_mode", "half_pixel")
    rounds = op.attribute("nearest_mode", "round_prefer_floor")
    op.attribute("cubic_coeff_a", -0.75), op.attribute("extrapolation_value", 0.0)
    if (
        op.attribute("antialias", 0)
        or op.attribute("exclude_outside", 0)
        or op.attribute("axes", None)
    ):
        raise op.wrong("attributes antialias, exclude_outside and axes are not supported")
    # Of a part of the image, also where sizes stay.
    if where == "tf_crop_and_resize":
        raise op.wrong(
            f"attribute coordinate_transformation_mode: {where} is not supported: Slice says a part"
        )
    if op.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise op.wrong("attribute keep_aspect_ratio_policy is not supported")
    size = _new_size(reading, op, x)
    old = (1, 1, 1) if x.spread else x.size
    for length, new in zip(old, size, strict=True):
        if length == new or length == 1:
            continue
        if mode == "linear" and where not in (*CENTRES, CORNERS):
            raise op.wrong(
                f"attribute coordinate_transformation_mode: {where[:40]} with mode linear is not supported"
            )
        if where == "pytorch_half_pixel" and new == 1:
            raise op.wrong(
                f"attribute coordinate_transformation_mode: {where} to one voxel is not supported"
            )
        if (
            mode == "nearest"
            and (where, rounds) not in _NEAREST
            and not _repeats(length, new, where, rounds)
        ):
            raise op.wrong(
                f"attributes {where[:40]} and {rounds[:40]} from {length} to {new} voxels are not supported"
            )
    if mode not in ("nearest", "linear"):
        raise op.wrong(f"attribute mode: {mode[:40]} is not supported")
    how = _NEAREST.get((where, rounds), "nearest")
    if mode == "linear":
        how = "corners" if where == CORNERS else "linear"
    stem = op.inputs[3].removesuffix(".size") if reading.given(op, 3) else ""
    said = said_by_export(reading, stem, x, size)
    return resizing.grown(reading.sketch, name, x, size, how, said)


def said_by_export(reading: Reading, stem: str, x: Value, size: Triple) -> Said | None:
    """Return ratios and voxels more, where constants of these names say them as `znnpy export` does, and give the size.

    Else a file tells sizes alone. Axes whose size stays have none.
    """
    names = [f"{stem}.{what}" for what in ("few", "many", "more")]
    if not stem or not all(name in reading.stored for name in names) or x.spread:
        return None
    few, many, more = (reading.stored[name]() for name in names)
    if not all(it.shape == (3,) and it.dtype.kind == "i" for it in (few, many, more)):
        return None
    if min(*few, *many) < 1 or max(*few, *many, *more, *-more) > MOST_VOXELS:
        return None
    ratios, added = [Fraction(1)] * 3, [0] * 3
    for axis, (old, new) in enumerate(zip(x.size, size, strict=True)):
        if old == new:
            continue
        if old // int(few[axis]) * int(many[axis]) + int(more[axis]) != new:
            return None
        ratios[axis], added[axis] = Fraction(int(many[axis]), int(few[axis])), int(more[axis])
    return (ratios[0], ratios[1], ratios[2]), (added[0], added[1], added[2])


def _new_size(reading: Reading, op: Operator, x: Value) -> Triple:
    if reading.given(op, 3):
        sizes = reading.numbers(op, 3, "sizes")
    else:
        scales = reading.array(op, 2, "scales").astype(np.float64).reshape(-1)
        if scales.size != len(x.seen) or not np.all((scales > 0) & (scales < 1 << 16)):
            raise op.wrong(f"scales {scales[:8]} must be positive, one for each axis")
        sizes = [int(np.floor(np.float32(n * s))) for n, s in zip(x.seen, scales, strict=True)]
        corners = op.attribute("coordinate_transformation_mode", "half_pixel") == CORNERS
        for n, s, new in zip(x.seen, scales, sizes, strict=True):
            if not corners and abs(n * s - new) > PART * new:
                raise op.wrong(
                    f"scale {s:.7g} of {n} voxels leaves a part of a voxel over, which is not supported; make the "
                    "file for an image of other sizes"
                )
    if len(sizes) != len(x.seen) or tuple(sizes[:2]) != x.seen[:2] or min(sizes) < 1:
        raise op.wrong(f"sizes {sizes[:8]} of a tensor {x.seen} are not supported")
    return windows.triple(reading.sketch, sizes[2:], x.dimensions, 1, "sizes")


def _repeats(length: int, new: int, where: str, rounds: str) -> bool:
    """Return whether nearest neighbours are each voxel `new / length` times, by the standard's formulas."""
    if new % length:
        return False
    factor, at = new // length, np.arange(new, dtype=np.float64)
    places = {
        "asymmetric": at / factor,
        "half_pixel": (at + 0.5) / factor - 0.5,
        "pytorch_half_pixel": (at + 0.5) / factor - 0.5,
        "align_corners": at * (length - 1) / max(new - 1, 1),
    }
    rounded: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if where not in places or rounds not in rounded:
        return False
    found = np.clip(rounded[rounds](places[where]), 0, length - 1)
    return np.array_equal(found, np.arange(new) // factor)
