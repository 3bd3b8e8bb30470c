"""Reads NIfTI images, versions 1 and 2, plain or compressed by gzip."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import Place, placed, sized
from znnpy.data.flat.nifti_header import (
    FIRST,
    MAGIC,
    OTHERS,
    TYPES,
    Header,
    affine_of,
    magic_of,
    parsed,
)
from znnpy.data.flat.volume import DAMAGE, Layout, open_flat, stream_of
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Shape4, Volume
from znnpy.errors import VolumeError, reason

SUFFIXES = (".nii", ".nii.gz")
GZIP = b"\x1f\x8b"
MILLIMETRE = 1e6  # nm; also where the header names no unit, as all programs take it
_UNITS = {0: MILLIMETRE, 1: 1e9, 2: MILLIMETRE, 3: 1e3}


def is_nifti(path: Path) -> bool:
    """Return whether a file has the name of a NIfTI image."""
    return path.name.lower().endswith(SUFFIXES)


def open_nifti(path: Path, trust: Trust) -> Volume:
    """Return a NIfTI image as a volume; axes 4 and 5 are channels, units become nanometres.

    Raises VolumeError for what is damaged, has several times, or is no image of numbers.
    """
    watch = Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        packed = file.read(2) == GZIP
        file.seek(0)
        try:
            header = _header(stream_of(file, "gzip" if packed else ""), path)
            layout = _layout(header, path, packed=packed)
        except VolumeError:
            watch.verify()
            raise
        except DAMAGE as error:
            watch.verify()
            what = "gzip data or header" if packed else "header"
            raise VolumeError(f"{path}: its NIfTI {what} is damaged ({reason(error)})") from error
    return open_flat(path, layout, trust, watch)


def _header(stream: IO[bytes], path: Path) -> Header:
    first = stream.read(4)
    orders = {int.from_bytes(first, "little"): "<", int.from_bytes(first, "big"): ">"}
    size = next((n for n in orders if n in MAGIC), None)
    if size is None:
        raise VolumeError(
            f"{path} is no NIfTI image, though named so: it begins with {first!r}, where the size of its header, 348 "
            "or 540, is expected"
        )
    block = first + stream.read(size - 4)
    if len(block) < size:
        raise EOFError(f"it ends after {len(block)} bytes")
    header = parsed(block, orders[size])
    found = magic_of(header)
    if found != MAGIC[size][:4]:
        pair = found in (b"ni1\0", b"ni2\0")
        why = "its voxels lie in another file (.img): nibabel.load and nibabel.save make one file of them"
        raise VolumeError(
            f"{path}: {why if pair else f'no NIfTI image: its magic bytes are {found!r}'}"
        )
    return header


def _layout(header: Header, path: Path, *, packed: bool) -> Layout:
    shape = _shape([int(n) for n in header["dim"]], path)
    start = float(header["vox_offset"])
    first = FIRST[int(header["sizeof_hdr"])]
    if not (start == 0 or first <= start < 2**53):
        raise VolumeError(f"{path}: its voxels begin at byte {start:g}, inside the header")
    slope, intercept = _scale(header)
    return Layout(
        path=path,
        start=int(start) or first,
        shape=shape,
        dtype=_dtype(header, path),
        slope=slope,
        intercept=intercept,
        place=_place(header, path),
        packed="gzip" if packed else "",
    )


def _dtype(header: Header, path: Path) -> np.dtype[np.generic]:
    number = int(header["datatype"])
    if number in OTHERS:
        raise VolumeError(
            f"{path} holds {OTHERS[number]}; expected integers or floats of at most 64 bits"
        )
    if number not in TYPES:
        raise VolumeError(f"{path}: the type of its voxels, number {number}, is none of NIfTI's")
    return np.dtype(TYPES[number]).newbyteorder(header["dim"].dtype.byteorder)


def _shape(dim: list[int], path: Path) -> Shape4:
    """Return (C, Z, Y, X) of the header's `dim`: the number of axes, then x, y, z, time, vector ..."""
    axes = dim[0]
    if not 1 <= axes <= 7:
        raise VolumeError(f"{path}: its NIfTI header declares {axes} axes; 1 to 7 are possible")
    x, y, z, *more = (dim[1 : 1 + axes] + [1] * 7)[:7]
    channels = [n for n in more if n != 1]
    if len(channels) > 1:
        raise VolumeError(
            f"{path} has {axes} axes of {dim[1 : 1 + axes]} voxels (x, y, z, time, vector ...); expected one image, "
            "with or without one axis of channels"
        )
    return (channels[0] if channels else 1, z, y, x)


def _scale(header: Header) -> tuple[float, float]:
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    # As the standard has it: no slope, or none that is a number, means that values are as stored.
    if slope == 0 or not np.isfinite(slope):
        return 1.0, 0.0
    return slope, intercept


def _place(header: Header, path: Path) -> Place:
    unit = _UNITS.get(int(header["xyzt_units"]) & 7)
    if unit is None:
        raise VolumeError(
            f"{path}: the unit of length number {int(header['xyzt_units']) & 7} is none of NIfTI's"
        )
    affine = affine_of(header)
    if affine is not None:
        return placed(affine[:, :3] * unit, affine[:, 3] * unit, str(path))
    sizes = [abs(float(v)) or 1.0 for v in header["pixdim"][3:0:-1]]
    return Place(sized([v * unit for v in sizes], str(path)))
