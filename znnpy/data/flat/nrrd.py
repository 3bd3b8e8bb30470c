"""Reads NRRD images, attached (.nrrd) or with a header of their own (.nhdr); pynrrd reads their headers."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.extras import required
from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import LPS, NOWHERE, Place, placed, sized
from znnpy.data.flat.text_header import arranged, head_of, last_bytes, other_file, refuse_missing
from znnpy.data.flat.volume import Layout, Packed, open_flat
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Volume, nanometres
from znnpy.errors import VolumeError, reason, refuse_own

SUFFIXES = (".nrrd", ".nhdr")
MAGIC = b"NRRD000"
TITLE = "NRRD"
_SPACES = {
    "left": -1.0,
    "right": 1.0,
    "posterior": -1.0,
    "anterior": 1.0,
    "inferior": -1.0,
    "superior": 1.0,
}
_SHORT = {"l": -1.0, "r": 1.0, "p": -1.0, "a": 1.0, "i": -1.0, "s": 1.0}
_TYPES = {
    **dict.fromkeys(("signed char", "int8", "int8_t"), "i1"),
    **dict.fromkeys(("uchar", "unsigned char", "uint8", "uint8_t"), "u1"),
    **dict.fromkeys(
        ("short", "short int", "signed short", "signed short int", "int16", "int16_t"), "i2"
    ),
    **dict.fromkeys(("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"), "u2"),
    **dict.fromkeys(("int", "signed int", "int32", "int32_t"), "i4"),
    **dict.fromkeys(("uint", "unsigned int", "uint32", "uint32_t"), "u4"),
    **dict.fromkeys(
        (
            "longlong",
            "long long",
            "long long int",
            "signed long long",
            "signed long long int",
            "int64",
            "int64_t",
        ),
        "i8",
    ),
    **dict.fromkeys(
        ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"), "u8"
    ),
    "float": "f4",
    "double": "f8",
}
_ENCODINGS: dict[str, Packed] = {
    "raw": "", "gz": "gzip", "gzip": "gzip", "bz2": "bz2", "bzip2": "bz2"
}  # fmt: skip
_IN_SPACE = ("domain", "space")
_ORDERS = {"little": "<", "big": ">"}


def pynrrd() -> Any:
    """Return the package pynrrd; VolumeError where it is not installed."""
    return required("nrrd", "pynrrd", "nrrd", "NRRD (.nrrd, .nhdr)")


def is_nrrd(path: Path) -> bool:
    """Return whether a file begins as NRRD files do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_nrrd(path: Path, trust: Trust) -> Volume:
    """Return an NRRD image as a volume: raw, or compressed by gzip or bzip2.

    Raises VolumeError for what is damaged, is text, lies in several files, or has other axes than x, y, z and channels.
    """
    library, watch = pynrrd(), Watch()
    try:
        with path.open("rb") as file:
            watch.see(path, os.fstat(file.fileno()))
            head = head_of(file)
        block, start = _cut(head, path)
        layout = _layout(library.read_header(io.BytesIO(block)), path, start, trust, watch)
    except VolumeError:
        watch.verify()
        raise
    except Exception as error:  # pynrrd raises nearly anything on damaged headers
        watch.verify()
        refuse_own(error)
        raise VolumeError(f"{path}: its NRRD header is damaged ({reason(error)})") from error
    return open_flat(path, layout, trust, watch)


def _cut(head: bytes, path: Path) -> tuple[bytes, int]:
    """Return the header, and the byte behind the empty line that ends it, or of a file that is no more than it."""
    if not head.startswith(MAGIC):
        raise VolumeError(f"{path} is no NRRD file, though named so: it begins with {head[:8]!r}")
    ends = [at + len(mark) for mark in (b"\n\n", b"\n\r\n") if (at := head.find(mark)) >= 0]
    if ends:
        return head[: min(ends)], min(ends)
    if b"data file" in head or b"datafile" in head:
        return head, len(head)
    raise VolumeError(f"{path}: its NRRD header has no end, an empty line")


