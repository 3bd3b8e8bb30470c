"""Limits on untrusted files of any format: declared sizes, compression ratios, links, filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from znnpy.data.process_memory import available, available_memory, readable, take
from znnpy.errors import VolumeError

# Deflate's best ratio is 1032 : 1; what declares more than this was not compressed by it.
COMPRESSION = 1100
SMALL = (
    256 << 20
)  # bytes that any file may declare, however small it is: memory for them does no harm
CHUNK_LIMIT = 1 << 30  # bytes of a chunk, which is decoded as a whole
SEARCHED = (
    10_000  # datasets that are looked through: bounds the time that a file made to harm takes
)

SHARE = 0.5  # of the memory that is still available, for a file that is read whole


@dataclass(frozen=True)
class Trust:
    """Permissions of a file: to read other files, load plug-ins, declare more than is plausible.

    `external`: links, virtual datasets, external storage and any filter; `filters`: names of
    `hdf5.safety.MORE_FILTERS`; `max_bytes`: bound on the declared size, else it follows from the file's
    size.
    """

    external: bool = False
    filters: tuple[str, ...] = ()
    max_bytes: int | None = None


def claim_size(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], stored: int, trust: Trust
) -> None:
    """Count memory for an array; VolumeError if `stored` bytes of a file cannot hold it, or memory does not suffice."""
    declared = math.prod(shape) * dtype.itemsize
    limit = max(SMALL, COMPRESSION * stored) if trust.max_bytes is None else trust.max_bytes
    if declared > limit:
        raise VolumeError(
            f"{name} declares {readable(declared)} of data, shape {shape}, in {readable(stored)} of the "
            f"file; at most {readable(limit)} are accepted"
        )
    free = available_memory()
    if declared > SHARE * free:
        raise VolumeError(
            f"{name} takes {readable(declared)} in memory, where such files are read whole, but only "
            f"{available(free)}, of which {SHARE:.0%} may be used; HDF5 and Zarr are read "
            "by region"
        )
    take(declared)
