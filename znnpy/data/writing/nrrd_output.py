"""Writes NRRD images block by block, raw behind their header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from znnpy.data.flat.geometry import matrix_of
from znnpy.data.flat.nifti import MILLIMETRE
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError

_TYPES = {
    "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f4": "float", "f8": "double",
}  # fmt: skip


class NrrdOutput(FlatOutput):
    """A new NRRD image of axes x, y, z, and channels where there are several; in millimetres, right, front, up."""

    def _allocated(self, new: Path) -> int:
        return behind(new, self._header_of().encode(), self.spec.nbytes)

    def _header_of(self) -> str:
        channels, depth, height, width = self.spec.shape
        kind = _TYPES.get(self.spec.dtype.str[1:])
        if kind is None:
            raise VolumeError(f"{self.path}: NRRD has no {self.spec.dtype}; float32 is written")
        steps, origin = matrix_of(self.spec.attributes)
        vectors = [_vector(axis / MILLIMETRE) for axis in steps.T]
        more = channels > 1
        sizes = [width, height, depth, *([channels] if more else [])]
        lines = (
            "NRRD0005",
            f"type: {kind}",
            f"dimension: {len(sizes)}",
            "space: right-anterior-superior",
            f"sizes: {' '.join(map(str, sizes))}",
            f"space directions: {' '.join([*vectors, *(['none'] if more else [])])}",
            f"kinds: domain domain domain{' list' if more else ''}",
            "endian: little",
            "encoding: raw",
            'space units: "mm" "mm" "mm"',
            f"space origin: {_vector(origin / MILLIMETRE)}",
        )
        return "\n".join(lines) + "\n\n"


def _vector(values: Any) -> str:
    return f"({','.join(repr(float(v)) for v in values)})"


def write_nrrd(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(NrrdOutput, destination, narrowed(array), attributes)
