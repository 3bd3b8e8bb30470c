"""Writes NIfTI images block by block; .nii.gz is compressed at the end, when all blocks are there."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.atomic_files import replacing
from znnpy.data.flat.geometry import matrix_of
from znnpy.data.flat.nifti import MILLIMETRE
from znnpy.data.flat.nifti_header import Header, new_header
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError

LEVEL = 4  # of gzip: four times as fast as its usual 6, for files 6 % larger (labels of 2 MB)


class NiftiOutput(FlatOutput):
    """A new NIfTI image (x, y, z), or (x, y, z, c) of several channels.

    `resolution`, `offset` and `directions` become its affine, in millimetres.
    """

    def _allocated(self, new: Path) -> int:
        # Four zeros say that nothing stands between header and voxels.
        return behind(new, self._header_of().tobytes() + bytes(4), self.spec.nbytes)

    def _header_of(self) -> Header:
        channels, *extent = self.spec.shape
        steps, origin = matrix_of(self.spec.attributes)
        affine = np.column_stack([steps, origin]) / MILLIMETRE
        shape = (*extent[::-1], *((channels,) if channels > 1 else ()))
        try:
            return new_header(shape, self.spec.dtype, affine)
        except KeyError:
            raise VolumeError(
                f"{self.path}: NIfTI has no {self.spec.dtype}; float32, uint8 and other plain types are written"
            ) from None

    def _replace(self) -> None:
        if not self.path.name.lower().endswith(".gz"):
            super()._replace()
            return
        # The plain file stays until the compressed one is whole: a process that is killed in between begins here.
        with (
            replacing(self.path) as new,
            self._partial.open("rb") as plain,
            new.open("wb") as file,
            # Without name and time: the same content, the same bytes.
            gzip.GzipFile("", "wb", LEVEL, file, 0) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1 << 20)
        self._partial.unlink()


def write_nifti(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(NiftiOutput, destination, narrowed(array), attributes)
