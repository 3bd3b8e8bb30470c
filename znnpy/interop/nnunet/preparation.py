"""nnU-Net's preprocessing as `data.prepare` keys, and its prediction as `inference` keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from znnpy.data.preparing.resampling import MILLIMETRE
from znnpy.errors import ModelFileError
from znnpy.interop.described import Described
from znnpy.interop.nnunet.labels import Labels
from znnpy.interop.nnunet.plans import Plans

_PLAIN = {
    "NoNormalization": "none",
    "RescaleTo01Normalization": "range",
    "RGBTo01Normalization": "bytes",
}
_CLIP = {"low": "percentile_00_5", "high": "percentile_99_5", "mean": "mean", "deviation": "std"}


def prepare_keys(plans: Plans, channels: int) -> dict[str, Any]:
    """Return the keys of `data.prepare` that say what nnU-Net does before and after its net."""
    configuration = plans.configuration
    schemes = configuration.listed("normalization_schemes")
    masks = configuration.listed("use_mask_for_norm")
    if len(schemes) != channels or len(masks) != channels:
        raise configuration.wrong(
            "normalization_schemes", f"must name one for each of {channels} channels"
        )
    return {
        "transpose": _axes(plans.whole),
        "normalize": [
            _scheme(plans, c, str(schemes[c]), masks[c] is True) for c in range(channels)
        ],
        "spacing": _spacing(plans),
        "resample": _resampling(configuration, "data"),
        "restore": _resampling(configuration, "probabilities"),
    }


def inference_keys(plans: Plans, labels: Labels, mirrored: Any) -> dict[str, Any]:
    """Return the keys of `inference`; `mirrored`: the axes of the checkpoint, as numbers from 0."""
    flat = plans.dimensions == 2
    names = "yx" if flat else "zyx"
    axes = mirrored if isinstance(mirrored, tuple | list) else ()
    if not all(type(axis) is int and 0 <= axis < len(names) for axis in axes):
        raise ModelFileError(
            f"{plans.whole.where}: its checkpoint mirrors along axes {str(mirrored)[:40]}, of {len(names)}"
        )
    found: dict[str, Any] = {
        "window": window(plans),
        "overlap": [0.0, 0.5, 0.5] if flat else 0.5,
        "blend": "nnunet",
        "spread": "even",
        "flips": [names[axis] for axis in axes],
    }
    if labels.regions is not None:
        found["regions"] = list(labels.regions)
    return found


def window(plans: Plans) -> list[int]:
    """Return the size of patches and windows z, y, x."""
    return [1] * (3 - plans.dimensions) + plans.configuration.integers("patch_size")


def _axes(whole: Described) -> list[int]:
    axes = [int(axis) for axis in whole.numbers("transpose_forward")]
    if sorted(axes) != [0, 1, 2]:
        raise whole.wrong("transpose_forward", "must hold 0, 1 and 2, each once")
    if [axes.index(axis) for axis in range(3)] != list(whole.listed("transpose_backward")):
        raise whole.wrong("transpose_backward", f"must undo transpose_forward, {axes}")
    return axes


def _scheme(plans: Plans, channel: int, name: str, masked: bool) -> dict[str, Any]:
    if name == "ZScoreNormalization":
        return {"kind": "deviation", "inside": masked}
    if name == "CTNormalization":
        numbers = plans.intensities(channel)
        return {"kind": "clip", **{key: numbers.number(theirs) for key, theirs in _CLIP.items()}}
    if name in _PLAIN:
        return {"kind": _PLAIN[name]}
    raise ModelFileError(
        f"{plans.configuration.where}: normalization_schemes: {name[:60]!r} is not supported; known are "
        f"ZScoreNormalization, CTNormalization, {', '.join(_PLAIN)}"
    )


def _spacing(plans: Plans) -> list[float | None]:
    """Return the voxel size in nanometres; none along an axis of slices, or of pictures, which have no size."""
    sizes = plans.configuration.numbers("spacing")
    if len(sizes) != plans.dimensions or min(sizes) <= 0:
        raise plans.configuration.wrong("spacing", f"must hold {plans.dimensions} sizes above 0")
    if plans.whole.text("image_reader_writer") == "NaturalImage2DIO":
        if set(sizes) != {1.0}:
            raise plans.configuration.wrong("spacing", "must be 1 for pictures")
        return [None, None, None]
    return [None] * (3 - len(sizes)) + [_nanometres(size) for size in sizes]


def _nanometres(size: float) -> float:
    """Return the number whose share of a million is a size in millimetres, exactly where there is one."""
    found = size * MILLIMETRE
    near: Sequence[float] = (found, math.nextafter(found, 0), math.nextafter(found, math.inf))
    return next((it for it in near if it / MILLIMETRE == size), found)


def _resampling(configuration: Described, what: str) -> dict[str, Any]:
    keys = configuration.inside(f"resampling_fn_{what}_kwargs")
    keys.only(("is_seg", "order", "order_z", "force_separate_z", "separate_z_anisotropy_threshold"))
    if keys.truth("is_seg"):
        raise keys.wrong("is_seg", "must be false for images and probabilities")
    if (
        "separate_z_anisotropy_threshold" in keys
        and keys.number("separate_z_anisotropy_threshold") != 3
    ):
        raise keys.wrong("separate_z_anisotropy_threshold", "must be 3")
    planes: Any = keys.truth("force_separate_z") if "force_separate_z" in keys else "auto"
    orders = {}
    splines = 3 if what == "data" else 1
    for ours, theirs, most in (("order", "order", splines), ("across", "order_z", 1)):
        number = int(keys.number(theirs)) if theirs in keys else {"order": 3, "order_z": 0}[theirs]
        if not 0 <= number <= most:
            raise keys.wrong(theirs, f"must be 0 to {most}")
        orders[ours] = number
    return {**orders, "planes": planes}
