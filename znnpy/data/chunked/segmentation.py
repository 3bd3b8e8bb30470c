"""Decodes compressed segmentation: labels of blocks as numbers of few bits, which count in a table of the block."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np

from znnpy.data.volume import Array, Shape4, Triple
from znnpy.errors import VolumeError

BITS = (0, 1, 2, 4, 8, 16, 32)


def decoded_labels(data: bytes, shape: Shape4, dtype: np.dtype[Any], block: Triple) -> Array:
    """Return labels (c, z, y, x) of a chunk, of type uint32 or uint64; VolumeError for what is damaged."""
    if len(data) % 4:
        raise VolumeError("it does not hold whole words")
    words = np.frombuffer(data, "<u4")
    found = np.empty(shape, dtype)
    for channel, values in enumerate(found):
        start = int(_words(words, channel, 1)[0])
        _fill(values, words[start:], block)
    return found


def _words(words: Array, first: int, count: int) -> Array:
    if first + count > len(words):
        raise VolumeError("it is cut short")
    return words[first : first + count]


def _fill(values: Array, words: Array, block: Triple) -> None:
    """Decode one channel (z, y, x), whose words begin with two for each block, x fastest."""
    counts = [-(-n // step) for n, step in zip(values.shape, block, strict=True)]
    headers = _words(words, 0, 2 * prod(counts)).reshape(-1, 2)
    places = itertools.product(*(range(n) for n in counts))
    for (z, y, x), (table, encoded) in zip(places, headers.tolist(), strict=True):
        part = values[
            z * block[0] : (z + 1) * block[0],
            y * block[1] : (y + 1) * block[1],
            x * block[2] : (x + 1) * block[2],
        ]
        bits, table = table >> 24, table & 0xFFFFFF
        if bits not in BITS:
            raise VolumeError(f"a block has numbers of {bits} bits")
        numbers = _numbers(words, encoded, bits, block)
        labels = _table(words, table, int(numbers.max()) + 1, values.dtype)
        d, h, w = part.shape
        part[...] = labels[numbers[:d, :h, :w]]


def _numbers(words: Array, first: int, bits: int, block: Triple) -> Array:
    """Return the numbers (z, y, x) of a block's voxels."""
    if bits == 0:
        return np.zeros(block, np.int64)
    voxels = prod(block)
    packed = _words(words, first, -(-voxels * bits // 32))
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = packed[:, None] >> shifts & np.uint32((1 << bits) - 1)
    return parts.reshape(-1)[:voxels].reshape(block).astype(np.int64)


def _table(words: Array, first: int, count: int, dtype: np.dtype[Any]) -> Array:
    """Return the labels that numbers below `count` stand for."""
    wide = dtype.itemsize // 4
    return np.frombuffer(_words(words, first, count * wide).tobytes(), dtype.newbyteorder("<"))
