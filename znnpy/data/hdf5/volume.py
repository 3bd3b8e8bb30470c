"""A volume in an HDF5 file, read by region through h5py."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from znnpy.data.hdf5.chunks import ChunkCheck
from znnpy.data.hdf5.safety import check_dataset, find_dataset, open_file, other_files
from znnpy.data.trust import Trust
from znnpy.data.volume import Array, Shape4, Triple, Triple64, Volume, neighbours_of
from znnpy.data.watch import Watch
from znnpy.errors import VolumeError, reason, refuse_own


class Hdf5Volume(Volume):
    """A dataset of 3 or 4 axes, of `labels` also of 1, a value for each slice along z.

    h5py serialises access, so threads may share it.

    Attributes read: `resolution` and `offset` (z, y, x, nanometres, as in CREMI), or
    `element_size_um` (micrometres), and `offsets` of affinities.
    """

    def __init__(
        self,
        path: Path,
        dataset: str | None,
        names: Sequence[str],
        trust: Trust,
        *,
        labels: bool = False,
    ) -> None:
        self._file: h5py.File = open_file(path)
        self._watch = Watch()
        self._watch.see(path, os.fstat(self._file.id.get_vfd_handle()))
        try:
            data = find_dataset(self._file, path, dataset, names, trust.external)
            name = f"{path}:{(dataset or data.name).strip('/')}"
            check_dataset(data, name, path, trust, labels=labels)
            shape = _shape(data.shape)
            resolution, placed = _resolution(data, name), _triple(data, name, "offset")
            super().__init__(name, shape, data.dtype, resolution, placed)
            self.unnamed = data.ndim == 4
            self.neighbours = neighbours_of(_small(data, "offsets"), self.channels)
            self._chunks = ChunkCheck(data, name)
            for other in other_files(data, path):
                self._watch.look(other)
        except VolumeError:
            self._file.close()
            raise
        except Exception as error:  # HDF5 raises nearly anything on damaged files
            self._file.close()
            refuse_own(error)
            raise VolumeError(f"{path}: the HDF5 file is damaged ({reason(error)})") from error
        self._data: h5py.Dataset = data

    @property
    def chunk(self) -> Triple:
        """Chunk of the dataset z, y, x; single planes if it is not chunked."""
        if self._data and self._data.chunks:
            return _shape(self._data.chunks)[1:]
        return super().chunk

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if not self._data:
            raise VolumeError(f"{self.name}: the volume was closed")
        region = [slice(a, b) for a, b in zip(lower, upper, strict=True)][: self._data.ndim]
        try:
            self._chunks.check(lower, upper)
            array: Array = self._data[(..., *region)]
        except VolumeError:
            raise
        except Exception as error:
            refuse_own(error)
            raise VolumeError(
                f"{self.name}: the region {lower} to {upper} (z, y, x) cannot be read, the file is "
                f"damaged ({reason(error)})"
            ) from error
        return array.reshape(-1, *(b - a for a, b in zip(lower, upper, strict=True)))

    def verify(self) -> None:
        """ChangedError unless the file is the one that was opened, unchanged."""
        self._watch.verify()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _shape(sizes: Sequence[int]) -> Shape4:
    """(c, z, y, x) of an array (c, z, y, x), (z, y, x) or (z)."""
    c, z, y, x = map(int, sizes if len(sizes) == 4 else (1, *sizes, 1, 1)[:4])
    return (c, z, y, x)


def _resolution(data: h5py.Dataset, name: str) -> Triple64:
    found = _triple(data, name, "resolution") or _micrometres(
        _triple(data, name, "element_size_um")
    )
    if found and min(found) <= 0:
        raise VolumeError(f"{name}: the voxel size {found} (z, y, x) must be positive")
    return found or (1.0, 1.0, 1.0)


def _triple(data: h5py.Dataset, name: str, key: str) -> Triple64 | None:
    if key not in data.attrs:
        return None
    attribute: Any = data.attrs.get_id(key)
    # Looked at before reading: an attribute may declare any size and type.
    values = data.attrs[key] if attribute.shape == (3,) and attribute.dtype.kind in "uif" else None
    if values is None or not all(math.isfinite(v) for v in values):
        raise VolumeError(f"{name}: the attribute {key} must be three numbers z, y, x")
    z, y, x = (float(v) for v in np.asarray(values, np.float64))
    return (z, y, x)


def _small(data: h5py.Dataset, key: str) -> Any:
    """An attribute of at most 1024 plain numbers; None if it is absent or any other."""
    if key not in data.attrs:
        return None
    attribute: Any = data.attrs.get_id(key)
    size = math.prod(attribute.shape or (0,))
    return data.attrs[key] if 0 < size <= 1024 and attribute.dtype.kind in "ui" else None


def _micrometres(size: Triple64 | None) -> Triple64 | None:
    return (size[0] * 1000, size[1] * 1000, size[2] * 1000) if size else None
