"""Finds PNG files whose data end before all rows are there: Pillow shows the rest as zeros."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from znnpy.errors import VolumeError

_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by PNG's number of a kind of pixels
_HEADER = 33  # bytes up to the first chunk after IHDR
# Of Adam7's passes: first column and row, steps along them.
_PASSES = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2),
)  # fmt: skip
PIECE = 1 << 16


def refuse_short(file: IO[bytes], path: Path) -> None:
    """Raise VolumeError for a PNG file, whose header was found good, with less data than it declares."""
    file.seek(0)
    head = file.read(_HEADER)
    width, height, bits, kind, _, _, interlaced = struct.unpack(">IIBBBBB", head[16:29])
    wanted, found = _length(width, height, bits * _SAMPLES[kind], interlaced), 0
    stream = zlib.decompressobj()
    for piece in _data(file):
        while piece and found < wanted and not stream.eof:
            found += len(stream.decompress(piece, PIECE))
            piece = stream.unconsumed_tail
    if found < wanted:
        raise VolumeError(
            f"{path} is cut: it declares {wanted} bytes of rows, and {found} are there"
        )


def _data(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the compressed data, piece by piece."""
    while len(head := file.read(8)) == 8:
        size, name = struct.unpack(">I4s", head)
        left = size if name == b"IDAT" else 0
        while left and (piece := file.read(min(left, PIECE))):
            left -= len(piece)
            yield piece
        # Chunks of other kinds, and checksums, which the decoder compares.
        file.seek((0 if name == b"IDAT" else size) + 4, 1)


def _length(width: int, height: int, bits: int, interlaced: int) -> int:
    """Return the bytes of all rows, each with one that names its filter."""
    if not interlaced:
        return height * (1 + (width * bits + 7) // 8)
    found = 0
    for column, row, right, down in _PASSES:
        across, rows = (width - column + right - 1) // right, (height - row + down - 1) // down
        found += rows * (1 + (across * bits + 7) // 8) if across > 0 and rows > 0 else 0
    return found
