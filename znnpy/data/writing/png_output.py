"""Writes a picture: one slice of bytes or of numbers of 16 bits as PNG, compressed when all blocks are there."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.atomic_files import replacing
from znnpy.data.pictures.decoding import PNG
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError


def is_png(path: Path) -> bool:
    """Return whether a file begins as PNG files do."""
    with path.open("rb") as file:
        return file.read(len(PNG)) == PNG


class PngOutput(FlatOutput):
    """A new PNG file, grey. It cannot say where it lies, nor how large a voxel is."""

    def _allocated(self, new: Path) -> int:
        channels, depth, *_ = self.spec.shape
        if channels > 1 or depth > 1 or self.spec.dtype not in (np.uint8, np.uint16):
            raise VolumeError(
                f"{self.path}: a PNG file holds one channel of one slice, of uint8 or uint16, not {channels} of "
                f"{depth} of {self.spec.dtype}; write --labels or --dtype uint8, or name a file .h5 or .tif"
            )
        if any(place := self.spec.attributes.get("offset", ())):
            warnings.warn(
                f"{self.path}: a PNG file cannot say where it lies, which is {tuple(place)} (z, y, x) in its image's "
                "units; name a file .h5 or .tif to keep that",
                stacklevel=2,
            )
        return behind(new, PNG, self.spec.nbytes)

    def _replace(self) -> None:
        from PIL import Image  # a tenth of a second

        # The plain values stay until the picture is whole: a process that is killed in between begins here. Who goes on
        # may want another picture, which is refused once this one is whole.
        head = self._journal.head
        assert head is not None
        *_, height, width = head["shape"]
        values = np.fromfile(self._partial, head["dtype"], offset=len(PNG))
        with replacing(self.path) as new:
            Image.fromarray(values.reshape(height, width)).save(new, "PNG")
        self._partial.unlink()


def write_png(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write one slice (1, Y, X) or (1, 1, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(PngOutput, destination, narrowed(array), attributes)
