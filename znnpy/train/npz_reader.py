"""Reads npz files without trusting them: names, shapes and dtypes are checked before any value is read or allocated.

Nothing is inflated, unpickled or evaluated: members must be stored uncompressed, as NumPy's `savez` writes them.
"""

from __future__ import annotations

import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from znnpy.closing import Closing

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
LARGE = 1 << 20  # bytes of an array that has pages of its own
_PIECE = 1 << 20  # bytes read at once, so that a truncated file ends early


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


class Archive(Closing):
    """An npz file, open for reading; `kinds` says what its members claim to be, by name.

    Raises the errors of `DAMAGE` for anything that `savez` would not write, at once or when it is read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ValueError("not a file")
        self._zip = zipfile.ZipFile(path)
        try:
            self.kinds = self._kinds()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def text(self, name: str) -> str:
        """Return a member that holds one text."""
        kind = self.kinds[name]
        if kind.shape or kind.dtype.kind != "U" or kind.nbytes > 4 * TEXT:
            raise ValueError(f"{name!r} is no text")
        return str(self._values(name))

    def array(self, name: str, *, negative: bool = True) -> npt.NDArray[Any]:
        """Return a member's values, all finite. The caller has checked its kind first: its bytes are allocated here."""
        values = self._values(name)
        if not np.isfinite(values).all():
            raise ValueError(f"{name!r} has values that are not finite")
        if not negative and values.min(initial=0) < 0:
            raise ValueError(f"{name!r} has values below 0, which squares cannot be")
        return values

    def _kinds(self) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for info in self._zip.infolist():
            name = info.filename.removesuffix(SUFFIX)
            if name == info.filename or name in found:
                raise ValueError(f"{info.filename[:60]!r} is no array, or there twice")
            # A small file must not grow to more memory than it has bytes.
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise ValueError(f"{name[:60]!r} is not stored plain")
            with self._zip.open(info) as file:
                found[name] = _kind(file)
                # Sizes are compared before any array is allocated.
                if file.tell() + found[name].nbytes != info.file_size:
                    raise ValueError(f"{name[:60]!r} has another size than its header says")
        return found

    def _values(self, name: str) -> npt.NDArray[Any]:
        with self._zip.open(name + SUFFIX) as file:
            kind = _kind(file)
            values = _room(kind)
            rest = values.reshape(-1).view(np.uint8).data
            while rest:
                count = file.readinto(rest[:_PIECE])  # type: ignore[attr-defined]
                if not count:
                    raise EOFError(f"{name!r} is cut short")
                rest = rest[count:]
            # zipfile compares it only once a read comes to the end of the member.
            file.read(1)  # at the end the checksum is looked at
        return values


def _room(kind: Kind) -> npt.NDArray[Any]:
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


def _kind(file: Any) -> Kind:
    head = file.read(len(_MAGIC) + 2)
    length = int.from_bytes(head[len(_MAGIC) :], "little")
    match = _HEADER.fullmatch(file.read(length).decode("latin-1"))
    if not head.startswith(_MAGIC) or match is None:
        raise ValueError(f"{file.name[:60]!r} has no header of an array of numbers")
    shape = tuple(int(size) for size in match[2].replace(" ", "").split(",") if size)
    return Kind(shape, np.dtype(match[1]))
