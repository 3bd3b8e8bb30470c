"""Writes Neuroglancer precomputed volumes block by block: raw chunks, of which each is a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from znnpy.data.chunked.precomputed import INFO, TYPES, PrecomputedVolume
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Array, Triple
from znnpy.data.writing.chunk_folders import Levelled, chunk_size
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import narrowed
from znnpy.data.writing.folder_output import FolderOutput, write_folder
from znnpy.data.writing.journal import Region
from znnpy.errors import VolumeError

NEAR = 1e-3  # of a voxel, by which a place may miss a whole number of them


class PrecomputedOutput(FolderOutput):
    """A new precomputed folder whose scales are the levels of an image, or of a segmentation where there are labels.

    `offset` must be a whole number of voxels, which becomes `voxel_offset`.
    """

    DTYPES = TYPES

    def _corner(self, level: int) -> Triple:
        """Return the first voxel z, y, x of a level, counted in its own voxels."""
        places = [at / size for at, size in zip(self._offset, self._resolution, strict=True)]
        if any(abs(place - round(place)) > NEAR for place in places):
            raise VolumeError(
                f"{self.path}: it begins at voxel {tuple(round(p, 3) for p in places)} (z, y, x), and precomputed "
                "volumes say whole numbers; name a folder .zarr"
            )
        factors = self._levels[level].factors
        z, y, x = (round(place) // f for place, f in zip(places, factors, strict=True))
        return (z, y, x)

    def _key(self, level: int) -> str:
        return "_".join(f"{n:g}" for n in self._sizes(level))

    def _sizes(self, level: int) -> list[float]:
        return list(self._levels[level].resolution(self._resolution)[::-1])

    def _files(self, level: int, region: Region) -> Iterator[tuple[str, Region]]:
        corner = self._corner(level)
        for _, (lower, upper) in self._chunks(level, region):
            ranges = [f"{lower[i] + corner[i]}-{upper[i] + corner[i]}" for i in (2, 1, 0)]
            yield f"{self._key(level)}/{'_'.join(ranges)}", (lower, upper)

    def _encoded(self, level: int, region: Region, data: Array) -> bytes:
        return np.ascontiguousarray(data, data.dtype.newbyteorder("<")).tobytes()

    def _stored(self, level: int) -> Any:
        trust = Trust(max_bytes=1 << 62)
        return Levelled(PrecomputedVolume(self._partial, self._key(level), trust))

    def _documents(self) -> dict[str, bytes]:
        spec = self.spec
        scales = [
            {
                "key": self._key(level),
                "size": list(found.shape[:0:-1]),
                "resolution": self._sizes(level),
                "voxel_offset": list(self._corner(level)[::-1]),
                "chunk_sizes": [[chunk_size(n) for n in spec.block[::-1]]],
                "encoding": "raw",
            }
            for level, found in enumerate(self._levels)
        ]
        info = {
            "@type": "neuroglancer_multiscale_volume",
            "type": "segmentation" if self._labels else "image",
            "data_type": str(spec.dtype),
            "num_channels": spec.shape[0],
            "scales": scales,
        }
        return {INFO: (json.dumps(info, indent=2) + "\n").encode()}


def write_precomputed(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X) that is in memory, atomically; labels in the smallest type."""
    write_folder(PrecomputedOutput, destination, narrowed(array), attributes)
