"""Small files of images and labels, as idx and CIFAR's binary files have them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: Array) -> bytes:
    """An idx file of an array."""
    code = _CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx(path: Path, array: Array) -> Path:
    """Write an idx file, compressed if its name ends with .gz."""
    data = idx_bytes(array)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_cifar(path: Path, images: Array, *classes: Array) -> Path:
    """Write images (number, 3, 32, 32) and their classes as CIFAR-10 or, with two of them, CIFAR-100."""
    records = [*(c[:, None] for c in classes), images.reshape(len(images), -1)]
    path.write_bytes(np.concatenate(records, axis=1).astype(np.uint8).tobytes())
    return path


def squares(count: int, size: int, seed: int = 0) -> tuple[Array, Array]:
    """Noisy images (number, size, size) with a bright quarter, whose number (0 to 3) is the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count).astype(np.uint8)
    images = rng.integers(0, 80, (count, size, size)).astype(np.uint8)
    half = size // 2
    for image, label in zip(images, labels, strict=True):
        row, column = half * (label // 2), half * (label % 2)
        image[row : row + half, column : column + half] += 120
    return images, labels
