"""Reads NIfTI images, versions 1 and 2, plain or compressed by gzip; nibabel reads their headers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from znnpy.data.extras import required
from znnpy.data.file_changes import Watch
from znnpy.data.flat.geometry import Place, placed, sized
from znnpy.data.flat.volume import DAMAGE, Layout, open_flat, stream_of
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Shape4, Volume
from znnpy.errors import VolumeError, reason, refuse_own

SUFFIXES = (".nii", ".nii.gz")
GZIP = b"\x1f\x8b"
MILLIMETRE = 1e6  # nm; also where the header names no unit, as all programs take it
_UNITS = {0: MILLIMETRE, 1: 1e9, 2: MILLIMETRE, 3: 1e3}
_HEADS = {348: ("Nifti1Header", b"n+1\0", 344), 540: ("Nifti2Header", b"n+2\0", 4)}
"""By the number that a header begins with, its bytes: nibabel's class, the magic bytes, and where they stand."""
FIRST = {348: 352, 540: 544}
"""The byte at which voxels begin where the header does not say."""


def nibabel() -> Any:
    """Return the package nibabel; VolumeError where it is not installed."""
    return required("nibabel", "nibabel", "nifti", "NIfTI (.nii, .nii.gz)")


def is_nifti(path: Path) -> bool:
    """Return whether a file has the name of a NIfTI image."""
    return path.name.lower().endswith(SUFFIXES)


def open_nifti(path: Path, trust: Trust) -> Volume:
    """Return a NIfTI image as a volume; axes 4 and 5 are channels, units become nanometres.

    Raises VolumeError for what is damaged, has several times, or is no image of numbers.
    """
    library, watch = nibabel(), Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        packed = file.read(2) == GZIP
        file.seek(0)
        try:
            header = _header(stream_of(file, "gzip" if packed else ""), path, library)
            layout = _layout(header, path, packed=packed)
        except VolumeError:
            watch.verify()
            raise
        except Exception as error:  # nibabel raises nearly anything on damaged headers
            watch.verify()
            refuse_own(error)
            what = "gzip data or header" if packed and isinstance(error, DAMAGE) else "header"
            raise VolumeError(f"{path}: its NIfTI {what} is damaged ({reason(error)})") from error
    return open_flat(path, layout, trust, watch)


def _header(stream: IO[bytes], path: Path, library: Any) -> Any:
    first = stream.read(4)
    orders = {int.from_bytes(first, "little"): "<", int.from_bytes(first, "big"): ">"}
    size = next((n for n in orders if n in _HEADS), None)
    if size is None:
        raise VolumeError(
            f"{path} is no NIfTI image, though named so: it begins with {first!r}, where the size of its header, 348 "
            "or 540, is expected"
        )
    kind, magic, at = _HEADS[size]
    block = first + stream.read(size - 4)
    if block[at : at + 4] != magic:
        found = block[at : at + 4]
        pair = found in (b"ni1\0", b"ni2\0")
        why = "its voxels lie in another file (.img): nibabel.load and nibabel.save make one file of them"
        raise VolumeError(
            f"{path}: {why if pair else f'no NIfTI image: its magic bytes are {found!r}'}"
        )
    # Its checks repair some fields and say so on the terminal; what matters is looked at here.
    return getattr(library, kind)(block, orders[size], check=False)


def _layout(header: Any, path: Path, *, packed: bool) -> Layout:
    dtype = header.get_data_dtype()
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
        dtype=np.dtype(dtype),
        slope=slope,
        intercept=intercept,
        place=_place(header, path),
        packed="gzip" if packed else "",
    )


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


def _scale(header: Any) -> tuple[float, float]:
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    # As the standard has it: no slope, or none that is a number, means that values are as stored.
    if slope == 0 or not np.isfinite(slope):
        return 1.0, 0.0
    return slope, intercept


def _place(header: Any, path: Path) -> Place:
    unit = _UNITS.get(int(header["xyzt_units"]) & 7)
    if unit is None:
        raise VolumeError(
            f"{path}: the unit of length number {int(header['xyzt_units']) & 7} is none of NIfTI's"
        )
    if int(header["sform_code"]) > 0 or int(header["qform_code"]) > 0:
        affine = np.asarray(header.get_best_affine(), np.float64)
        return placed(affine[:3, :3] * unit, affine[:3, 3] * unit, str(path))
    sizes = [abs(float(v)) or 1.0 for v in header["pixdim"][3:0:-1]]
    return Place(sized([v * unit for v in sizes], str(path)))
