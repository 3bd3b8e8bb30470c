"""Shared by NRRD and MetaImage: a header of text, voxels behind it or in another file, axes x first."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Shape4
from znnpy.errors import VolumeError

HEADER = 1 << 20  # bytes of a header at most: those of any program are a thousandth of it
LENGTH = 1 << 48  # voxels along an axis, beyond which no file has any


def head_of(file: IO[bytes]) -> bytes:
    """Return the bytes of a file among which its header must be."""
    return file.read(HEADER)


def refuse_missing(fields: Container[str], needed: Sequence[str], path: Path, title: str) -> None:
    """Raise VolumeError unless a header has all that is needed."""
    missing = [name for name in needed if name not in fields]
    if missing:
        raise VolumeError(f"{path}: its {title} header does not say {', '.join(missing)}")


def other_file(path: Path, name: str, trust: Trust, title: str) -> Path:
    """Return the file in which a header says its voxels lie; VolumeError where it is not beside it, or not one."""
    if "%" in name or name.upper().startswith("LIST") or (" " in name.strip() and _numbered(name)):
        raise VolumeError(
            f"{path}: its voxels lie in several files ({name}); save it as one {title} file"
        )
    found = path.parent / name
    inside = found.resolve().parent == path.parent.resolve()
    if not inside and not trust.external:
        raise VolumeError(
            f"{path}: its voxels lie in {name}, which leads out of its folder; refused. Set "
            "data.allow_external_links if you trust it"
        )
    if not found.is_file():
        raise VolumeError(f"{path}: its voxels lie in {found}, which is not there")
    return found


def last_bytes(path: Path, shape: Shape4, dtype: np.dtype[Any]) -> int:
    """Return the byte at which voxels begin that end with their file."""
    return max(0, path.stat().st_size - math.prod(shape) * dtype.itemsize)


def arranged(sizes: Sequence[int], channel: int | None, path: Path) -> tuple[Shape4, bool]:
    """Return (C, Z, Y, X) of axes of which the first varies fastest, and whether channels lie together.

    `channel`: the number of the axis of channels, which must be the first or the last, None where there is none.
    """
    if not 2 <= len(sizes) <= 4 or not all(0 < n < LENGTH for n in sizes):
        raise VolumeError(
            f"{path} has {len(sizes)} axes of {list(sizes)} voxels; expected x, y, z, with or without channels"
        )
    rest = [n for axis, n in enumerate(sizes) if axis != channel]
    if channel not in (None, 0, len(sizes) - 1) or not 2 <= len(rest) <= 3:
        raise VolumeError(
            f"{path} has axes of {list(sizes)} voxels, of which number {channel} is one of channels; expected it "
            "before or behind x, y, z"
        )
    x, y, z = (*rest, 1)[:3]
    return (sizes[channel] if channel is not None else 1, z, y, x), channel == 0


def _numbered(name: str) -> bool:
    return all(part.lstrip("-").isdigit() for part in name.split()[1:])
