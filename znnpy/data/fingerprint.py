"""Fingerprints of volumes: what a journal remembers of the inputs that an output was made from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import gmtime, strftime
from zlib import crc32

import numpy as np

from znnpy.data.pictures.volume import pictures_of
from znnpy.data.tiff.folder import planes_of
from znnpy.data.volume import Triple, Volume
from znnpy.data.zarr.store import MARKS, is_zarr
from znnpy.dataset_path import split_source

# Corners, middles of edges and faces, and the centre: 27 reads. More would take long on chunked
# files; time and size show most changes anyway.
SAMPLES = 3  # cubes along each axis that a fingerprint looks at
CUBE = 16  # voxels
# Looking at millions of chunks would take minutes at every start.
FILES = 50_000  # of a folder, at most


def fingerprint(volume: Volume, path: Path | None) -> str:
    """Return a fingerprint of a volume's content without reading all of it: sizes, times of change, and samples.

    Of a folder the sizes of its files, or of those of the array in it, are added up, and the newest time counts.
    """
    words = [f"{volume.shape} {volume.dtype}"]
    if path is not None and path.exists():
        states = [(s.st_size, s.st_mtime_ns) for s in (f.stat() for f in _files(volume, path))]
        newest = max((time for _, time in states), default=0)
        when = strftime("%Y-%m-%d %H:%M:%S", gmtime(newest // 10**9))
        words.append(f"{sum(n for n, _ in states)} bytes changed {when}.{newest % 10**9:09d}")
        # The number and the list tell a folder with a file exchanged for another of equal size.
        if len(states) != 1:
            words.append(f"{len(states)} files {crc32(repr(states).encode()):08x}")
    return ", ".join([*words, f"samples {_samples(volume):08x}"])


def _files(volume: Volume, path: Path) -> Iterable[Path]:
    """Yield the file, the planes of a folder, or the first files of an array in a folder of chunks by name."""
    array = path / (split_source(volume.name)[1] or "")
    if path.is_file():
        return [path]
    if not is_zarr(array) and (planes := planes_of(path) or pictures_of(path)):
        return planes
    return itertools.islice(_inside(array), FILES)


def _inside(folder: Path) -> Iterator[Path]:
    """Yield metadata and chunks; hidden files are other programs'."""
    for place, folders, names in os.walk(folder):
        # In place, as os.walk wants it: an order of the file system's would change the checksum.
        folders.sort()
        seen = (name for name in sorted(names) if name in MARKS or not name.startswith("."))
        yield from (Path(place, name) for name in seen)


def _samples(volume: Volume) -> int:
    found = 0
    sizes = [min(CUBE, n) for n in volume.extent]
    axes = [
        # `unique`: in small volumes cubes fall together.
        np.unique(np.linspace(0, n - size, SAMPLES).round().astype(int))
        for n, size in zip(volume.extent, sizes, strict=True)
    ]
    for z, y, x in itertools.product(*axes):
        lower: Triple = (int(z), int(y), int(x))
        upper = (lower[0] + sizes[0], lower[1] + sizes[1], lower[2] + sizes[2])
        found = crc32(np.ascontiguousarray(volume.read(lower, upper, finite=False)).data, found)
    return found
