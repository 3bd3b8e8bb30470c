"""A slice of raw image, label and prediction side by side, as a PNG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
Titles = tuple[str, str, str]
# Inches of the longer side of a panel; wide slices are stacked, others stand in a row.
PANEL = 5.0


def side_by_side(
    path: str | Path,
    raw: Array,
    label: Array,
    prediction: Array,
    *,
    z: int | None = None,
    titles: Titles = ("raw", "label", "prediction"),
    caption: str = "",
) -> None:
    """Write a PNG of slice `z` (the middle one if None) of three volumes of the same z, y, x.

    Each is (z, y, x) or (C, z, y, x). One channel is grey: the raw image over its own range, label
    and prediction from 0 to 1; three channels (affinities z, y, x) are red, green and blue; other
    numbers of channels show their mean. Integer labels with more than two values get one colour per
    object. Raises ShapeError if the volumes differ in z, y, x.
    """
    volumes = [_four(volume) for volume in (raw, label, prediction)]
    if len({volume.shape[1:] for volume in volumes}) > 1:
        shapes = ", ".join(str(volume.shape[1:]) for volume in volumes)
        raise ShapeError(f"raw, label and prediction must cover the same z, y, x; got {shapes}")
    index = volumes[0].shape[1] // 2 if z is None else z
    panels = [
        _stretched(_channels(volumes[0][:, index])),
        _label(volumes[1][:, index]),
        np.clip(_channels(volumes[2][:, index]), 0, 1),
    ]
    _save(_figure(panels, titles, caption or f"slice z = {index}"), Path(path))


def _four(volume: Array) -> Array:
    if volume.ndim not in (3, 4):
        raise ShapeError(f"expected (z, y, x) or (c, z, y, x), got shape {volume.shape}")
    return volume if volume.ndim == 4 else volume[None]


def _channels(image: Array) -> Array:
    """(C, y, x) as grey (y, x) or colour (y, x, 3), float."""
    values = image.astype(np.float32)
    return np.moveaxis(values, 0, -1) if len(values) == 3 else values.mean(axis=0)


def _stretched(image: Array) -> Array:
    low, high = np.percentile(image, (0.5, 99.5))
    stretched: Array = (image - low) / max(float(high - low), 1e-6)
    return np.clip(stretched, 0, 1)


def _label(image: Array) -> Array:
    if len(image) == 1 and image.dtype.kind in "ui" and image.max() > 1:
        return _colours(image[0])
    return np.clip(_channels(image), 0, 1)


def _colours(ids: Array) -> Array:
    """One colour per object, the same for the same set of objects; 0 is black."""
    values, index = np.unique(ids, return_inverse=True)
    colours = np.random.default_rng(0).uniform(0.25, 1.0, (len(values), 3))
    colours[values == 0] = 0
    return colours[index.reshape(ids.shape)]


def _figure(panels: Sequence[Array], titles: Titles, caption: str) -> Figure:
    from matplotlib.figure import Figure  # takes a second, and writes into the home directory

    height, width = panels[0].shape[:2]
    scale = PANEL / max(height, width)
    wide = width > 1.5 * height
    rows, columns = (3, 1) if wide else (1, 3)
    size = (columns * (width * scale + 0.2), rows * (height * scale + 0.35) + 0.4)
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    figure.suptitle(caption, fontsize=11)
    axes = figure.subplots(rows, columns)
    for axis, panel, title in zip(axes, panels, titles, strict=True):
        axis.imshow(panel, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    return figure


def _save(figure: Figure, path: Path) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(beside, format="png")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
