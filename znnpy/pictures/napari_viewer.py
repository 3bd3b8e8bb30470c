"""Shows volumes in napari, if it is installed: lazily read, in nanometres, objects as labels."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from znnpy.data.opening import load
from znnpy.data.volume import Array, ArrayVolume, Volume
from znnpy.errors import VolumeError
from znnpy.pictures.overlays import Layer


def show(layers: Sequence[Layer]) -> None:
    """Open a viewer and wait until it is closed.

    Volumes that do not fit into memory are read where one looks. Raises VolumeError without napari
    or without a display.
    """
    napari = _napari()
    viewer = napari.Viewer(title="znnpy", ndisplay=2)
    for layer in layers:
        add(viewer, layer)
    viewer.dims.axis_labels = ("c", "z", "y", "x")[-viewer.dims.ndim :]
    napari.run()


def add(viewer: Any, layer: Layer) -> None:
    """Add one volume to a viewer, with its voxel size as scale and its offset as translation."""
    array, named, kind = layer_data(layer)
    (viewer.add_labels if kind == "labels" else viewer.add_image)(array, **named)


def layer_data(layer: Layer) -> tuple[Any, dict[str, Any], str]:
    """Return a volume as napari's readers do: an array, what napari is told about it, and labels or image.

    Volumes that do not fit into memory become arrays that read where one looks.
    """
    volume = load(layer.volume)
    array = _arrayed(volume)
    named: dict[str, Any] = {
        "name": layer.title,
        "scale": volume.resolution,
        "translate": volume.offset,
    }
    if layer.kind == "labels":
        return array[0], named, "labels"
    if volume.channels == 1:
        mapping = {"colormap": "magma", "contrast_limits": (0, 1), "opacity": 0.5}
        return array[0], {**named, **(mapping if _unit(layer) else {})}, "image"
    names = [f"{layer.title} {channel}" for channel in range(volume.channels)]
    return array, {**named, "channel_axis": 0, "name": names}, "image"


def _napari() -> Any:
    try:
        import napari
    except ImportError as error:
        raise VolumeError(
            'napari is not installed: pip install "napari[all]", or draw PNGs with --output'
        ) from error
    if sys.platform == "linux" and not any(
        os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY")
    ):
        raise VolumeError("there is no display for napari here; draw PNGs with --output")
    return napari


def _unit(layer: Layer) -> bool:
    return layer.kind == "prediction" and layer.volume.dtype.kind == "f"


def _arrayed(volume: Volume) -> Any:
    """Return the volume as (C, Z, Y, X): an array in memory, or one that reads the parts that are looked at."""
    if isinstance(volume, ArrayVolume):
        return volume.array
    import dask.array  # napari needs it, so it is there

    return dask.array.from_array(_Lazy(volume), chunks=(volume.channels, *volume.chunk))


class _Lazy:
    """A volume as an array of shape (C, Z, Y, X) that is read by slices."""

    ndim = 4

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self.shape, self.dtype = volume.shape, volume.dtype

    def __getitem__(self, key: tuple[slice | int, ...]) -> Array:
        """Read slices with positive steps, or numbers, which drop their axis; one for each axis."""
        spans = [
            range(size)[part] if isinstance(part, slice) else range(size)[part : part + 1]
            for part, size in zip(key, self.shape, strict=True)
        ]
        dropped = tuple(slice(None) if isinstance(part, slice) else 0 for part in key)
        if not all(spans):
            return np.empty([len(span) for span in spans], self.dtype)[dropped]
        z, y, x = spans[1:]
        block = self._volume.read((z[0], y[0], x[0]), (z[-1] + 1, y[-1] + 1, x[-1] + 1))
        thinned = block[list(spans[0]), :: z.step, :: y.step, :: x.step]
        return np.asarray(thinned[dropped])
