"""A volume behind a header: read by region where its bytes are plain, else decompressed into memory as a whole."""

from __future__ import annotations

import bz2
import gzip
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import NOWHERE, Place
from znnpy.data.flat_array import FlatArray
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import SMALL, Trust, claim_size
from znnpy.data.volume import Array, ArrayVolume, Shape4, Triple, Volume
from znnpy.errors import VolumeError, reason

Packed = Literal["", "gzip", "zlib", "bz2"]
PIECE = 1 << 24  # bytes that are decompressed at once
# What streams raise on data that are cut or damaged.
DAMAGE = (EOFError, zlib.error, OSError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The voxels as a header describes them.

    `start`: byte of `path`, decompressed if it is `packed`, at which they begin. `shape` (C, Z, Y, X); stored in this
    order, or, `interleaved`, with the channels of a voxel together, or, `reversed`, the other way round. `dtype`: as
    stored. A value is `slope` times what is stored plus `intercept`; `packed_start`: the byte at which compressed
    data begin. `unnamed`: as of `Volume`. `logical`: bytes are true where they are not 0.
    """

    path: Path
    start: int
    shape: Shape4
    dtype: np.dtype[Any]
    interleaved: bool = False
    reversed: bool = False
    slope: float = 1.0
    intercept: float = 0.0
    place: Place = NOWHERE
    packed: Packed = ""
    packed_start: int = 0
    unnamed: bool = False
    logical: bool = False

    @property
    def shown(self) -> np.dtype[Any]:
        """The type of the values: of scaled ones, and of half floats, floats that hold them."""
        if self.logical:
            return np.dtype(np.bool_)
        plain = (self.slope, self.intercept) == (1.0, 0.0)
        if plain and self.dtype != np.float16:
            return self.dtype.newbyteorder("=")
        return np.dtype(np.float64 if self.dtype.itemsize > 4 else np.float32)

    @property
    def stored_shape(self) -> Shape4:
        """The axes in the order in which they are stored, the slowest first."""
        c, z, y, x = self.shape
        if self.interleaved:
            return (z, y, x, c)
        return (x, y, z, c) if self.reversed else self.shape

    def ordered(self, stored: Array) -> Array:
        """Return an array with the axes of `stored_shape` as (C, Z, Y, X)."""
        if self.interleaved:
            return np.moveaxis(stored, -1, 0)
        return stored.T if self.reversed else stored

    def values(self, stored: Array) -> Array:
        """Return the values of what is stored."""
        if self.logical:
            return np.asarray(stored != 0)
        if (self.slope, self.intercept) == (1.0, 0.0):
            return stored.astype(self.shown, copy=False)
        exact = stored.astype(np.float64)
        return (exact * self.slope + self.intercept).astype(self.shown)


def open_flat(path: Path, layout: Layout, trust: Trust, watch: Watch) -> Volume:
    """Return the volume that a header declares; `watch` has seen the files since before the header was read.

    Raises VolumeError for types that are no numbers, sizes that no file holds, and compressed files that memory does
    not hold.
    """
    c, z, y, x = layout.shape
    if min(c, z, y, x) < 1:
        raise VolumeError(f"{path}: the volume is empty, its shape (c, z, y, x) is {layout.shape}")
    if layout.dtype.kind not in "uif" or layout.dtype.itemsize > 8:
        raise VolumeError(
            f"{path} holds {layout.dtype}; expected integers or floats of at most 64 bits"
        )
    if not (math.isfinite(layout.slope) and math.isfinite(layout.intercept)):
        raise VolumeError(
            f"{path}: values are {layout.slope} times what is stored plus {layout.intercept}"
        )
    watch.look(layout.path)
    if layout.packed:
        return _unpacked(path, layout, trust, watch)
    most = trust.max_bytes
    declared = math.prod(layout.shape) * layout.dtype.itemsize
    if most is not None and declared > most:
        raise VolumeError(
            f"{path} declares {readable(declared)} of data, shape {layout.shape}; at most "
            f"{readable(most)} are accepted"
        )
    return FlatVolume(path, layout, watch)


class FlatVolume(Volume):
    """A volume whose bytes are not compressed, read by region."""

    def __init__(self, path: Path, layout: Layout, watch: Watch) -> None:
        place = layout.place
        super().__init__(str(path), layout.shape, layout.shown, place.resolution, place.offset)
        self.directions, self.unnamed = place.directions, layout.unnamed
        self._layout, self._watch = layout, watch
        *leading, width = layout.stored_shape
        if layout.interleaved:
            z, y, x = leading
            rows: tuple[int, ...] = (z, y, x * width)
        else:
            rows = (*leading, width)
        self._flat = FlatArray(layout.path, layout.start, rows, layout.dtype)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        layout, channels = self._layout, self.channels
        bounds = list(zip(lower, upper, strict=True))
        if layout.interleaved:
            *first, (left, right) = bounds
            found = self._flat.read([*first, (left * channels, right * channels)])
            found = found.reshape(*found.shape[:2], -1, channels)
        elif layout.reversed:
            found = self._flat.read([*bounds[::-1], (0, channels)])
        else:
            found = self._flat.read([(0, channels), *bounds])
        return np.ascontiguousarray(layout.values(layout.ordered(found)))

    def verify(self) -> None:
        """Raise ChangedError unless the files are those that were opened, unchanged."""
        self._watch.verify()

    def close(self) -> None:
        """Close the file."""
        self._flat.close()


_STREAMS: dict[str, Callable[[IO[bytes]], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "bz2": lambda file: bz2.BZ2File(file),
}


def stream_of(file: IO[bytes], packed: Packed) -> Any:
    """Return a file's content as a stream of bytes, decompressed piece by piece."""
    if packed == "zlib":
        return _Zlib(file)
    return _STREAMS[packed](file) if packed else file


class _Zlib:
    """A stream of zlib data, or of one member of gzip's, decompressed piece by piece."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, b""
        self._stream = zlib.decompressobj(32 + zlib.MAX_WBITS)  # which of both, it finds

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer where the data end."""
        pieces: list[bytes] = []
        while size > 0 and not self._stream.eof:
            data = self._left or self._file.read(1 << 16)
            if not data:
                break
            piece = self._stream.decompress(data, size)
            self._left = self._stream.unconsumed_tail
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _unpacked(path: Path, layout: Layout, trust: Trust, watch: Watch) -> Volume:
    # Counted as shown: of a scaled volume that is more than what is stored.
    claim_size(str(path), layout.shape, layout.shown, layout.path.stat().st_size, trust)
    with layout.path.open("rb") as file:
        watch.see(layout.path, os.fstat(file.fileno()))
        file.seek(layout.packed_start)
        try:
            stored = _filled(stream_of(file, layout.packed), path, layout)
        except DAMAGE as error:
            watch.verify()
            raise VolumeError(
                f"{path}: its {layout.packed} data are cut or damaged ({reason(error)})"
            ) from error
    watch.verify()
    place = layout.place
    volume = ArrayVolume(layout.ordered(stored), str(path), place.resolution, place.offset)
    volume.directions, volume.unnamed = place.directions, layout.unnamed
    return volume


def _filled(stream: Any, path: Path, layout: Layout) -> Array:
    """Return the array as it is stored, filled piece by piece so that no more than a piece is held twice."""
    _skip(stream, layout.start, path)
    stored = np.empty(layout.stored_shape, layout.shown)
    flat, size = stored.reshape(-1), layout.dtype.itemsize
    for first in range(0, flat.size, PIECE // size):
        part = flat[first : first + PIECE // size]
        part[...] = layout.values(
            np.frombuffer(_exactly(stream, part.size * size, path), layout.dtype)
        )
    _check_end(stream)
    return stored


def _check_end(stream: Any) -> None:
    """Read what follows the voxels, SMALL at most: checksums are compared where the data end."""
    left = SMALL
    try:
        while left > 0 and (piece := stream.read(min(left, PIECE))):
            left -= len(piece)
    except gzip.BadGzipFile as error:
        # What other programs leave behind the last member is none of the image.
        if not str(error).startswith("Not a gzipped file"):
            raise


def _skip(stream: Any, count: int, path: Path) -> None:
    if count > SMALL:
        raise VolumeError(f"{path}: voxels begin at byte {count}; at most {SMALL} are passed over")
    while count > 0:
        count -= len(_exactly(stream, min(count, PIECE), path))


def _exactly(stream: Any, size: int, path: Path) -> bytes:
    pieces: list[bytes] = []
    missing = size
    while missing:
        piece = stream.read(missing)
        if not piece:
            raise VolumeError(
                f"{path} is truncated: its data end {missing} bytes before the voxels that it declares"
            )
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)
