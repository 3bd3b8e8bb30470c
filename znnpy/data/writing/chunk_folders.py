"""Parts of folders of chunks: sizes of chunks, values of attributes, files that may not be there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from znnpy.data.volume import Array, Triple64, Volume

CHUNK = 64
"""Voxels along each axis of a chunk, as near as the block's size allows."""


class Levelled:
    """A volume that was written, as an array (c, z, y, x) that is read by slices with both ends."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def __getitem__(self, key: tuple[slice, ...]) -> Array:
        lower = [part.start for part in key[1:]]
        ends = zip(key[1:], self._volume.extent, strict=True)
        upper = [min(part.stop, size) for part, size in ends]
        z, y, x = lower
        return self._volume.read((z, y, x), (upper[0], upper[1], upper[2]), finite=False)


def chunk_size(size: int) -> int:
    """Return the divisor of a block's size that is nearest to `CHUNK`, by ratio."""
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    return min(divisors, key=lambda n: max(n / CHUNK, CHUNK / n))


def triple_of(numbers: Any) -> Triple64:
    """Return three numbers of an attribute as floats."""
    z, y, x = (float(n) for n in numbers)
    return (z, y, x)


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON can hold them."""
    return {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }


def remove(path: Path) -> None:
    """Remove a folder, or a file, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """Return a file's content, empty if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def checksum_of(documents: Mapping[str, bytes]) -> int:
    """Return the checksum of files by path, whatever their order."""
    return crc32(b"\0".join(documents[name] for name in sorted(documents)))
