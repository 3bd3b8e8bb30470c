"""Draws one slice of raw image, label and prediction side by side, as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError
from znnpy.pictures.colours import object_colours
from znnpy.pictures.panels import Panel, Voxels, draw, stretched

Array = NDArray[Any]
Titles = tuple[str, str, str]


def side_by_side(
    path: str | Path,
    raw: Array,
    label: Array,
    prediction: Array,
    *,
    z: int | None = None,
    titles: Titles = ("raw", "label", "prediction"),
    caption: str = "",
    voxels: Voxels | None = None,
    span: tuple[float, float] = (0, 1),
) -> None:
    """Write a PNG of slice `z` (the middle one if None) of three volumes of the same z, y, x.

    Each is (z, y, x) or (C, z, y, x). One channel is grey: the raw image over its own range, label
    and prediction over `span`; three channels (affinities z, y, x) are red, green and blue; other
    numbers of channels show their mean. Integer labels with more than two values get one colour per
    object. Raises ShapeError if the volumes differ in z, y, x.
    """
    volumes = [_four(volume) for volume in (raw, label, prediction)]
    if len({volume.shape[1:] for volume in volumes}) > 1:
        shapes = ", ".join(str(volume.shape[1:]) for volume in volumes)
        raise ShapeError(f"raw, label and prediction must cover the same z, y, x; got {shapes}")
    index = volumes[0].shape[1] // 2 if z is None else z
    images = [
        stretched(as_image(volumes[0][:, index])),
        _label(volumes[1][:, index], span),
        stretched(as_image(volumes[2][:, index]), span),
    ]
    panels = [Panel(title, image) for title, image in zip(titles, images, strict=True)]
    draw(Path(path), panels, caption or f"slice z = {index}", voxels)


def as_image(image: Array) -> Array:
    """Return (C, y, x) as grey (y, x) or, for three channels, colour (y, x, 3); float32."""
    values = image.astype(np.float32)
    return np.moveaxis(values, 0, -1) if len(values) == 3 else values.mean(axis=0)


def _four(volume: Array) -> Array:
    if volume.ndim not in (3, 4):
        raise ShapeError(f"expected (z, y, x) or (c, z, y, x), got shape {volume.shape}")
    return volume if volume.ndim == 4 else volume[None]


def _label(image: Array, span: tuple[float, float]) -> Array:
    if len(image) == 1 and image.dtype.kind in "ui" and image.max() > 1:
        return object_colours(image[0])
    return stretched(as_image(image), span)
