"""How an image is prepared, as packages of bioimage.io say it, and the same done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.data_section import DataSection
from znnpy.config.normalize_section import (
    ClipNormalize,
    DeviationNormalize,
    FixedNormalize,
    PercentilesNormalize,
    RangeNormalize,
)
from znnpy.config.prepare_section import ClipScheme, DeviationScheme, Scheme
from znnpy.errors import ExportError
from znnpy.interop.bioimageio.steps import Step, applied
from znnpy.interop.described import Described
from znnpy.layers.types import AXES

Said = dict[str, Any]
"""Plain values of rdf.yaml."""
_SPACE = list(AXES)


def preprocessing(data: DataSection, channels: int) -> list[Said]:
    """Return the preparation of an image as the format says it; ExportError where it cannot.

    What a type's largest value divides (`unit`), axes, cropping and resampling stay in words.
    """
    if data.prepare is not None and data.prepare.normalize is not None:
        return _schemes(data.prepare.normalize)
    match data.normalize:
        case FixedNormalize(mean=mean, deviation=deviation):
            return [_fixed(mean, deviation, channels)]
        case ClipNormalize() as window:
            return _window(window, channels)
        case DeviationNormalize() | RangeNormalize() | PercentilesNormalize() as own:
            return [_own(own)]
        case _:
            return []


def _window(window: ClipNormalize, channels: int) -> list[Said]:
    if len(set(window.low)) > 1 or len(set(window.high)) > 1:
        raise ExportError(
            "data.normalize: a bioimage.io package cuts all channels to one window; take --format onnx"
        )
    limits = {"min": window.low[0], "max": window.high[0]}
    return [{"id": "clip", "kwargs": limits}, _fixed(window.mean, window.deviation, channels)]


def _own(own: DeviationNormalize | RangeNormalize | PercentilesNormalize) -> Said:
    if own.nonzero:
        raise ExportError(
            "data.normalize.nonzero: a bioimage.io package cannot leave voxels of 0 out; take --format onnx"
        )
    if isinstance(own, PercentilesNormalize) and own.clip:
        raise ExportError(
            "data.normalize.clip: percentiles of a bioimage.io package do not cut; take --format onnx"
        )
    axes = _SPACE if own.per == "volume" else _SPACE[1:]
    if isinstance(own, DeviationNormalize):
        return {"id": "zero_mean_unit_variance", "kwargs": {"axes": axes, "eps": 1e-6}}
    low, high = (own.low, own.high) if isinstance(own, PercentilesNormalize) else (0.0, 100.0)
    kwargs = {"axes": axes, "min_percentile": low, "max_percentile": high}
    return {"id": "scale_range", "kwargs": kwargs}


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


def _schemes(schemes: Sequence[Scheme]) -> list[Said]:
    first = schemes[0]
    clipped = [it for it in schemes if isinstance(it, ClipScheme)]
    if len(clipped) == len(schemes) and len({(it.low, it.high) for it in clipped}) == 1:
        limits = {"min": clipped[0].low, "max": clipped[0].high}
        deviations = [max(it.deviation, 1e-8) for it in clipped]
        fixed = _fixed([it.mean for it in clipped], deviations, len(schemes))
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
    said = [Step(step["id"], Described(step.get("kwargs", {}), step["id"])) for step in steps]
    return applied(image, said).astype(np.float32)
