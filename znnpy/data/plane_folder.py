"""Base of volumes in a folder, one plane a file, in the order of the numbers in their names."""

from __future__ import annotations

import re
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import COMPRESSION, SMALL, Trust
from znnpy.data.volume import Array, Triple, Volume
from znnpy.errors import VolumeError
from znnpy.volume_sets import by_number


def files_of(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the files of a folder with such suffixes, plane2 before plane10; hidden files are left out."""
    found = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".")
    ]
    return sorted(found, key=lambda path: by_number(path.name))


class PlaneFolder(Volume):
    """Planes (c, y, x), each read when it is needed.

    All must be of one shape and type, and the files that were there when the folder was opened, which
    is checked as they are read. The voxel size is unknown. A format implements `_decoded`.
    """

    def __init__(self, path: Path, planes: Sequence[Path], trust: Trust) -> None:
        self._planes, self._trust = list(planes), trust
        self._closed, self._watch = False, Watch()
        if gap := _gap(self._planes):
            warnings.warn(f"{path}: {gap}", stacklevel=2)
        for plane in self._planes:
            self._watch.look(plane)
        first = self._plane(0, None)
        channels, height, width = first.shape
        super().__init__(str(path), (channels, len(planes), height, width), first.dtype)
        most = trust.max_bytes
        if most is not None and self.nbytes > most:
            raise VolumeError(
                f"{path} holds {readable(self.nbytes)}; at most {readable(most)} are accepted"
            )

    @abstractmethod
    def _decoded(self, path: Path, wanted: tuple[int, ...] | None) -> Array:
        """Return the plane (c, y, x) of a file, and have `_watch` see it; `wanted`: the shape that it must have."""

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if self._closed:
            raise VolumeError(f"{self.name}: the volume was closed")
        wanted = (self.channels, *self.extent[1:])
        y, x = slice(lower[1], upper[1]), slice(lower[2], upper[2])
        planes = [self._plane(z, wanted)[:, y, x] for z in range(lower[0], upper[0])]
        return np.stack(planes, axis=1)

    def close(self) -> None:
        """Read no more; no file is held open."""
        self._closed = True

    def _plane(self, z: int, wanted: tuple[int, ...] | None) -> Array:
        """Return one plane (C, y, x), after checking what the file declares."""
        path = self._planes[z]
        if not path.is_file():
            self._watch.look(path)
            raise VolumeError(f"{path} is not a file")
        inside = path.resolve().parent == path.parent.resolve()
        if not self._trust.external and path.is_symlink() and not inside:
            raise VolumeError(
                f"{path} is a link that leads out of the folder; refused. Set "
                "data.allow_external_links if you trust it"
            )
        return self._decoded(path, wanted)

    def _refuse_other(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        wanted: tuple[int, ...] | None,
    ) -> None:
        """Raise VolumeError for a plane (c, y, x) that declares too much, or is not like the first one."""
        size = int(np.prod([float(n) for n in shape])) * dtype.itemsize
        limit = max(SMALL, COMPRESSION * path.stat().st_size)
        if size > limit:
            raise VolumeError(
                f"{path} declares {readable(size)} of data, shape {shape}; at most "
                f"{readable(limit)} are accepted"
            )
        if wanted is not None and (shape, dtype.newbyteorder("=")) != (wanted, self.dtype):
            raise VolumeError(
                f"{path} holds {shape} (c, y, x) of {dtype}, the first plane {wanted} of "
                f"{self.dtype}; all planes of a folder must be alike; {_each_by_itself(path)}"
            )

    def _damaged(self, path: Path, what: str, why: str) -> VolumeError:
        others = f"; all of a folder are one volume, {_each_by_itself(path)}"
        told = f"{path}: the {what} cannot be read ({why})"
        return VolumeError(told + (others if len(self._planes) > 1 else ""))


def _each_by_itself(path: Path) -> str:
    return f"a pattern such as {path.parent}/*{path.suffix} names volumes of a plane each"


def _gap(planes: Sequence[Path]) -> str:
    """Return as text where numbers in names skip some, though they otherwise rise by the same step; else ""."""
    found = [re.findall(r"[0-9]+", plane.stem) for plane in planes]
    if len(found) < 3 or not all(found):
        return ""
    steps = [int(b[-1]) - int(a[-1]) for a, b in pairwise(found)]
    usual = sorted(steps)[len(steps) // 2]
    if usual < 1 or any(step < 1 or step % usual for step in steps):
        return ""
    gaps = [n for n, step in enumerate(steps) if step > usual]
    if not gaps:
        return ""
    first, after = planes[gaps[0]].name, planes[gaps[0] + 1].name
    more = f", and {len(gaps) - 1} more such gaps" if len(gaps) > 1 else ""
    return f"{first} is followed by {after}{more}; what is missing there is no plane of the volume"
