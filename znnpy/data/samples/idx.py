"""Reads arrays in idx files, as MNIST's: plain or compressed by gzip."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.safety_limits import Trust, claim_size
from znnpy.data.samples.in_memory import whole_volume
from znnpy.data.volume import Array, Volume
from znnpy.errors import VolumeError, reason

# By the third byte of a file; idx is big-endian.
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_AXES = 4  # at most
GZIP = b"\x1f\x8b"


def is_idx(head: bytes) -> bool:
    """Return whether a file begins as idx files do."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _TYPES and 1 <= head[3] <= _AXES


def open_idx(path: Path, *, labels: bool, trust: Trust) -> Volume:
    """Return the array of an idx file as a volume; VolumeError for what is no idx file, truncated or too long."""
    watch = Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        packed = file.read(2) == GZIP
        file.seek(0)
        try:
            stream: Any = gzip.GzipFile(fileobj=file) if packed else file
            array = _array(stream, path, trust)
        except (EOFError, zlib.error, OSError) as error:
            watch.verify()
            what = "its gzip data are cut or damaged" if packed else "it cannot be read"
            raise VolumeError(f"{path}: {what} ({reason(error)})") from error
    watch.verify()
    return whole_volume(array, str(path), labels=labels)


def _array(stream: IO[bytes], path: Path, trust: Trust) -> Array:
    head = stream.read(4)
    if not is_idx(head):
        raise VolumeError(
            f"{path} holds no idx array: it begins with {head!r}, where two zeros, a type and the number "
            "of axes are expected. Of what gzip packed only idx files are read as they are: unpack others first"
        )
    kind, axes = head[2], head[3]
    sizes = stream.read(4 * axes)
    if len(sizes) < 4 * axes:
        raise VolumeError(f"{path} ends within its header of {axes} axes")
    shape = struct.unpack(f">{axes}I", sizes)
    dtype = np.dtype(_TYPES[kind])
    claim_size(str(path), shape, dtype, path.stat().st_size, trust)
    return _filled(stream, path, shape, dtype)


def _filled(stream: IO[bytes], path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    wanted = math.prod(shape) * dtype.itemsize
    data = stream.read(wanted)
    if len(data) < wanted:
        raise VolumeError(
            f"{path} is cut: its header declares {shape}, {wanted} bytes, and {len(data)} are there"
        )
    if stream.read(1):
        raise VolumeError(
            f"{path} is longer than the {wanted} bytes of shape {shape} that its header declares"
        )
    return np.frombuffer(data, dtype).reshape(shape)
