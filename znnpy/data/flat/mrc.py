"""Reads MRC images of electron microscopes, as IMOD and RELION write them; mrcfile knows the header."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.extras import required
from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import NOWHERE, Place, sized
from znnpy.data.flat.volume import Layout, open_flat
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Triple64, Volume
from znnpy.errors import VolumeError, reason, refuse_own

SUFFIXES = (".mrc", ".rec", ".st", ".ali", ".map")
HEADER = 1024  # bytes
ANGSTROM = 0.1  # nm
_MAP, _MAP_AT = b"MAP", 208
_STAMP, _STAMP_AT = 1146047817, 152
"""IMOD's mark, behind which a bit says whether bytes are signed."""
_SIGNED = 1
_STACKS = range(401, 631)
"""Space groups of files of several volumes, as deep as the cell, one after the other."""


def mrcfile() -> Any:
    """Return the package mrcfile; VolumeError where it is not installed."""
    return required("mrcfile", "mrcfile", "mrc", "MRC (.mrc, .rec, .st, .map)")


def is_mrc(path: Path) -> bool:
    """Return whether a file has the name of an MRC image."""
    return path.suffix.lower() in SUFFIXES


def open_mrc(path: Path, trust: Trust) -> Volume:
    """Return an MRC image as a volume, angstroms as nanometres.

    Raises VolumeError for what is damaged, complex, of several volumes, or has its axes in another order than x, y, z.
    """
    library, watch = mrcfile(), Watch()
    try:
        with path.open("rb") as file:
            watch.see(path, os.fstat(file.fileno()))
            block = file.read(HEADER)
        layout = _layout(block, path, library)
    except VolumeError:
        watch.verify()
        raise
    except Exception as error:
        watch.verify()
        refuse_own(error)
        raise VolumeError(f"{path}: its MRC header is damaged ({reason(error)})") from error
    return open_flat(path, layout, trust, watch)


def _layout(block: bytes, path: Path, library: Any) -> Layout:
    if len(block) < HEADER or block[_MAP_AT : _MAP_AT + len(_MAP)] != _MAP:
        raise VolumeError(
            f"{path} is no MRC file, though named so: at byte {_MAP_AT} of its header MAP is expected"
        )
    order = library.utils.byte_order_from_machine_stamp(np.frombuffer(block, np.uint8, 4, 212))
    header = np.frombuffer(block, library.dtypes.HEADER_DTYPE.newbyteorder(order), 1)[0]
    axes = tuple(int(header[name]) for name in ("mapc", "mapr", "maps"))
    if axes not in ((1, 2, 3), (0, 0, 0)):
        raise VolumeError(f"{path} has axes in the order {axes}; expected 1, 2, 3 for x, y, z")
    shape = (1, int(header["nz"]), int(header["ny"]), int(header["nx"]))
    planes, depth = int(header["nz"]), int(header["mz"])
    if int(header["ispg"]) in _STACKS and depth > 0 and planes != depth:
        raise VolumeError(
            f"{path} holds {planes // depth} volumes of {depth} planes; save one by itself"
        )
    more = int(header["nsymbt"])
    if more < 0:
        raise VolumeError(f"{path}: its extended header has {more} bytes")
    return Layout(
        path=path,
        start=HEADER + more,
        shape=shape,
        dtype=_type(block, int(header["mode"]), order, path, library),
        place=_place(header, path),
    )


def _type(block: bytes, mode: int, order: str, path: Path, library: Any) -> np.dtype[Any]:
    stamp, flags = struct.unpack_from(f"{order}2i", block, _STAMP_AT)
    if mode == 0 and stamp == _STAMP and not flags & _SIGNED:
        return np.dtype(np.uint8)
    try:
        found = np.dtype(library.utils.dtype_from_mode(mode))
    except ValueError:
        found = None
    if found is None or found.kind not in "uif":
        raise VolumeError(f"{path} is of mode {mode}; modes 0, 1, 2, 6 and 12 are read")
    kind: np.dtype[Any] = found.newbyteorder(order)
    return kind


def _place(header: Any, path: Path) -> Place:
    cell = np.array([float(header["cella"][axis]) for axis in "zyx"])
    counts = np.array([float(header[f"m{axis}"]) for axis in "zyx"])
    if not (cell != 0).all() or not (counts > 0).all():
        return NOWHERE
    sizes = sized(cell / counts * ANGSTROM, str(path))
    return Place(sizes, _offset(header, sizes, path))


def _offset(header: Any, sizes: Triple64, path: Path) -> Triple64 | None:
    origin = [float(header["origin"][axis]) * ANGSTROM for axis in "zyx"]
    if not np.isfinite(origin).all():
        raise VolumeError(f"{path}: its origin {origin} (z, y, x, nm) is not finite")
    if not any(origin):
        starts = [int(header[f"n{axis}start"]) for axis in "zyx"]
        origin = [n * size for n, size in zip(starts, sizes, strict=True)]
    z, y, x = origin
    return (z, y, x) if any(origin) else None
