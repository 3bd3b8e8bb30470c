"""Normalisation of a channel of a scan, in nnU-Net's ways."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from znnpy.config.prepare_section import ClipScheme, DeviationScheme, PlainScheme, Scheme
from znnpy.data.preparing.resampling import Float32
from znnpy.errors import VolumeError

LEAST = 1e-8  # by which is divided at least
BYTE = 255.0
CHUNK = 1 << 20  # values that are added in float64 at once

Mask = NDArray[np.bool_]


def normalise(channel: Float32, scheme: Scheme, inside: Mask | None, name: str) -> None:
    """Normalise a channel (z, y, x) in place; `inside`: its voxels that are no background.

    Raises VolumeError, which begins with `name`, for values that are no bytes where bytes are wanted.
    """
    match scheme:
        case DeviationScheme(inside=True):
            assert inside is not None
            values = channel[inside]
            mean, deviation = moments(values)
            channel[inside] = (values - mean) / max(deviation, LEAST)
        case DeviationScheme():
            mean, deviation = moments(channel.reshape(-1))
            channel -= mean
            channel /= max(deviation, LEAST)
        case ClipScheme():
            np.clip(channel, scheme.low, scheme.high, out=channel)
            channel -= scheme.mean
            channel /= max(scheme.deviation, LEAST)
        case PlainScheme(kind="range"):
            channel -= channel.min()
            channel /= max(float(channel.max()), LEAST)
        case PlainScheme(kind="bytes"):
            if channel.min() < 0 or channel.max() > BYTE:
                raise VolumeError(
                    f"{name} holds values from {channel.min():g} to {channel.max():g}; its network takes colours from "
                    "0 to 255 (data.prepare.normalize: bytes)"
                )
            channel /= BYTE


def moments(values: Float32) -> tuple[np.float32, float]:
    """Return mean and deviation of values in one axis, added up in float64; 0 and 0 of none."""
    if not values.size:
        return np.float32(0), 0.0
    parts = [values[at : at + CHUNK] for at in range(0, values.size, CHUNK)]
    mean = sum(float(part.sum(dtype=np.float64)) for part in parts) / values.size
    squares = sum(float(np.square(part - mean, dtype=np.float64).sum()) for part in parts)
    return np.float32(mean), (squares / values.size) ** 0.5
