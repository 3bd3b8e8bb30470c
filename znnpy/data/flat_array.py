"""Arrays that are one run of bytes in a file, read in parts without mapping them.

A mapping would count the file's pages as the process's memory, and kill the process when the file is truncated or
fails.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.process_memory import readable
from znnpy.data.volume import Array
from znnpy.errors import VolumeError, reason


class FlatArray:
    """An array in C order, at least 2-D, from byte `offset` of a file on; any number of threads may read.

    Raises VolumeError when the file is shorter, or fails.
    """

    def __init__(self, path: Path, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self._path, self._offset, self._shape, self._dtype = path, offset, tuple(shape), dtype
        self._file = os.open(path, os.O_RDONLY)
        size, needed = os.fstat(self._file).st_size, math.prod(self._shape) * dtype.itemsize
        if size < offset + needed:
            self.close()
            raise VolumeError(
                f"{path} is truncated: it has {readable(size)} and declares {readable(needed)} of data"
                f"{f' from byte {offset} on' if offset else ''}"
            )

    def read(self, bounds: Sequence[tuple[int, int]]) -> Array:
        """Return the part from a to b of each axis (a, b), in this machine's byte order."""
        *leading, (first, last), (left, right) = bounds
        rows, width = self._shape[-2:]
        part = np.empty([b - a for a, b in bounds], self._dtype.newbyteorder("="))
        planes = np.arange(math.prod(self._shape[:-2])).reshape(self._shape[:-2])
        chosen = planes[tuple(slice(a, b) for a, b in leading)]
        for place, plane in zip(
            part.reshape(-1, *part.shape[-2:]), chosen.reshape(-1), strict=True
        ):
            found = self._items((int(plane) * rows + first) * width, (last - first) * width)
            place[...] = found.reshape(-1, width)[:, left:right]
        return part

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _items(self, start: int, count: int) -> Array:
        values = np.empty(count, self._dtype)
        place, rest = self._offset + start * self._dtype.itemsize, values.view(np.uint8).data
        try:
            while rest:
                done = os.preadv(self._file, [rest], place)
                if done == 0:
                    raise VolumeError(f"{self._path} was cut while it was read")
                place, rest = place + done, rest[done:]
        except OSError as error:
            raise VolumeError(f"{self._path} cannot be read: {reason(error)}") from error
        return values
