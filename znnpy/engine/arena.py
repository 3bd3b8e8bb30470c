"""One block of memory for everything that tasks touch, so that its size is known before it is taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes: a cache line and the widest vector, so that aligned loads may be used
SLACK = 64  # floats behind each buffer: vector loads may read past the last voxel, never write


class Arena:
    """Hands out addresses one after the other; with no memory behind it, only counts.

    Build once with `Arena()` to learn `bytes`, then again with `Arena.of(bytes)`: the same requests
    in the same order give the same offsets. Memory starts at zero and belongs to the arena.
    """

    def __init__(self, memory: NDArray[np.uint8] | None = None) -> None:
        self._memory = memory
        self._base = 0 if memory is None else int(memory.ctypes.data)
        self.bytes = 0

    @classmethod
    def of(cls, size: int) -> Arena:
        """An arena with `size` zeroed bytes behind it, aligned to a cache line."""
        raw = np.zeros(size + LINE, np.uint8)
        start = -raw.ctypes.data % LINE
        return cls(raw[start : start + size])

    @property
    def counting(self) -> bool:
        """Whether addresses are only being counted."""
        return self._memory is None

    def reserve(self, floats: int) -> int:
        """Address of room for that many float32, aligned to 64 bytes, slack behind it."""
        address = self._base + self.bytes
        self.bytes += -(-(floats + SLACK) * 4 // LINE) * LINE
        if self._memory is not None and self.bytes > self._memory.size:
            raise MemoryError("the arena was sized for other buffers than it is asked for")
        return address

    def view(self, address: int, shape: tuple[int, ...], dtype: str = "f4") -> NDArray[np.generic]:
        """A NumPy view of reserved memory."""
        if self._memory is None:
            raise MemoryError("a counting arena has no memory to look at")
        start = address - self._base
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._memory[start : start + size].view(dtype).reshape(shape)
