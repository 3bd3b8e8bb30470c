"""A volume in a folder of TIFF files, one plane a file, in the order of the numbers in their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.plane_folder import PlaneFolder, files_of
from znnpy.data.volume import Array
from znnpy.errors import VolumeError, refuse_own

SUFFIXES = (".tif", ".tiff")


def planes_of(folder: Path) -> list[Path]:
    """Return the TIFF files of a folder, plane2 before plane10; hidden files are left out."""
    return files_of(folder, SUFFIXES)


class TiffFolder(PlaneFolder):
    """Planes (y, x), or (y, x, sample) with samples as channels; each is read when it is needed."""

    def _decoded(self, path: Path, wanted: tuple[int, ...] | None) -> Array:
        # Here: who looks for such folders need not import tifffile.
        import tifffile

        from znnpy.data.tiff.codecs import explained

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
            raise self._damaged(path, "TIFF file", explained(error)) from error

    def _check(self, tiff: Any, path: Path, wanted: tuple[int, ...] | None) -> None:
        from znnpy.data.tiff.codecs import refuse_codec

        page = tiff.pages[0]
        if len(tiff.pages) != 1:
            raise VolumeError(
                f"{path} holds {len(tiff.pages)} pages, but a folder of TIFF files is read as one "
                "plane a file; name the file itself, or a pattern of files (*.tif)"
            )
        dtype, axes, shape = np.dtype(page.dtype), str(page.axes), tuple(page.shape)
        if 0 in shape:
            raise VolumeError(f"{path}: the plane is empty, it has {shape} pixels ({axes})")
        if axes not in ("YX", "YXS", "SYX") or dtype.kind not in "uifb" or dtype.itemsize > 8:
            raise VolumeError(f"{path}: TIFF of type {dtype}, axes {axes}; expected a plane y, x")
        refuse_codec(page, str(path))
        first = shape if axes == "SYX" else (shape[2] if axes == "YXS" else 1, *shape[:2])
        self._refuse_other(path, first, dtype, wanted)


def _channels_first(plane: Array, axes: str) -> Array:
    if axes == "YX":
        return plane[None]
    return np.moveaxis(plane, -1, 0) if axes == "YXS" else plane
