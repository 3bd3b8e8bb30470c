"""Base of volumes in folders of chunks: which chunks a region needs, and how much they may hold."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

from znnpy.data.chunk_folder import ChunkFolder
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import CHUNK_LIMIT, SMALL, Trust
from znnpy.data.volume import Array, Shape4, Triple, Triple64, Volume
from znnpy.errors import VolumeError, reason, refuse_own

AT_ONCE = 16  # chunks that are asked for at a time over the network
EMPTY_COMPRESSION = 1 << 15  # chunks that are absent or constant take next to nothing


class ChunkedVolume(Volume):
    """An array (C, Z, Y, X) of chunks (C, z, y, x) on a grid that begins at voxel 0; absent ones are 0.

    A format implements `_key` and `_decoded`.
    """

    def __init__(
        self,
        folder: ChunkFolder,
        name: str,
        shape: Shape4,
        chunk: Shape4,
        dtype: np.dtype[Any],
        resolution: Triple64 = (1.0, 1.0, 1.0),
        offset: Triple64 | None = None,
    ) -> None:
        super().__init__(name, shape, dtype, resolution, offset)
        size = prod(chunk) * dtype.itemsize
        if size > CHUNK_LIMIT:
            raise VolumeError(
                f"{name} is stored in chunks of shape {chunk}; at most {readable(CHUNK_LIMIT)} a chunk are accepted"
            )
        self._folder, self._grid, self._limit = folder, chunk, size
        self._open = True

    @abstractmethod
    def _key(self, index: Shape4) -> str:
        """Return the path of a chunk in the folder."""

    def _stored(self, index: Shape4, limit: int) -> bytes | None:
        """Return the bytes of a chunk, at most so many; None where there is none."""
        return self._folder.read(self._key(index), limit)

    @abstractmethod
    def _decoded(self, data: bytes, shape: Shape4) -> Array:
        """Return a chunk's values, of `shape` or of the grid's; VolumeError for what is damaged."""

    def _bounded(self, path: str, trust: Trust) -> None:
        """Refuse an array that declares much more than the files below a path can hold, or nothing was written of."""
        if trust.max_bytes is not None:
            limit: float = trust.max_bytes
        else:
            stored = self._folder.stored(path, max(1, self.nbytes / EMPTY_COMPRESSION))
            if stored == 0:
                raise VolumeError(
                    f"{self.name} declares {readable(self.nbytes)}, but no data was ever written"
                )
            limit = max(SMALL, EMPTY_COMPRESSION * stored)
        if self.nbytes > limit:
            raise VolumeError(
                f"{self.name} declares {readable(self.nbytes)} of data, shape {self.shape}; at most {readable(limit)} "
                "are accepted for what its files hold"
            )

    @property
    def chunk(self) -> Triple:
        """The chunk z, y, x that is decoded at once."""
        return self._grid[1:]

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if not self._open:
            raise VolumeError(f"{self.name}: the volume was closed")
        first, last = (0, *lower), (self.channels, *upper)
        found = np.zeros([b - a for a, b in zip(first, last, strict=True)], self.dtype)
        axes = [
            range(a // step, -(-b // step))
            for a, b, step in zip(first, last, self._grid, strict=True)
        ]
        indices: Iterator[Any] = itertools.product(*axes)
        if not self._folder.elsewhere:
            for index in indices:
                self._fill(found, first, index)
            return found
        # Threads wait for a server, each for another part of `found`.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda index: self._fill(found, first, index), indices))
        return found

    def _fill(self, found: Array, first: Shape4, index: Shape4) -> None:
        """Put what a chunk has into its place in a region that begins at `first`."""
        corner = [i * step for i, step in zip(index, self._grid, strict=True)]
        sizes = zip(corner, self._grid, self.shape, strict=True)
        c, z, y, x = (min(step, n - at) for at, step, n in sizes)
        data = self._stored(index, 2 * self._limit + (1 << 16))
        if data is None:
            return
        try:
            values = self._decoded(data, (c, z, y, x))
        except Exception as error:  # codecs raise nearly anything on damaged chunks
            refuse_own(error)
            raise VolumeError(
                f"{self.name}: the chunk {self._key(index)} is damaged ({reason(error)})"
            ) from error
        there, here = [], []
        for at, low, size, have in zip(corner, first, found.shape, values.shape, strict=True):
            start, stop = max(at, low), min(at + have, low + size)
            there.append(slice(start - low, max(start, stop) - low))
            here.append(slice(start - at, max(start, stop) - at))
        found[tuple(there)] = values[tuple(here)]

    def close(self) -> None:
        """Read no more; no file is held open."""
        self._open = False


def whole_numbers(
    found: Any, name: str, key: str, count: int | None = None, least: int = 1
) -> list[int]:
    """Return a list of whole numbers of metadata; VolumeError names the key where it is none."""
    good = isinstance(found, list) and all(type(n) is int and least <= n < 2**62 for n in found)
    if not good or (count is not None and len(found) != count):
        many = "" if count is None else f" {count}"
        raise VolumeError(f"{name}: {key} must be{many} whole numbers; found {str(found)[:60]}")
    return list(found)


def voxel_sizes(found: Any, name: str, key: str) -> Triple64:
    """Return three positive numbers of metadata in their order; VolumeError names the key where they are none."""
    try:
        a, b, c = (float(one) for one in found)
    except (TypeError, ValueError):
        a = b = c = 0.0
    if not all(0 < one < float("inf") for one in (a, b, c)):
        raise VolumeError(f"{name}: {key} must be three positive numbers; found {str(found)[:60]}")
    return (a, b, c)
