"""Reads npz files without trusting them: names, shapes and dtypes are checked before any value is read or allocated.

Nothing is inflated, unpickled or evaluated: members must be stored uncompressed, as NumPy's `savez` writes them.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from znnpy.closing import Closing
from znnpy.file_arrays import FileArray, KeptFile, fill

DAMAGE = (
    OSError, ValueError, KeyError, TypeError, EOFError, OverflowError, RuntimeError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""The exceptions that reading a damaged archive may raise."""
# Members of an npz file are npy files.
SUFFIX = ".npy"
TEXT = 1 << 14  # characters of the text at most; that of checkpoints has a few hundred
# Version 1.0 of the format: what NumPy writes for headers below 64 KiB.
_MAGIC = b"\x93NUMPY\x01\x00"
# NumPy reads headers by evaluating a literal; only the exact text that `savez` writes is taken
# here.
_HEADER = re.compile(
    r"\{'descr': '([<>|=][a-zA-Z]\d{1,6})', 'fortran_order': False, 'shape': \(([\d, ]{0,200})\), \}\s*"
)
Bytes = npt.NDArray[np.uint8]
LARGE = 1 << 20  # bytes of an array that has pages of its own
_PIECE = 1 << 20  # bytes read at once; whole numbers of any size
_LOCAL = struct.Struct("<26x2H")
"""What stands before a member in the archive: at its end the bytes of its name and of what else is known of it."""


@dataclass(frozen=True)
class Kind:
    """Shape and dtype of an array, and whether its values may be below 0."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    negative: bool = True

    @property
    def nbytes(self) -> int:
        """The number of bytes of its values."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class _Place:
    """Where a member's values lie in the file, and the checksum of the whole member."""

    offset: int
    header: bytes
    checksum: int


class Looked(NamedTuple):
    """What members of an archive were read through, with their least and largest values, and of which file."""

    mark: tuple[int, int]
    ends: dict[str, tuple[float, float]]


