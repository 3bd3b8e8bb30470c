"""OME metadata of a TIFF file, read and written: size and place of voxels, axes, neighbours and classes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.volume import Shape4, Triple64, nanometres

PIXEL_TYPES = {
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "f4": "float",
    "f8": "double",
}
"""OME's names of types, by NumPy's."""
CREATOR = "znnpy"
NOTED = ("directions", "first_class", "offsets")
"""Attributes that OME has no words for."""
_SCHEMA = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


def is_tiff(path: Path) -> bool:
    """Return whether a file begins as TIFF and BigTIFF files do."""
    with path.open("rb") as file:
        return file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def ome_xml(shape: Shape4, dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> str:
    """Return the metadata of an image (C, Z, Y, X) of a page for each slice, channel by channel."""
    resolution, offset = (attributes.get(key) for key in ("resolution", "offset"))
    sizes = "".join(f' Size{axis}="{n}"' for axis, n in zip("CZYX", shape, strict=True))
    physical = _each("PhysicalSize", resolution) if resolution else ""
    channels = "".join(
        f'<Channel ID="Channel:0:{number}" SamplesPerPixel="1"/>' for number in range(shape[0])
    )
    plane = f'<Plane TheZ="0" TheC="0" TheT="0"{_each("Position", offset)}/>' if offset else ""
    noted = "".join(
        f'<M K="{key}">{json.dumps(np.asarray(attributes[key]).tolist())}</M>'
        for key in NOTED
        if attributes.get(key) is not None
    )
    annotations = noted and (
        f'<StructuredAnnotations><MapAnnotation ID="Annotation:0" Namespace="{CREATOR}"><Value>{noted}</Value>'
        "</MapAnnotation></StructuredAnnotations>"
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{_SCHEMA}" Creator="{CREATOR}"><Image ID="Image:0">'
        f'<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="{PIXEL_TYPES[dtype.str[1:]]}"{sizes} SizeT="1"{physical}>'
        f'{channels}<TiffData IFD="0" PlaneCount="{shape[0] * shape[1]}"/>{plane}</Pixels></Image>{annotations}</OME>'
    )


def _each(name: str, lengths: Triple64) -> str:
    """Return an attribute of each axis, in nanometres."""
    return "".join(
        f' {name}{axis}="{float(length)!r}" {name}{axis}Unit="nm"'
        for axis, length in zip("ZYX", lengths, strict=True)
    )


def ome_size(text: str) -> Triple64 | None:
    """Return the voxel size z, y, x in nanometres; None where it is not said."""
    return _lengths(text, "PhysicalSize")


def ome_place(text: str) -> Triple64 | None:
    """Return the place z, y, x in nanometres of the first voxel; None but in files that this package has written.

    Where others have a position it is a stage's, which says nothing of labels and images that belong together.
    """
    return _lengths(text, "Position") if f'Creator="{CREATOR}"' in text else None


def ome_noted(text: str, key: str) -> Any:
    """Return what this package has noted in a file under one of NOTED, not checked; None where it has not."""
    found = re.search(rf'<M K="{key}">([-+0-9.eE,\[\] ]*)</M>', text)
    if found is None or f'Creator="{CREATOR}"' not in text:
        return None
    try:
        return json.loads(found[1])
    except (ValueError, RecursionError):
        return None


def _lengths(text: str, name: str) -> Triple64 | None:
    z, y, x = (_length(text, f"{name}{axis}") for axis in "ZYX")
    return (z, y, x) if z is not None and y is not None and x is not None else None


def _length(text: str, name: str) -> float | None:
    size = re.search(rf'{name}="([-+0-9.eE]+)"', text)
    unit = re.search(rf'{name}Unit="([^"]+)"', text)
    scale = nanometres(unit[1] if unit else "µm")
    return float(size[1]) * scale if size and scale else None