def _layout(
    header: Mapping[str, Any], path: Path, start: int, trust: Trust, watch: Watch
) -> Layout:
    refuse_missing(header, ("type", "dimension", "sizes", "encoding"), path, TITLE)
    sizes = [int(n) for n in header["sizes"]]
    if int(header["dimension"]) != len(sizes):
        raise VolumeError(f"{path} declares {header['dimension']} axes and the sizes {sizes}")
    kind = _TYPES.get(str(header["type"]).lower())
    if kind is None:
        raise VolumeError(f"{path} holds {header['type']}; expected integers or floats")
    packed = _ENCODINGS.get(str(header["encoding"]).lower())
    if packed is None:
        raise VolumeError(
            f"{path} is encoded as {header['encoding']}; raw, gzip and bzip2 are read: save it as one of these"
        )
    channel, known = _channel_axis(header, len(sizes))
    shape, interleaved = arranged(sizes, channel, path)
    named = header.get("data file", header.get("datafile"))
    where = path if named is None else other_file(path, str(named), trust, TITLE)
    watch.look(where)
    dtype = np.dtype(f"{_byte_order(header, kind, path)}{kind}")
    begin = start if named is None else 0
    skip = int(header.get("byte skip", header.get("byteskip", 0)))
    lines = int(header.get("line skip", header.get("lineskip", 0)))
    if lines or skip < -1:
        raise VolumeError(f"{path} skips {lines} lines and {skip} bytes; save it without")
    if skip == -1:
        if packed:
            raise VolumeError(f"{path} skips -1 bytes, which compressed data cannot")
        begin, skip = last_bytes(where, shape, dtype), 0
    return Layout(
        path=where,
        # Bytes are skipped in what was decompressed, but the header before is not compressed.
        start=skip if packed else begin + skip,
        shape=shape,
        dtype=dtype,
        interleaved=interleaved,
        place=_place(header, path, channel),
        packed=packed,
        packed_start=begin,
        unnamed=not known,
    )


def _byte_order(header: Mapping[str, Any], kind: str, path: Path) -> str:
    """Return how numbers of several bytes lie, which the header must say of them."""
    if kind.endswith("1"):
        return "<"
    said = str(header.get("endian", "")).lower()
    if said not in _ORDERS:
        raise VolumeError(
            f"{path}: its NRRD header says {f'endian: {said[:40]}' if said else 'no endian'}, and numbers of several "
            "bytes are little or big"
        )
    return _ORDERS[said]


def _channel_axis(header: Mapping[str, Any], axes: int) -> tuple[int | None, bool]:
    """Return which axis is none of space, None if there is none, and whether the header says so."""
    directions = header.get("space directions")
    if directions is not None and len(directions) == axes:
        outside = [n for n, row in enumerate(directions) if row is None or np.isnan(row).any()]
        if outside:
            return outside[0], True
    kinds = [str(kind).lower() for kind in header.get("kinds", ())]
    outside = [n for n, kind in enumerate(kinds) if kind not in (*_IN_SPACE, "none", "???")]
    if outside and len(kinds) == axes:
        return outside[0], True
    return (axes - 1, False) if axes == 4 else (None, True)


def _place(header: Mapping[str, Any], path: Path, channel: int | None) -> Place:
    directions = header.get("space directions")
    spatial = [n for n in range(int(header["dimension"])) if n != channel]
    if directions is not None:
        steps = np.array([directions[n] for n in spatial], np.float64)
        unit = _unit(header.get("space units"))
        if steps.shape != (3, 3) or unit is None:
            return NOWHERE
        sign = _signs(str(header.get("space", ""))) * unit
        origin = header.get("space origin")
        found = placed(
            (steps * sign).T, sign * (np.zeros(3) if origin is None else origin), str(path)
        )
        return found if origin is not None else Place(found.resolution, None, found.directions)
    spacings, units = header.get("spacings"), header.get("units")
    unit = _unit(
        [units[n] for n in spatial] if units is not None and len(units) > max(spatial) else None
    )
    if spacings is None or len(spatial) != 3 or unit is None:
        return NOWHERE
    sizes = [abs(float(spacings[n])) for n in spatial][::-1]
    return NOWHERE if any(np.isnan(sizes)) else Place(sized([v * unit for v in sizes], str(path)))


def _unit(units: Any) -> float | None:
    """Return the nanometres of a unit that all axes share; millimetres where none is said, as all programs take it."""
    said = {str(unit).lower() for unit in units or ()} - {""}
    if not said:
        return nanometres("mm")
    return nanometres(said.pop()) if len(said) == 1 else None


def _signs(space: str) -> Any:
    """Return the factors that turn a space's directions into right, front, up; unknown ones are taken for these."""
    words = space.lower().split("-")[:3]
    if all(word in _SPACES for word in words) and len(words) == 3:
        return np.array([_SPACES[word] for word in words])
    if len(space) == 3 and all(letter in _SHORT for letter in space.lower()):
        return np.array([_SHORT[letter] for letter in space.lower()])
    return np.abs(LPS)
