"""A volume in an HDF5 file, read by region through h5py, after checking that its chunks are complete.

HDF5 does not check how many bytes a chunk has, stored or decoded: a chunk that is too short gives memory that
nobody wrote, or a crash. `ChunkCheck` finds such chunks first.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from znnpy.data.class_labels import first_class_of
from znnpy.data.decoded_size import inflated, lzf_length
from znnpy.data.file_changes import Watch
from znnpy.data.hdf5.axis_tags import KNOWN, USUAL, axes_of
from znnpy.data.hdf5.safety import check_dataset, find_dataset, open_file, other_files
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Array, Shape4, Triple, Triple64, Volume, directions_of, neighbours_of
from znnpy.errors import VolumeError, reason, refuse_own

Chunk = tuple[int, ...]
DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000  # HDF5's numbers of filters
_CHECKSUM = 4  # bytes


class ChunkCheck:
    """Checks the chunks of a dataset: stored sizes at once, decoded sizes before a chunk is first read.

    Chunks that were never written hold the fill value and are good. The decoded size of plug-in filters is known to
    them alone. Raises VolumeError with dataset and chunk.
    """

    def __init__(self, data: h5py.Dataset, name: str) -> None:
        properties = data.id.get_create_plist()
        self._filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
        self._data, self._name, self._good = data, name, set[Chunk]()
        # As stored, which may differ from what it is read as.
        self._size: int = data.id.get_type().get_size()
        for length in data.chunks or ():
            self._size *= length
        if data.chunks:
            self._check_stored()

    def check(self, ends: Sequence[tuple[int, int]]) -> None:
        """Check the chunks of a region, the ends of which along each axis are given, that were not checked yet."""
        sizes = self._data.chunks
        if sizes is None or not self._decodes(0):
            return
        steps = [range(a - a % n, b, n) for (a, b), n in zip(ends, sizes, strict=True)]
        for chunk in itertools.product(*steps):
            if chunk not in self._good:
                self._check_decoded(chunk)
                self._good.add(chunk)

    def _check_stored(self) -> None:
        def look(found: Any) -> tuple[Chunk, int] | None:
            good = found.size >= self._least(found.filter_mask)
            return None if good else (found.chunk_offset, found.size)

        bad = self._data.id.chunk_iter(look)
        if bad is not None:
            raise self._too_small(bad[0], f"has {bad[1]} bytes")

    def _least(self, mask: int) -> int:
        """Return the least bytes that a chunk can take in the file."""
        used = self._used(mask)
        size = self._size if set(used) <= {SHUFFLE, FLETCHER32} else 1
        return size + _CHECKSUM * (FLETCHER32 in used)

    def _decodes(self, mask: int) -> bool:
        return any(code in (DEFLATE, LZF) for code in self._used(mask))

    def _used(self, mask: int) -> list[int]:
        """Return the filters of a chunk whose mask says which were left out, in the order of writing."""
        return [code for bit, code in enumerate(self._filters) if not mask >> bit & 1]

    def _check_decoded(self, chunk: Chunk) -> None:
        try:
            mask, data = self._data.id.read_direct_chunk(chunk)
        except RuntimeError:  # never written, or damaged in a way that HDF5 will say
            return
        ends = zip(chunk, self._data.chunks, self._data.shape, strict=True)
        if len(data) == self._size and any(at + n > whole for at, n, whole in ends):
            return  # chunks over the edge may be left as they are
        try:
            found = self._length(data, mask)
        except VolumeError as error:
            raise VolumeError(f"{self._name}: the chunk at {chunk}: {error}") from error
        if found < self._size:
            raise self._too_small(chunk, f"decodes to {found} bytes")

    def _length(self, data: bytes, mask: int) -> int:
        """Return the bytes that a chunk decodes to, or those that it must have where that is unknown."""
        for code in reversed(self._used(mask)):
            if code == FLETCHER32:
                data = data[:-_CHECKSUM]
            elif code == DEFLATE:
                data = inflated("zlib", data, self._size + _CHECKSUM)
            elif code == LZF:
                return lzf_length(data)
            elif code != SHUFFLE:
                return self._size
        return len(data)

    def _too_small(self, chunk: Chunk, what: str) -> VolumeError:
        return VolumeError(
            f"{self._name}: the chunk at {tuple(chunk)} {what} where {self._size} are needed; the file "
            "is damaged"
        )


class Hdf5Volume(Volume):
    """A dataset of 2 to 4 axes, or of those that `axistags` name; of `labels` also of 1, a value for each slice.

    h5py serialises access, so threads may share it.
    Attributes read: `resolution` and `offset` (z, y, x, nanometres, as in CREMI), or
    `element_size_um` (micrometres), `offsets` of affinities, and `first_class`.
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
            axes = axes_of(data, name)
            self._axes = axes or USUAL[data.ndim]
            shape = self._by_axis(data.shape)
            resolution, placed = _resolution(data, name), _triple(data, name, "offset")
            super().__init__(name, shape, data.dtype, resolution, placed)
            self.unnamed = axes is None and data.ndim == 4
            self.neighbours = neighbours_of(_small(data, "offsets"), self.channels)
            self.first_class = first_class_of(_small(data, "first_class"))
            self.directions = directions_of(_small(data, "directions", "f"))
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
        """The chunk z, y, x of the dataset; single planes if it is not chunked."""
        if self._data and self._data.chunks:
            return self._by_axis(self._data.chunks)[1:]
        return super().chunk

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if not self._data:
            raise VolumeError(f"{self.name}: the volume was closed")
        ends = dict(zip("czyx", [(0, self.channels), *zip(lower, upper, strict=True)], strict=True))
        region = [ends.get(axis, (0, 1)) for axis in self._axes]
        try:
            self._chunks.check(region)
            array: Array = self._data[tuple(slice(a, b) for a, b in region)]
        except VolumeError:
            raise
        except Exception as error:
            refuse_own(error)
            raise VolumeError(
                f"{self.name}: the region {lower} to {upper} (z, y, x) cannot be read, the file is "
                f"damaged ({reason(error)})"
            ) from error
        ordered = array.transpose([self._axes.index(axis) for axis in KNOWN if axis in self._axes])
        return ordered.reshape(-1, *(b - a for a, b in zip(lower, upper, strict=True)))

    def _by_axis(self, sizes: Sequence[int]) -> Shape4:
        """Return (c, z, y, x) of numbers of each stored axis, 1 of an axis that there is not."""
        named = dict(zip(self._axes, map(int, sizes), strict=True))
        c, z, y, x = (named.get(axis, 1) for axis in "czyx")
        return (c, z, y, x)

    def verify(self) -> None:
        """Raise ChangedError unless the file is the one that was opened, unchanged."""
        self._watch.verify()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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


def _small(data: h5py.Dataset, key: str, kinds: str = "ui") -> Any:
    """Return an attribute of at most 1024 plain numbers; None if it is absent or any other."""
    if key not in data.attrs:
        return None
    attribute: Any = data.attrs.get_id(key)
    size = 0 if attribute.shape is None else math.prod(attribute.shape)
    return data.attrs[key] if 0 < size <= 1024 and attribute.dtype.kind in kinds else None


def _micrometres(size: Triple64 | None) -> Triple64 | None:
    return (size[0] * 1000, size[1] * 1000, size[2] * 1000) if size else None
