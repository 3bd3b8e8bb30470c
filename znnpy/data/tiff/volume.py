"""A volume in a TIFF file, read page by page: plain stacks, ImageJ and OME."""

from __future__ import annotations

import os
import re
import struct
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from znnpy.data.class_labels import first_class_of
from znnpy.data.file_changes import Watch
from znnpy.data.flat_array import FlatArray
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import COMPRESSION, SMALL
from znnpy.data.tiff.codecs import explained, refuse_codec
from znnpy.data.tiff.ome import ome_noted, ome_place, ome_size
from znnpy.data.volume import (
    Array,
    Shape4,
    Triple,
    Triple64,
    Volume,
    directions_of,
    nanometres,
    neighbours_of,
)
from znnpy.errors import VolumeError, refuse_own

# What tifffile may call the axis along which pages are stacked, best first.
_STACK_AXES = "ZIQTRAM"
_CHANNEL_AXES = "CS"


class TiffVolume(Volume):
    """The first image series of a TIFF file, or all that are one page and alike; read by rows or by page.

    Voxel size: OME metadata, or ImageJ's unit, spacing and resolution. Resolution tags alone say
    nothing of z, and mostly hold a default for printers, so they are not used.
    """

    def __init__(
        self, path: Path, *, allow_external: bool = False, max_bytes: int | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._flat: FlatArray | None = None
        self._watch = Watch()
        try:
            self._tiff: Any = tifffile.TiffFile(path, _multifile=allow_external)
        except Exception as error:  # tifffile raises nearly anything on damaged files
            raise VolumeError(f"{path}: the TIFF file cannot be opened ({error})") from error
        try:
            self._open(path, allow_external, max_bytes)
        except VolumeError:
            self._tiff.close()
            raise
        except Exception as error:
            self._tiff.close()
            refuse_own(error)
            raise VolumeError(f"{path}: the TIFF file is damaged ({error})") from error

    def _open(self, path: Path, allow_external: bool, max_bytes: int | None) -> None:
        self._watch.see(path, os.fstat(self._tiff.filehandle.fileno()))
        _check_chain(self._tiff, path)
        if self._tiff.is_ome:
            _check_set(self._tiff, path, allow_external)
        self._series = series = _meant(self._tiff, path)
        dtype = np.dtype(series.dtype)
        if dtype.kind not in "uifb" or dtype.itemsize > 8:
            raise VolumeError(f"{path}: TIFF of type {dtype}; expected integers or floats")
        self._order = _order(str(series.axes), tuple(series.shape), path, named=self._tiff.is_ome)
        text = self._tiff.ome_metadata if self._tiff.is_ome else ""
        size = _voxel_size(self._tiff, path)
        super().__init__(str(path), self._shape4(), dtype, size, ome_place(text))
        self.directions = directions_of(ome_noted(text, "directions"))
        self.neighbours = neighbours_of(ome_noted(text, "offsets"), self.channels)
        self.first_class = first_class_of(ome_noted(text, "first_class"))
        _check_size(self, path, max_bytes)
        refuse_codec(series.keyframe, str(path))
        if series.dataoffset is not None:
            stored = dtype.newbyteorder(self._tiff.byteorder)
            self._flat = FlatArray(path, series.dataoffset, series.shape, stored)
        for name in _files(series, path):
            self._watch.look(name)

    def _shape4(self) -> Shape4:
        lengths = [self._series.shape[i] if i is not None else 1 for i in self._order]
        return (lengths[0], lengths[1], lengths[2], lengths[3])

    def _flat_part(self, flat: FlatArray, wanted: tuple[tuple[int, int], ...]) -> Array:
        """Return a part (C, Z, Y, X) of an array with the series' axes; its other axes have length 1."""
        bounds = [(0, 1)] * len(self._series.shape)
        for axis, ends in zip(self._order, wanted, strict=True):
            if axis is not None:
                bounds[axis] = ends
        kept = [i for i in self._order if i is not None]
        rest = [i for i in range(len(bounds)) if i not in kept]
        part = flat.read(bounds).transpose(*rest, *kept)
        return np.ascontiguousarray(part.reshape([b - a for a, b in wanted]))

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if self._flat is not None:
            return self._flat_part(
                self._flat, ((0, self.channels), *zip(lower, upper, strict=True))
            )
        z, y, x = (slice(a, b) for a, b in zip(lower, upper, strict=True))
        with self._lock:
            try:
                planes = [
                    self._plane(c, k) for k in range(z.start, z.stop) for c in range(self.channels)
                ]
            except Exception as error:  # codecs raise nearly anything on damaged pages
                refuse_own(error)
                raise VolumeError(
                    f"{self.name}: pages of z = {lower[0]} to {upper[0]} cannot be read "
                    f"({explained(error)})"
                ) from error
        stack = np.stack([plane[y, x] for plane in planes])
        return stack.reshape(z.stop - z.start, self.channels, *stack.shape[1:]).swapaxes(0, 1)

    def _plane(self, channel: int, z: int) -> Array:
        """Return one (Y, X) plane: find its page, then its sample within the page."""
        shape, pages = self._series.shape, len(self._series.pages)
        leading = 0
        while leading < len(shape) and int(np.prod(shape[:leading])) < pages:
            leading += 1
        index = {self._order[0]: channel, self._order[1]: z}
        page_index = 0
        for axis in range(leading):
            page_index = page_index * shape[axis] + index.get(axis, 0)
        page = self._page(page_index, tuple(shape[leading:]))
        inner = [
            slice(None) if axis in self._order[2:] else index.get(axis, 0)
            for axis in range(leading, len(shape))
        ]
        return page[tuple(inner)]

    def _page(self, index: int, shape: tuple[int, ...]) -> Array:
        return np.asarray(self._series.pages[index].asarray()).reshape(shape)

    def verify(self) -> None:
        """Raise ChangedError unless all files are those that were opened, unchanged."""
        self._watch.verify()

    def close(self) -> None:
        """Close the file."""
        if self._flat is not None:
            self._flat.close()
        self._tiff.close()


def _meant(tiff: Any, path: Path) -> Any:
    """Return the series that is meant: the first, or all of pages that are a series each; warn of others."""
    first, *others = tiff.series
    if not others:
        return first
    alike = {
        (tuple(it.shape), np.dtype(it.dtype), str(it.axes), len(it.pages)) for it in tiff.series
    }
    if len(alike) == 1 and len(first.pages) == 1 and not tiff.is_ome:
        pages = [it.pages[0] for it in tiff.series]
        shape = (len(pages), *first.shape)
        return tifffile.TiffPageSeries(pages, shape, first.dtype, f"Q{first.axes}")
    warnings.warn(
        f"{path} holds {1 + len(others)} images, of which the first is read, shape {tuple(first.shape)}; the next has "
        f"{tuple(others[0].shape)}",
        stacklevel=4,
    )
    return first


def _check_chain(tiff: Any, path: Path) -> None:
    """Check that the last page names no successor: tifffile passes over pages that were cut off."""
    form, file = tiff.tiff, tiff.filehandle
    last = tiff.pages[len(tiff.pages) - 1]
    file.seek(last.offset)
    (tags,) = struct.unpack(form.tagnoformat, file.read(form.tagnosize))
    file.seek(last.offset + form.tagnosize + tags * form.tagsize)
    rest = file.read(form.offsetsize)
    if len(rest) < form.offsetsize or struct.unpack(form.offsetformat, rest)[0] != 0:
        raise VolumeError(f"{path}: the TIFF file is truncated after {len(tiff.pages)} pages")


def _check_set(tiff: Any, path: Path, allow_external: bool) -> None:
    """Refuse an OME-TIFF that is spread over other files, named in its XML; a renamed single file names one, too."""
    names = set(re.findall(r'FileName="([^"]*)"', tiff.ome_metadata))
    if len(names) > 1 and not allow_external:
        raise VolumeError(
            f"{path}: this OME-TIFF is spread over {len(names)} files; name one that holds the whole "
            "stack, or set allow_external if you trust the file"
        )
    if any(page is None for page in tiff.series[0].pages):
        raise VolumeError(f"{path}: pages of this OME-TIFF are missing")


def _files(series: Any, path: Path) -> set[Path]:
    """Return the file, and those that an OME-TIFF is spread over."""
    if series.dataoffset is not None:
        return {path}
    return {path, *(Path(page.parent.filehandle.path) for page in series.pages)}


def _order(axes: str, shape: tuple[int, ...], path: Path, *, named: bool) -> list[int | None]:
    """Return the positions of C, Z, Y, X among the series' axes; None for one that is absent.

    `named`: who wrote the file has named them.
    """
    if 0 in shape:
        raise VolumeError(f"{path}: the volume is empty, its TIFF pages have shape {shape}")
    stack = [a for a in _STACK_AXES if a in axes and shape[axes.index(a)] > 1]
    channel = [a for a in _CHANNEL_AXES if a in axes and shape[axes.index(a)] > 1]
    if not stack and channel == ["C"] and not named:
        # ImageJ's name for the pages of a stack that was saved without naming its axes.
        stack, channel = channel, []
    used = [*stack[:1], *channel[:1], "Y", "X"]
    extra = [a for a, n in zip(axes, shape, strict=True) if n > 1 and a not in used]
    if extra or "Y" not in axes or "X" not in axes:
        raise VolumeError(
            f"{path}: TIFF of shape {shape} with axes {axes}; expected a stack of pages z, y, x, or "
            "one page, with or without channels, at one time"
        )
    found = [axes.index(names[0]) if names else None for names in (channel, stack)]
    return [*found, axes.index("Y"), axes.index("X")]


def _check_size(volume: Volume, path: Path, max_bytes: int | None) -> None:
    size = path.stat().st_size
    limit = max(SMALL, COMPRESSION * size) if max_bytes is None else max_bytes
    if volume.nbytes > limit:
        raise VolumeError(
            f"{path} declares {readable(volume.nbytes)} of data, shape {volume.shape}, in a file "
            f"of {readable(size)}; at most {readable(limit)} are accepted"
        )


def _voxel_size(tiff: Any, path: Path) -> Triple64:
    size = ome_size(tiff.ome_metadata) if tiff.is_ome else _imagej_size(tiff)
    if size is None:
        return (1.0, 1.0, 1.0)
    if not all(0 < s < float("inf") for s in size):
        raise VolumeError(f"{path}: the voxel size {size} (z, y, x, nm) must be positive")
    return size


def _imagej_size(tiff: Any) -> Triple64 | None:
    if not tiff.is_imagej:
        return None
    found = tiff.imagej_metadata or {}
    scale = nanometres(str(found.get("unit", "")))
    tags = tiff.pages[0].tags
    if scale is None or "spacing" not in found:
        return None
    if "XResolution" not in tags or "YResolution" not in tags:
        return None
    (y, per_y), (x, per_x) = tags["YResolution"].value, tags["XResolution"].value
    if not (x and y):
        return None
    return (float(found["spacing"]) * scale, per_y / y * scale, per_x / x * scale)
