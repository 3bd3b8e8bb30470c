"""Reads arrays in NumPy's npy files by region, never through pickle."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.flat.volume import Layout, open_flat
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Shape4, Volume
from znnpy.errors import VolumeError, reason, refuse_own

MAGIC = b"\x93NUMPY"
HEAD_BYTES = 12 + 10_000
"""Bytes of a header at most: NumPy refuses longer ones, but only after reading them."""
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def open_npy(path: Path, trust: Trust, *, labels: bool) -> Volume:
    """Return an array (y, x), (z, y, x) or (c, z, y, x) as a volume; of `labels` also one value for each slice, (z).

    Raises VolumeError for what is damaged, or holds Python objects.
    """
    watch = Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        head = io.BytesIO(file.read(HEAD_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _READERS:
            raise VolumeError(
                f"{path} is of version {version} of NumPy's format; 1.0 and 2.0 are read"
            )
        shape, fortran, dtype = _READERS[version](head)
    except VolumeError:
        raise
    except Exception as error:  # NumPy parses a header as Python, and raises nearly anything
        watch.verify()
        refuse_own(error)
        raise VolumeError(f"{path}: its npy header is damaged ({reason(error)})") from error
    if dtype.hasobject:
        raise VolumeError(f"{path} holds Python objects, which pickle alone reads: refused")
    layout = Layout(
        path=path,
        start=head.tell(),
        shape=_shape(shape, path, labels),
        # Read as bytes, since a file may hold others than 0 and 1.
        dtype=np.dtype(np.uint8) if dtype.kind == "b" else dtype,
        logical=dtype.kind == "b",
        reversed=fortran,
        unnamed=len(shape) == 4,
    )
    return open_flat(path, layout, trust, watch)


def _shape(shape: tuple[int, ...], path: Path, labels: bool) -> Shape4:
    if len(shape) == 1 and labels:
        return (1, *shape, 1, 1)
    if not 2 <= len(shape) <= 4:
        raise VolumeError(
            f"{path} has {len(shape)} axes, shape {shape}; expected z, y, x, with or without channels before them, or "
            "y, x"
        )
    c, z, y, x = ((1,) * (4 - len(shape)) + shape)[:4]
    return (c, z, y, x)
