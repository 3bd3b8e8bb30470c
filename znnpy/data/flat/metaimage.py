"""Reads MetaImage files as ITK writes them: .mha, or a header .mhd and a file of voxels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import LPS, NOWHERE, Place, placed, sized
from znnpy.data.flat.text_header import arranged, head_of, last_bytes, other_file, refuse_missing
from znnpy.data.flat.volume import Layout, open_flat
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Volume
from znnpy.errors import VolumeError, reason, refuse_own

SUFFIXES = (".mha", ".mhd")
TITLE = "MetaImage"
MILLIMETRE = 1e6  # nm; the format has no other unit
LAST = "ElementDataFile"
TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG": "i4",
    "MET_ULONG": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}


def is_metaimage(path: Path) -> bool:
    """Return whether a file has the name of a MetaImage."""
    return path.suffix.lower() in SUFFIXES


def open_metaimage(path: Path, trust: Trust) -> Volume:
    """Return a MetaImage as a volume: plain, or compressed by zlib.

    Raises VolumeError for what is damaged, is text, lies in several files, or has other axes than x, y, z and channels.
    """
    watch = Watch()
    try:
        with path.open("rb") as file:
            watch.see(path, os.fstat(file.fileno()))
            fields, start = _fields(head_of(file), path)
        layout = _layout(fields, path, start, trust, watch)
    except VolumeError:
        watch.verify()
        raise
    except Exception as error:  # of words where numbers are expected, too many of them ...
        watch.verify()
        refuse_own(error)
        raise VolumeError(f"{path}: its MetaImage header is damaged ({reason(error)})") from error
    return open_flat(path, layout, trust, watch)


def _fields(head: bytes, path: Path) -> tuple[dict[str, str], int]:
    """Return the lines NAME = VALUE up to the last, which names the file of voxels, and the byte behind it."""
    fields: dict[str, str] = {}
    place = 0
    while place < len(head):
        end = head.find(b"\n", place)
        end = len(head) if end < 0 else end
        name, mark, value = head[place:end].decode("latin-1").partition("=")
        if not mark or not name.strip().isidentifier():
            break
        fields[name.strip()] = value.strip()
        place = end + 1
        if name.strip() == LAST:
            return fields, place
    raise VolumeError(
        f"{path} is no MetaImage, though named so: it has no line {LAST} = LOCAL, or with a file's name, which ends "
        "the header"
    )


def _layout(
    fields: Mapping[str, str], path: Path, start: int, trust: Trust, watch: Watch
) -> Layout:
    refuse_missing(fields, ("NDims", "DimSize", "ElementType"), path, TITLE)
    sizes = [int(word) for word in fields["DimSize"].split()]
    if int(fields["NDims"]) != len(sizes):
        raise VolumeError(f"{path} declares {fields['NDims']} axes and the sizes {sizes}")
    if not _true(fields, "BinaryData", "True"):
        raise VolumeError(f"{path} holds its voxels as text; save them as binary data")
    kind = TYPES.get(fields["ElementType"])
    if kind is None:
        raise VolumeError(f"{path} holds {fields['ElementType']}; expected integers or floats")
    together = int(fields.get("ElementNumberOfChannels", "1"))
    axes = [together, *sizes] if together != 1 else sizes
    channel = 0 if together != 1 else 3 if len(sizes) == 4 else None
    shape, interleaved = arranged(axes, channel, path)
    local = fields[LAST].upper() == "LOCAL"
    where = path if local else other_file(path, fields[LAST], trust, TITLE)
    watch.look(where)
    big = _true(fields, "BinaryDataByteOrderMSB") or _true(fields, "ElementByteOrderMSB")
    dtype = np.dtype(f"{'>' if big else '<'}{kind}")
    packed = _true(fields, "CompressedData")
    skip = int(fields.get("HeaderSize", "0"))
    if skip == -1:
        skip = last_bytes(where, shape, dtype)
    begin = start if local else max(0, skip)
    return Layout(
        path=where,
        start=0 if packed else begin,
        shape=shape,
        dtype=dtype,
        interleaved=interleaved,
        place=_place(fields, len(sizes), path),
        packed="zlib" if packed else "",
        packed_start=begin,
        unnamed=channel == 3,
    )


def _place(fields: Mapping[str, str], axes: int, path: Path) -> Place:
    sizes = _numbers(fields, ("ElementSpacing", "ElementSize"), axes)
    if axes < 3:
        return NOWHERE
    spacing = np.abs(sizes[:3]) if sizes is not None else np.ones(3)
    matrix = _numbers(fields, ("TransformMatrix", "Rotation", "Orientation"), axes * axes)
    origin = _numbers(fields, ("Offset", "Position", "Origin"), axes)
    if matrix is None and origin is None:
        if sizes is None:
            return NOWHERE
        return Place(sized(spacing[::-1] * MILLIMETRE, str(path)))
    # A row for each axis x, y, z.
    turned = np.eye(axes) if matrix is None else matrix.reshape(axes, axes)
    steps = turned[:3, :3] * LPS * spacing[:, None] * MILLIMETRE
    first = np.zeros(3) if origin is None else origin[:3]
    return placed(steps.T, first * LPS * MILLIMETRE, str(path))


def _numbers(
    fields: Mapping[str, str], names: tuple[str, ...], count: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    text = next((fields[name] for name in names if name in fields), None)
    if text is None:
        return None
    found = np.array([float(word) for word in text.split()])
    if found.shape != (count,):
        raise ValueError(f"{names[0]} has {found.size} numbers, not {count}")
    return found


def _true(fields: Mapping[str, str], name: str, usual: str = "False") -> bool:
    return fields.get(name, usual).lower() in ("true", "1", "t", "yes")
