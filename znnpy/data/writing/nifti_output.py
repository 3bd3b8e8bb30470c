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
from znnpy.data.flat.nifti import FIRST, MILLIMETRE, nibabel
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError

LONGEST = (1 << 15) - 1  # voxels along an axis of version 1; longer ones need version 2
LEVEL = 4  # of gzip: four times as fast as its usual 6, for files 6 % larger (labels of 2 MB)
SCANNER = 1  # NIfTI's code of coordinates that a scanner, or microscope, knows


class NiftiOutput(FlatOutput):
    """A new NIfTI image (x, y, z), or (x, y, z, c) of several channels.

    `resolution`, `offset` and `directions` become its affine, in millimetres.
    """

    def _allocated(self, new: Path) -> int:
        header = self._header_of()
        place = FIRST[int(header["sizeof_hdr"])]
        header["vox_offset"] = place
        # Four zeros say that nothing stands between header and voxels.
        return behind(new, header.binaryblock + bytes(4), self.spec.nbytes)

    def _header_of(self) -> Any:
        library, dtype = nibabel(), self.spec.dtype
        channels, *extent = self.spec.shape
        version = library.Nifti1Header if max(self.spec.shape) <= LONGEST else library.Nifti2Header
        header = version()
        try:
            header.set_data_dtype(dtype)
        except library.spatialimages.HeaderDataError as error:
            raise VolumeError(
                f"{self.path}: NIfTI has no {dtype}; float32, uint8 and other plain types are written"
            ) from error
        header.set_data_shape((*extent[::-1], *((channels,) if channels > 1 else ())))
        header.set_xyzt_units("mm")
        header.set_slope_inter(1, 0)
        affine = np.eye(4)
        steps, origin = matrix_of(self.spec.attributes)
        affine[:3, :3], affine[:3, 3] = steps / MILLIMETRE, origin / MILLIMETRE
        header.set_sform(affine, SCANNER)
        header.set_qform(affine, SCANNER, strip_shears=True)
        header["pixdim"][1:4] = np.linalg.norm(affine[:3, :3], axis=0)
        header["descrip"] = b"znnpy"
        return header

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
