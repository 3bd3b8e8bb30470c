"""How an image is prepared, as packages of bioimage.io say it, and the same done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.data_section import DataSection, FixedNormalize
from znnpy.config.prepare_section import ClipScheme, DeviationScheme, PrepareSection, Scheme
from znnpy.errors import ExportError
from znnpy.layers.types import AXES

Said = dict[str, Any]
"""Plain values of rdf.yaml."""
_SPACE = list(AXES)


def preprocessing(data: DataSection, channels: int) -> list[Said]:
    """Return the preparation of an image as the format says it; ExportError where it cannot.

    What a type's largest value divides (`unit`), axes, cropping and resampling stay in words.
    """
    if data.prepare is not None:
        return _schemes(data.prepare, channels)
    if isinstance(data.normalize, FixedNormalize):
        return [_fixed(data.normalize.mean, data.normalize.deviation, channels)]
    if data.normalize.kind == "mean_std":
        return [_DEVIATION]
    return []


_DEVIATION: Said = {"id": "zero_mean_unit_variance", "kwargs": {"axes": _SPACE, "eps": 1e-6}}
_PLAIN: Mapping[str, list[Said]] = {
    "range": [
        {
            "id": "scale_range",
            "kwargs": {"axes": _SPACE, "min_percentile": 0.0, "max_percentile": 100.0},
        }
    ],
    "bytes": [{"id": "scale_linear", "kwargs": {"gain": 1 / 255, "offset": 0.0}}],
    "none": [],
}


def _fixed(mean: Sequence[float], deviation: Sequence[float], channels: int) -> Said:
    if len(mean) == len(deviation) == 1:
        kwargs: Said = {"mean": mean[0], "std": deviation[0]}
    else:
        each = [list(np.broadcast_to(some, channels).tolist()) for some in (mean, deviation)]
        kwargs = {"mean": each[0], "std": each[1], "axis": "channel"}
    return {"id": "fixed_zero_mean_unit_variance", "kwargs": kwargs}


def _schemes(prepare: PrepareSection, channels: int) -> list[Said]:
    schemes: Sequence[Scheme] = prepare.normalize
    first = schemes[0]
    clipped = [it for it in schemes if isinstance(it, ClipScheme)]
    if len(clipped) == len(schemes) and len({(it.low, it.high) for it in clipped}) == 1:
        limits = {"min": clipped[0].low, "max": clipped[0].high}
        deviations = [max(it.deviation, 1e-8) for it in clipped]
        fixed = _fixed([it.mean for it in clipped], deviations, channels)
        return [{"id": "clip", "kwargs": limits}, fixed]
    if any(it != first for it in schemes) or clipped:
        raise ExportError(
            "data.prepare.normalize: a bioimage.io package prepares all channels in one way; take --format onnx"
        )
    if isinstance(first, DeviationScheme):
        if first.inside:
            raise ExportError(
                "data.prepare.normalize: a bioimage.io package cannot normalise by the voxels inside alone; take "
                "--format onnx"
            )
        return [_DEVIATION]
    return _PLAIN[first.kind]


def prepared(image: NDArray[np.float32], steps: Sequence[Said]) -> NDArray[np.float32]:
    """Return an image (batch, channel, z, y, x) after these steps, as the format defines them."""
    found = image.astype(np.float64)
    for step in steps:
        kwargs, over = step.get("kwargs", {}), (2, 3, 4)
        match step["id"]:
            case "zero_mean_unit_variance":
                away = found - found.mean(over, keepdims=True)
                found = away / (found.std(over, keepdims=True) + kwargs["eps"])
            case "fixed_zero_mean_unit_variance":
                mean, deviation = (
                    np.reshape(np.array(kwargs[key], float), (-1, 1, 1, 1))
                    for key in ("mean", "std")
                )
                found = (found - mean) / deviation
            case "clip":
                found = found.clip(kwargs["min"], kwargs["max"])
            case "scale_linear":
                found = found * kwargs["gain"]
            case "scale_range":
                low, high = (some(found, over, keepdims=True) for some in (np.min, np.max))
                found = (found - low) / (high - low + 1e-6)
    return found.astype(np.float32)
