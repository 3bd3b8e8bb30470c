"""Writes MetaImage files (.mha) block by block, as ITK reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.flat.geometry import LPS, matrix_of
from znnpy.data.flat.metaimage import MILLIMETRE, TYPES
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, behind, narrowed, write_flat
from znnpy.errors import VolumeError

_NAMES = {kind: name for name, kind in reversed(TYPES.items())}


class MetaImageOutput(FlatOutput):
    """A new MetaImage of axes x, y, z, and channels as a fourth where there are several; in millimetres."""

    def _allocated(self, new: Path) -> int:
        return behind(new, self._header_of().encode(), self.spec.nbytes)

    def _header_of(self) -> str:
        channels, *extent = self.spec.shape
        kind = _NAMES.get(self.spec.dtype.str[1:])
        if kind is None:
            raise VolumeError(
                f"{self.path}: MetaImage has no {self.spec.dtype}; float32 is written"
            )
        axes = 4 if channels > 1 else 3
        steps, origin = matrix_of(self.spec.attributes)
        spacing = np.linalg.norm(steps, axis=0)
        turned, first, sizes = np.eye(axes), np.zeros(axes), np.ones(axes)
        turned[:3, :3] = (steps / spacing).T * LPS
        first[:3], sizes[:3] = origin * LPS / MILLIMETRE, spacing / MILLIMETRE
        shape = [*extent[::-1], *([channels] if channels > 1 else [])]
        lines = (
            "ObjectType = Image",
            f"NDims = {axes}",
            "BinaryData = True",
            "BinaryDataByteOrderMSB = False",
            "CompressedData = False",
            f"TransformMatrix = {_words(turned.reshape(-1))}",
            f"Offset = {_words(first)}",
            f"CenterOfRotation = {_words(np.zeros(axes))}",
            f"ElementSpacing = {_words(sizes)}",
            f"DimSize = {' '.join(map(str, shape))}",
            f"ElementType = {kind}",
            "ElementDataFile = LOCAL",
        )
        return "\n".join(lines) + "\n"


def _words(values: Any) -> str:
    return " ".join(repr(float(v)) for v in values)


def write_metaimage(
    destination: Destination, array: Array, attributes: Mapping[str, Any] | None = None
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X), labels in the smallest type that holds them, atomically."""
    write_flat(MetaImageOutput, destination, narrowed(array), attributes)
