"""Writes OME-TIFF stacks block by block, not compressed: a page for each slice, BigTIFF where 4 GB do not suffice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tifffile

from znnpy.data.tiff.ome import PIXEL_TYPES, ome_xml
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, narrowed, reserve, write_flat
from znnpy.errors import VolumeError

CLASSIC = (1 << 32) - (1 << 25)  # bytes up to which places fit into 32 bits, with room for all else
PAGE = 512  # bytes that the description of a page takes at most
CENTIMETRE = 1e7  # nanometres


class TiffOutput(FlatOutput):
    """A new OME-TIFF file; `resolution` and `offset` become sizes and position of its first voxel."""

    KEEPS_OFFSETS = True

    def _allocated(self, new: Path) -> int:
        spec = self.spec
        if spec.dtype.str[1:] not in PIXEL_TYPES:
            raise VolumeError(
                f"{self.path}: OME-TIFF has no {spec.dtype}, but integers of up to 32 bits, float32 and float64; "
                "name a file .h5 or a folder .zarr"
            )
        channels, depth, height, width = spec.shape
        pages = channels * depth
        _, y, x = spec.attributes.get("resolution", (1.0, 1.0, 1.0))
        place, _ = tifffile.imwrite(
            new,
            shape=(pages, height, width),
            dtype=spec.dtype,
            byteorder="<",
            bigtiff=spec.nbytes + pages * PAGE > CLASSIC,
            photometric="minisblack",
            metadata=None,
            description=ome_xml(spec.shape, spec.dtype, spec.attributes),
            software="znnpy",
            resolution=(CENTIMETRE / x, CENTIMETRE / y),
            resolutionunit="CENTIMETER",
            returnoffset=True,
        )
        reserve(new, max(new.stat().st_size, place + spec.nbytes))
        return int(place)


def write_tiff(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(TiffOutput, destination, narrowed(array), attributes)
