"""A tensor of a file: its place in a run of stored numbers, checked before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
AXES = 8  # of a tensor; those of filters have five
BFLOAT16 = "bfloat16"
"""The upper half of a float32, which NumPy has no type for."""


@dataclass(frozen=True, eq=False)
class Storage:
    """Stored numbers: `count` of a type, or of BFLOAT16. `raw()` returns their bytes, which are checked then."""

    key: str
    dtype: str
    count: int
    raw: Callable[[], Array]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor within a storage; it lies inside, and has no more numbers than that.

    `array` returns its values: a view, read only, of all that is stored, unless that is BFLOAT16.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.shape, *self.strides)
        if len(self.shape) > AXES or len(self.strides) != len(self.shape):
            raise ValueError("a tensor has more axes than filters have, or strides for others")
        if not all(type(number) is int and 0 <= number < 1 << 48 for number in numbers):
            raise ValueError("a tensor's offset, shape or strides are no such numbers")
        if not self.size:
            return
        steps = zip(self.shape, self.strides, strict=True)
        last = self.offset + sum((n - 1) * step for n, step in steps)
        if last >= self.storage.count:
            raise ValueError("a tensor reaches beyond what is stored of it")
        # One stored number would else become any amount of memory.
        if self.size > self.storage.count:
            raise ValueError("a tensor repeats what is stored of it")

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self.shape)

    @property
    def place(self) -> tuple[str, int, tuple[int, ...], tuple[int, ...]]:
        """What is equal of tensors that are the same numbers of a file."""
        return self.storage.key, self.offset, self.shape, self.strides

    def array(self) -> Array:
        """Return the values, of the stored type or float32; ValueError where the file is damaged."""
        half = self.storage.dtype == BFLOAT16
        stored = self.storage.raw().view("<u2" if half else self.storage.dtype)
        if not self.size:
            found = np.empty(self.shape, stored.dtype)
        else:
            step = stored.itemsize
            bytes_apart = tuple(n * step for n in self.strides)
            found = np.lib.stride_tricks.as_strided(
                stored[self.offset :], self.shape, bytes_apart, writeable=False
            )
        return (found.astype("<u4") << 16).view("<f4") if half else found


def raw_bytes(array: Array) -> memoryview:
    """Return an array's bytes as files hold them: in C order, little-endian."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data
