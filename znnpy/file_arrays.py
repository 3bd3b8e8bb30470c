"""`FileArray`: numbers that lie in a file and are read by who needs them, so that they need not be in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import RunError, reason


class KeptFile:
    """A file that stays open, by its descriptor `number`, as long as somebody holds this; any threads may read it.

    Raises OSError where it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._mark = self._now()

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)

    @property
    def size(self) -> int:
        """Its bytes when it was opened."""
        return self._mark[0]

    @property
    def mark(self) -> tuple[int, int]:
        """What tells whether it was written: its bytes and time of change when it was opened."""
        return self._mark

    def verify(self) -> None:
        """Raise RunError if it was written since it was opened; another in its place does not matter."""
        if self._now() != self._mark:
            raise RunError(
                f"{self.path} has changed while it was in use: take a copy that nobody writes to"
            )

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self.number)
        return found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class FileArray:
    """An array in a file, in the machine's byte order: each item of the first axis is contiguous.

    `offset`: the byte at which it begins; `stride`: bytes from one item of the first axis to the next. Whatever makes
    arrays of things (`numpy.asarray`) reads it; RunError where it is not there any more.
    """

    file: KeptFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stride: int

    @classmethod
    def plain(
        cls, file: KeptFile, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> FileArray:
        """Return an array all of which is contiguous."""
        return cls(file, offset, shape, dtype, dtype.itemsize * prod(shape[1:]))

    def __getitem__(self, key: tuple[slice, slice]) -> FileArray:
        """Return all of the first axis, and a range of the second: `array[:, low:high]`."""
        whole, part = key
        low, high, step = part.indices(self.shape[1])
        if whole != slice(None) or step != 1:
            raise IndexError(f"a range of the second axis alone can be taken of a file, not {key}")
        each = self.dtype.itemsize * prod(self.shape[2:])
        shape = (self.shape[0], max(0, high - low), *self.shape[2:])
        return replace(self, offset=self.offset + low * each, shape=shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values, read now."""
        if copy is False:
            raise ValueError("what lies in a file is copied")
        found = np.empty(self.shape, self.dtype)
        # What is contiguous by one call: filters of a thousand outputs would take as many.
        count = 1 if self.stride * self.shape[0] == found.nbytes else self.shape[0]
        items = found.reshape(count, -1).view(np.uint8) if found.size else ()
        try:
            for number, item in enumerate(items):
                fill(item, self.file.number, self.offset + number * self.stride)
        except (OSError, EOFError) as error:
            raise RunError(f"{self.file.path} cannot be read: {reason(error)}") from error
        self.file.verify()
        return found if dtype is None else found.astype(dtype, copy=False)


def fill(target: NDArray[np.uint8], number: int, offset: int) -> None:
    """Fill an array with the bytes of an open file from an offset on; EOFError where it ends before."""
    while len(target):
        count = os.preadv(number, [target.data], offset)
        if not count:
            raise EOFError("it is cut short")
        target, offset = target[count:], offset + count