class Archive(Closing):
    """An npz file, open for reading; `kinds` says what its members claim to be, by name.

    Raises the errors of `DAMAGE` for anything that `savez` would not write, at once or when it is read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ValueError("not a file")
        self._file = KeptFile(path)
        self.kinds: dict[str, Kind] = {}
        self._places: dict[str, _Place] = {}
        self._seen: dict[str, tuple[float, float]] = {}
        with open(self._file.number, "rb", closefd=False) as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                self._take(archive, info)

    def close(self) -> None:
        """Close the file, unless arrays that lie in it are still in use."""
        del self._file

    @property
    def looked(self) -> Looked:
        """What was read through, and what will be."""
        return Looked(self._file.mark, self._seen)

    def know(self, looked: Looked) -> None:
        """Take over what was read through of the same file, unless that was written since."""
        if looked.mark == self._file.mark:
            self._seen = looked.ends

    def text(self, name: str) -> str:
        """Return a member that holds one text."""
        kind = self.kinds[name]
        if kind.shape or kind.dtype.kind != "U" or kind.nbytes > 4 * TEXT:
            raise ValueError(f"{name!r} is no text")
        values = np.empty(kind.shape, kind.dtype)
        self._read(name, values)
        return str(values)

    def array(self, name: str, *, negative: bool = True) -> npt.NDArray[Any]:
        """Return a member's values, all finite. The caller has checked its kind first: its bytes are allocated here."""
        values = room_for(self.kinds[name])
        _refuse(name, self._read(name, values), negative=negative)
        return values

    def in_file(self, name: str, *, negative: bool = True) -> FileArray:
        """Return a member's values where they lie; checked as those of `array`, and read through once for that."""
        kind = self.kinds[name]
        self.look(name)
        _refuse(name, self._seen[name], negative=negative)
        return FileArray.plain(self._file, self._places[name].offset, kind.shape, kind.dtype)

    def look(self, name: str, room: Bytes | None = None) -> None:
        """Read a member through, unless that was done, for `in_file`; `room`: for so many bytes at once."""
        if name not in self._seen:
            self._seen[name] = self._read(name, None, room)

    def _take(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        """Note what a member claims to be, and where it lies."""
        name = info.filename.removesuffix(SUFFIX)
        if name == info.filename or name in self.kinds:
            raise ValueError(f"{info.filename[:60]!r} is no array, or there twice")
        # A small file must not grow to more memory than it has bytes.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{name[:60]!r} is not stored plain")
        with archive.open(info) as file:
            kind, header = _kind(file)
        # Sizes are compared before any array is allocated.
        if len(header) + kind.nbytes != info.file_size:
            raise ValueError(f"{name[:60]!r} has another size than its header says")
        # What opened the member has compared this header of the archive with its list of contents.
        head = os.pread(self._file.number, _LOCAL.size, info.header_offset)
        start = info.header_offset + _LOCAL.size + sum(_LOCAL.unpack(head))
        self.kinds[name] = kind
        self._places[name] = _Place(start + len(header), header, info.CRC)

    def _read(
        self, name: str, values: npt.NDArray[Any] | None, room: Bytes | None = None
    ) -> tuple[float, float]:
        """Read a member's values, to an array if there is one, else to `room`, each piece over the one before.

        Returns the least and the largest, NaN if any is.
        """
        kind, place = self.kinds[name], self._places[name]
        piece = _PIECE if room is None else len(room)
        target = np.empty(min(piece, kind.nbytes), np.uint8) if room is None else room
        if values is not None:
            target = values.reshape(-1).view(np.uint8)
        checksum, ends = zlib.crc32(place.header), [0.0]
        for low in range(0, kind.nbytes, piece):
            # Piece by piece: what was read is in the caches when it is looked at.
            size = min(piece, kind.nbytes - low)
            part = target[low : low + size] if values is not None else target[:size]
            fill(part, self._file.number, place.offset + low)
            checksum = zlib.crc32(part.data, checksum)
            if kind.dtype.kind == "f":
                own = part.view(kind.dtype)
                ends += [float(own.min()), float(own.max())]
        if checksum != place.checksum:
            raise zipfile.BadZipFile(f"bad checksum of {name!r}")
        return float(np.min(ends)), float(np.max(ends))


def _refuse(name: str, ends: tuple[float, float], *, negative: bool) -> None:
    """Raise ValueError for values, of which the least and the largest are given, that may not be."""
    if not np.isfinite(ends).all():
        raise ValueError(f"{name!r} has values that are not finite")
    if not negative and ends[0] < 0:
        raise ValueError(f"{name!r} has values below 0, which squares cannot be")


def room_for(kind: Kind) -> npt.NDArray[Any]:
    """Return an array that is to be filled."""
    if kind.nbytes < LARGE:
        return np.empty(kind.shape, kind.dtype)
    # NumPy's large arrays ask for large pages, which take several times as long to get where a system is in use.
    room = mmap.mmap(-1, kind.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(room, kind.dtype).reshape(kind.shape)


def differences(found: Mapping[str, Kind], wanted: Mapping[str, Kind]) -> str:
    """Return how the arrays found differ from the wanted ones, in names, shapes and dtypes; "" if they do not."""
    problems = [f"{name!r} is missing" for name in wanted if name not in found]
    problems += [f"{name[:60]!r} is not in the network" for name in found if name not in wanted]
    for name in (name for name in wanted if name in found):
        have, want = found[name], wanted[name]
        if have.shape != want.shape:
            problems.append(f"{name!r} has shape {have.shape}, not {want.shape}")
        elif have.dtype != want.dtype:
            problems.append(f"{name!r} is of {have.dtype.name}, not {want.dtype.name}")
    more = len(problems) - 6
    return "; ".join(problems[:6]) + (f"; and {more} more" if more > 0 else "")


def _kind(file: Any) -> tuple[Kind, bytes]:
    """Return what the header of a member says, and its bytes."""
    head = file.read(len(_MAGIC) + 2)
    rest = file.read(int.from_bytes(head[len(_MAGIC) :], "little"))
    match = _HEADER.fullmatch(rest.decode("latin-1"))
    if not head.startswith(_MAGIC) or match is None:
        raise ValueError(f"{file.name[:60]!r} has no header of an array of numbers")
    shape = tuple(int(size) for size in match[2].replace(" ", "").split(",") if size)
    return Kind(shape, np.dtype(match[1])), head + rest
