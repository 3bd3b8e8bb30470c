"""Writes OME-TIFF stacks block by block, not compressed: a page for each slice, BigTIFF where 4 GB do not suffice."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from znnpy.data.tiff.ome import PIXEL_TYPES, ome_xml
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, narrowed, reserve, write_at, write_flat
from znnpy.data.writing.pyramid import coarser
from znnpy.errors import VolumeError

CLASSIC = (1 << 32) - (1 << 25)  # bytes up to which places fit into 32 bits, with room for all else
PAGE = 512  # bytes that the description of a page takes at most
PLANE = 1024  # voxels along y and x of the smallest slices, at most
BAND = 256  # rows of a smaller slice that are made at once
CENTIMETRE = 1e7  # nanometres


class TiffOutput(FlatOutput):
    """A new OME-TIFF file; `resolution` and `offset` become sizes and position of its first voxel.

    Slices of more than `PLANE` voxels along y or x also have smaller ones, half as large each (its SubIFDs), which are
    made when all blocks are written: means of images, single voxels of labels.
    """

    KEEPS_MEANING = True

    def _allocated(self, new: Path) -> int:
        spec = self.spec
        if spec.dtype.str[1:] not in PIXEL_TYPES:
            raise VolumeError(
                f"{self.path}: OME-TIFF has no {spec.dtype}, but integers of up to 32 bits, float32 and float64; "
                "name a file .h5 or a folder .zarr"
            )
        channels, depth, _, _ = spec.shape
        pages, planes = channels * depth, self._planes()
        _, y, x = spec.attributes.get("resolution", (1.0, 1.0, 1.0))
        counts = [pages * spec.dtype.itemsize * height * width for height, width in planes]
        size = sum(counts) + pages * PAGE * len(planes)
        shared: dict[str, Any] = {
            "dtype": spec.dtype,
            "photometric": "minisblack",
            "metadata": None,
            "software": "znnpy",
            "returnoffset": True,
        }
        with tifffile.TiffWriter(new, byteorder="<", bigtiff=size > CLASSIC) as file:
            (place, _), *further = [
                file.write(
                    shape=(pages, *plane),
                    **shared,
                    **_described(
                        number, len(planes) - 1, ome_xml(spec.shape, spec.dtype, spec.attributes)
                    ),
                    resolution=(CENTIMETRE / x / 2**number, CENTIMETRE / y / 2**number),
                    resolutionunit="CENTIMETER",
                )
                for number, plane in enumerate(planes)
            ]
        self._further = [(int(at), n) for (at, _), n in zip(further, counts[1:], strict=True)]
        ends = [at + count for at, count in [(place, spec.nbytes), *self._further]]
        reserve(new, max(new.stat().st_size, *ends))
        return int(place)

    def _planes(self) -> list[tuple[int, int]]:
        """Return the voxels y, x of a slice, and of the smaller ones."""
        found = [(self.spec.shape[2], self.spec.shape[3])]
        while max(found[-1]) > PLANE:
            height, width = found[-1]
            found.append((-(-height // 2), -(-width // 2)))
        return found

    def _settle(self) -> None:
        places = [self._place, *(place for place, _ in self._further)]
        planes, labels = self._planes(), not self.spec.channels and self.spec.dtype.kind in "iub"
        levels = zip(itertools.pairwise(places), itertools.pairwise(planes), strict=True)
        for (source, target), (before, after) in levels:
            for page in range(self.spec.shape[0] * self.spec.shape[1]):
                for first in range(0, after[0], BAND):
                    last = min(first + BAND, after[0])
                    rows = self._rows(source, before, page, 2 * first, min(2 * last, before[0]))
                    y, x = (1 if a == b else 2 for a, b in zip(before, after, strict=True))
                    made = coarser(rows[None, None], (1, y, x), labels=labels)
                    write_at(self._file, self._at(target, after, page, first), made)
        super()._settle()

    def _rows(self, place: int, plane: tuple[int, int], page: int, first: int, last: int) -> Array:
        many = (last - first) * plane[1]
        data = os.pread(
            self._file, many * self.spec.dtype.itemsize, self._at(place, plane, page, first)
        )
        return np.frombuffer(data, self.spec.dtype, many).reshape(last - first, plane[1])

    def _at(self, place: int, plane: tuple[int, int], page: int, row: int) -> int:
        return place + (page * plane[0] + row) * plane[1] * self.spec.dtype.itemsize


def _described(level: int, further: int, text: str) -> dict[str, Any]:
    """Return what tifffile is told of the slices themselves, or of smaller ones."""
    if level:
        return {"subfiletype": 1}
    return {"description": text, **({"subifds": further} if further else {})}


def write_tiff(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(TiffOutput, destination, narrowed(array), attributes)
