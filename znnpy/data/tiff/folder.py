"""A volume in a folder of TIFF files, one plane a file, in the order of the numbers in their names."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from znnpy.data.file_changes import Watch
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import COMPRESSION, SMALL
from znnpy.data.tiff.codecs import explained, refuse_codec
from znnpy.data.volume import Array, Triple, Volume
from znnpy.errors import VolumeError, refuse_own

SUFFIXES = (".tif", ".tiff")


def planes_of(folder: Path) -> list[Path]:
    """Return the TIFF files of a folder, plane2 before plane10; hidden files are left out."""
    found = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    return sorted(found, key=_number_order)


class TiffFolder(Volume):
    """Planes (y, x), or (y, x, sample) with samples as channels; each is read when it is needed.

    All must be of one shape and type, and the files that were there when the folder was opened, which
    is checked as they are read. The voxel size is unknown.
    """

    def __init__(
        self,
        path: Path,
        planes: Sequence[Path],
        *,
        allow_external: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        self._planes, self._external, self._max_bytes = list(planes), allow_external, max_bytes
        self._closed, self._watch = False, Watch()
        if gap := _gap(self._planes):
            warnings.warn(f"{path}: {gap}", stacklevel=2)
        for plane in self._planes:
            self._watch.look(plane)
        first = self._plane(0, None)
        channels, height, width = first.shape
        super().__init__(str(path), (channels, len(planes), height, width), first.dtype)
        if max_bytes is not None and self.nbytes > max_bytes:
            raise VolumeError(
                f"{path} holds {readable(self.nbytes)}; at most {readable(max_bytes)} are accepted"
            )

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if self._closed:
            raise VolumeError(f"{self.name}: the volume was closed")
        wanted = (self.channels, *self.extent[1:])
        y, x = slice(lower[1], upper[1]), slice(lower[2], upper[2])
        planes = [self._plane(z, wanted)[:, y, x] for z in range(lower[0], upper[0])]
        return np.stack(planes, axis=1)

    def close(self) -> None:
        """Read no more; no file is held open."""
        self._closed = True

    def _plane(self, z: int, wanted: tuple[int, ...] | None) -> Array:
        """Return one plane (C, y, x), after checking what the file declares."""
        path = self._planes[z]
        if not path.is_file():
            self._watch.look(path)
            raise VolumeError(f"{path} is not a file")
        if (
            not self._external
            and path.is_symlink()
            and path.resolve().parent != path.parent.resolve()
        ):
            raise VolumeError(
                f"{path} is a link that leads out of the folder; refused. Set "
                "data.allow_external_links if you trust it"
            )
        try:
            with tifffile.TiffFile(path, _multifile=False) as tiff:
                self._check(tiff, path, wanted)
                plane = np.asarray(tiff.pages[0].asarray())
                self._watch.see(path, os.fstat(tiff.filehandle.fileno()))
                return _channels_first(plane, str(tiff.pages[0].axes))
        except VolumeError:
            raise
        except Exception as error:  # tifffile raises nearly anything on damaged files
            self._watch.look(path)
            refuse_own(error)
            raise VolumeError(
                f"{path}: the TIFF file cannot be read ({explained(error)})"
            ) from error

    def _check(self, tiff: Any, path: Path, wanted: tuple[int, ...] | None) -> None:
        page = tiff.pages[0]
        if len(tiff.pages) != 1:
            raise VolumeError(
                f"{path} holds {len(tiff.pages)} pages, but a folder of TIFF files is read as one "
                "plane a file; name the file itself"
            )
        dtype, axes, shape = np.dtype(page.dtype), str(page.axes), tuple(page.shape)
        if 0 in shape:
            raise VolumeError(f"{path}: the plane is empty, it has {shape} pixels ({axes})")
        if axes not in ("YX", "YXS", "SYX") or dtype.kind not in "uifb" or dtype.itemsize > 8:
            raise VolumeError(f"{path}: TIFF of type {dtype}, axes {axes}; expected a plane y, x")
        size = int(np.prod([float(n) for n in shape])) * dtype.itemsize
        limit = max(SMALL, COMPRESSION * path.stat().st_size)
        if size > limit:
            raise VolumeError(
                f"{path} declares {readable(size)} of data, shape {shape}; at most "
                f"{readable(limit)} are accepted"
            )
        refuse_codec(page, str(path))
        first = shape if axes == "SYX" else (shape[2] if axes == "YXS" else 1, *shape[:2])
        if wanted is not None and (first, dtype.newbyteorder("=")) != (wanted, self.dtype):
            raise VolumeError(
                f"{path} holds {first} (c, y, x) of {dtype}, the first plane {wanted} of "
                f"{self.dtype}; all planes of a folder must be alike"
            )


def _channels_first(plane: Array, axes: str) -> Array:
    if axes == "YX":
        return plane[None]
    return np.moveaxis(plane, -1, 0) if axes == "YXS" else plane


def _gap(planes: Sequence[Path]) -> str:
    """Return as text where numbers in names skip some, though they otherwise rise by the same step; else ""."""
    found = [re.findall(r"[0-9]+", plane.stem) for plane in planes]
    if len(found) < 3 or not all(found):
        return ""
    steps = [int(b[-1]) - int(a[-1]) for a, b in pairwise(found)]
    usual = sorted(steps)[len(steps) // 2]
    if usual < 1 or any(step < 1 or step % usual for step in steps):
        return ""
    gaps = [n for n, step in enumerate(steps) if step > usual]
    if not gaps:
        return ""
    first, after = planes[gaps[0]].name, planes[gaps[0] + 1].name
    more = f", and {len(gaps) - 1} more such gaps" if len(gaps) > 1 else ""
    return f"{first} is followed by {after}{more}; what is missing there is no plane of the volume"


def _number_order(path: Path) -> list[tuple[int, int, str]]:
    """Return a sort key: the name cut into words and numbers, numbers by size."""
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]
