"""Writes MRC images block by block: one channel of a type that MRC has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.flat.mrc import ANGSTROM, HEADER, mrcfile
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError

MODES = {"i1": 0, "i2": 1, "f4": 2, "u2": 6}
VOLUME = 1  # space group of a volume; 0 would be a stack of images
VERSION = 20141  # of the format's description


class MrcOutput(FlatOutput):
    """A new MRC image; `resolution` and `offset` become its cell and origin, in angstroms."""

    def _allocated(self, new: Path) -> int:
        return behind(new, self._header_of(), self.spec.nbytes)

    def _header_of(self) -> bytes:
        channels, *extent = self.spec.shape
        mode = MODES.get(self.spec.dtype.str[1:])
        if channels > 1:
            raise VolumeError(
                f"{self.path}: an MRC file holds one channel, not {channels}; name a file .h5, .nrrd or .mha"
            )
        if mode is None:
            raise VolumeError(
                f"{self.path}: MRC has no {self.spec.dtype}, but int8, int16, uint16 and float32; name a file .h5, "
                ".nrrd or .mha"
            )
        header = np.zeros((), mrcfile().dtypes.HEADER_DTYPE.newbyteorder("<"))
        size = self.spec.attributes.get("resolution", (1.0, 1.0, 1.0))
        offset = self.spec.attributes.get("offset", (0.0, 0.0, 0.0))
        for axis, voxels, step, first in zip("zyx", extent, size, offset, strict=True):
            header[f"n{axis}"] = header[f"m{axis}"] = voxels
            header["cella"][axis] = voxels * step / ANGSTROM
            header["origin"][axis] = first / ANGSTROM
        for number, name in enumerate(("mapc", "mapr", "maps"), start=1):
            header[name] = number
        for name in ("alpha", "beta", "gamma"):
            header["cellb"][name] = 90
        header["mode"], header["ispg"], header["nversion"] = mode, VOLUME, VERSION
        # A largest value below the smallest, a mean below both, no deviation: they are not known.
        header["dmin"], header["dmax"], header["dmean"], header["rms"] = 0, -1, -2, -1
        header["map"], header["machst"] = b"MAP ", (0x44, 0x44, 0, 0)
        block = header.tobytes()
        assert len(block) == HEADER
        return block


def write_mrc(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X), labels as uint16, atomically."""
    narrow = narrowed(array)
    if narrow.dtype == np.uint8:
        narrow = narrow.astype(np.uint16)
    write_flat(MrcOutput, destination, narrow, attributes)
