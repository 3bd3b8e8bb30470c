"""Chunks of HDF5 datasets that hold less than they must.

HDF5 does not look at how many bytes a chunk has, stored or decoded: what is missing is memory that
nobody wrote, or a crash.
"""

from __future__ import annotations

import itertools
from typing import Any

import h5py

from znnpy.data.decoded import inflated, lzf_length
from znnpy.data.volume import Triple
from znnpy.errors import VolumeError

Chunk = tuple[int, ...]
DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
_CHECKSUM = 4  # bytes


class ChunkCheck:
    """Judges the chunks of a dataset: stored sizes at once, decoded sizes before a chunk is first read.

    Chunks that were never written hold the fill value and are good. What plug-in filters decode to is
    known to them alone. VolumeError names dataset and chunk.
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

    def check(self, lower: Triple, upper: Triple) -> None:
        """Look at the chunks of a region (z, y, x) of all channels that were not looked at yet."""
        shape, sizes = self._data.shape, self._data.chunks
        if sizes is None or not self._decodes(0):
            return
        region = list(zip(lower, upper, strict=True))[: len(shape)]
        ends = [(0, shape[0])] * (len(shape) - len(region)) + region
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
        """Bytes that a chunk takes at least in the file."""
        used = self._used(mask)
        size = self._size if set(used) <= {SHUFFLE, FLETCHER32} else 1
        return size + _CHECKSUM * (FLETCHER32 in used)

    def _decodes(self, mask: int) -> bool:
        return any(code in (DEFLATE, LZF) for code in self._used(mask))

    def _used(self, mask: int) -> list[int]:
        """Filters of a chunk whose mask says which were left out, in the order of writing."""
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
        """Bytes that a chunk decodes to; those that it must have where that is not known."""
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
