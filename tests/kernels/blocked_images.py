"""Blocked tensors with gaps between rows and guard values in the gaps, for tests of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

GUARD = -12345.0


class Blocked:
    """One image [channel block][z][y][x][lane], float32 (or integers), rows and planes with gaps."""

    def __init__(
        self,
        channels: int,
        shape: tuple[int, int, int],
        gap: int = 2,
        dtype: Any = np.float32,
        lanes: int = LANES,
    ) -> None:
        self.channels, self.shape, self.lanes = channels, shape, lanes
        blocks = -(-channels // lanes)
        nz, ny, nx = shape
        self.y = (nx + 2 * gap) * lanes
        self.z = (ny + gap) * self.y
        self.block = (nz + gap) * self.z
        guard = GUARD if dtype == np.float32 else 54321
        self.guard = np.asarray(guard).astype(dtype)
        raw = np.full(blocks * self.block + gap * lanes + 64, self.guard, dtype)
        size = raw.itemsize
        self.memory = raw[-address(raw) % 64 // size :]
        self.start = gap * lanes
        self.view = as_strided(
            self.memory[self.start :],
            (blocks, nz, ny, nx, lanes),
            [size * step for step in (self.block, self.z, self.y, lanes, 1)],
        )

    @classmethod
    def of(cls, planar: Any, gap: int = 2, pad: float = 0.0) -> Blocked:
        """Blocked copy of [channel][z][y][x]; pad lanes get the value given."""
        made = cls(planar.shape[0], planar.shape[1:], gap)
        made.view[:] = pad
        for channel, image in enumerate(planar):
            made.view[channel // LANES, ..., channel % LANES] = image
        return made

    def planar(self) -> Any:
        """The real channels as [channel][z][y][x]."""
        blocks, nz, ny, nx, lanes = self.view.shape
        moved = np.moveaxis(self.view, 4, 1).reshape(blocks * lanes, nz, ny, nx)
        return moved[: self.channels].copy()

    def pad(self) -> Any:
        """The values of the pad lanes."""
        return np.moveaxis(self.view, 4, 1).reshape(-1, *self.shape)[self.channels :]

    def address(self, block: int = 0, z: int = 0, y: int = 0, x: int = 0) -> int:
        """Byte address of a voxel."""
        place = self.start + block * self.block + z * self.z + y * self.y + x * self.lanes
        return address(self.memory) + place * self.memory.itemsize

    def rows(self, name: str, block: int = 0, z: int = 0, y: int = 0) -> dict[str, int]:
        """Address and strides as kernel arguments `name`, `name_z`, `name_y`."""
        return {name: self.address(block, z, y), f"{name}_z": self.z, f"{name}_y": self.y}

    def whole(self, name: str, z: int = 0, y: int = 0) -> dict[str, int]:
        """As `rows`, with `name_block`."""
        return self.rows(name, 0, z, y) | {f"{name}_block": self.block}

    def gaps_intact(self) -> bool:
        """Whether everything outside of the rows still holds the guard value."""
        copy = self.memory.copy()
        outside = as_strided(copy[self.start :], self.view.shape, self.view.strides)
        outside[:] = self.guard
        return bool((copy == self.guard).all())


class Planar:
    """[image][z][y][x] with gaps, x contiguous."""

    def __init__(self, images: Any, gap: int = 3) -> None:
        count, nz, ny, nx = images.shape
        self.y = nx + gap
        self.z = ny * self.y + gap
        self.image = nz * self.z + gap
        self.memory = np.full(count * self.image + 64, GUARD, np.float32)
        self.view = as_strided(
            self.memory, images.shape, [4 * s for s in (self.image, self.z, self.y, 1)]
        )
        self.view[:] = images

    def whole(self, name: str, z: int = 0, y: int = 0) -> dict[str, int]:
        """Address and strides as kernel arguments."""
        first = address(self.memory) + 4 * (z * self.z + y * self.y)
        return {
            name: first,
            f"{name}_image": self.image,
            f"{name}_z": self.z,
            f"{name}_y": self.y,
        }

    def gaps_intact(self) -> bool:
        """Whether everything outside of the rows still holds the guard value."""
        copy = self.memory.copy()
        as_strided(copy, self.view.shape, self.view.strides)[:] = GUARD
        return bool((copy == GUARD).all())


def blocks_of(channels: int) -> list[tuple[int, int]]:
    """(block, real channels of the block)."""
    return [(block, min(LANES, channels - block * LANES)) for block in range(-(-channels // LANES))]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Any:
    """Repeatable float32 normal numbers."""
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def same_bits(a: Any, b: Any) -> bool:
    """Bitwise equality of two arrays."""
    return (
        a.shape == b.shape
        and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    )
