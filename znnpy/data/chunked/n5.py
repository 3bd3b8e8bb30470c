"""A volume in an N5 folder, read by region: blocks that are raw or compressed by gzip, bzip2, xz, zstd or blosc."""

from __future__ import annotations

import lzma
import struct
import warnings
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.chunk_folder import ChunkFolder
from znnpy.data.chunked.volume import ChunkedVolume, voxel_sizes, whole_numbers
from znnpy.data.class_labels import first_class_of
from znnpy.data.decoded_size import inflated, refuse_larger
from znnpy.data.safety_limits import SEARCHED, Trust
from znnpy.data.volume import Array, Shape4, Triple64, directions_of, nanometres, neighbours_of
from znnpy.dataset_path import joined
from znnpy.errors import VolumeError

MARK = "attributes.json"
TYPES = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
CODECS = ("raw", "gzip", "bzip2", "xz", "zstd", "blosc")
AXES = "czyx"
_STREAMS = {"gzip": "gzip", "zlib": "zlib", "bzip2": "bz2"}


def is_n5(path: Path) -> bool:
    """Return whether a folder is N5 by its name, or holds the attributes of an array or of a container."""
    return path.suffix.lower() == ".n5" or has_attributes(path)


def has_attributes(path: Path) -> bool:
    """Return whether a folder holds the attributes of an array or of a container."""
    return (path / MARK).is_file()


class N5Volume(ChunkedVolume):
    """An array whose axes are x, y, z, and channels last, as N5 counts them; or as its `axes` say.

    Voxel size: `pixelResolution` with its unit, or that of a `transform`, or `resolution` with `units` and `axes`;
    alone it may be x, y, z or z, y, x, and is not taken. The place is that of a `transform`.
    """

    def __init__(self, path: Path, dataset: str | None, usual: Sequence[str], trust: Trust) -> None:
        folder = ChunkFolder(path, "N5", (MARK,), trust.external)
        self._at = _picked(folder, dataset, usual)
        name = joined(path, self._at)
        found = _attributes(folder, self._at)
        dimensions = whole_numbers(found.get("dimensions"), name, "dimensions")
        count = len(dimensions)
        if count not in (3, 4):
            plane = ": write a plane with dimensions [x, y, 1]" if count == 2 else ""
            raise VolumeError(
                f"{name} has {count} axes, dimensions {dimensions}; expected 3 (x, y, z) or 4 (x, y, z, channels)"
                f"{plane}"
            )
        blocks = whole_numbers(found.get("blockSize"), name, "blockSize", count)
        self._kind = _codec(found, name)
        kind = found.get("dataType")
        if kind not in TYPES:
            raise VolumeError(
                f"{name} holds {str(kind)[:40]}; N5 arrays of {', '.join(TYPES)} are read"
            )
        axes = _axes(found, name, count)
        # Of each of our axes its place among N5's.
        self._places = [axes.index(axis) if axis in axes else None for axis in AXES]
        super().__init__(
            folder,
            name,
            self._ours(dimensions),
            self._ours(blocks),
            np.dtype(kind),
            _resolution(found, name, axes),
            _place(found),
        )
        self.neighbours = neighbours_of(found.get("offsets"), self.channels)
        self.first_class = first_class_of(found.get("first_class"))
        self.directions = directions_of(found.get("directions"))
        self.unnamed = count == 4 and "axes" not in found
        self._bounded(self._at, trust)
        folder.see_chunks(self._at, count - 1)

    def _ours(self, numbers: Sequence[int]) -> Shape4:
        c, z, y, x = (1 if place is None else numbers[place] for place in self._places)
        return (c, z, y, x)

    def _theirs(self, numbers: Sequence[int]) -> list[int]:
        pairs = zip(self._places, numbers, strict=True)
        return [n for _, n in sorted((place, n) for place, n in pairs if place is not None)]

    def _key(self, index: Shape4) -> str:
        return "/".join([*([self._at] if self._at else []), *map(str, self._theirs(index))])

    def _decoded(self, data: bytes, shape: Shape4) -> Array:
        mode, count = struct.unpack_from(">HH", data)
        sizes = (
            struct.unpack_from(f">{count}I", data, 4) if count == len(self._theirs(shape)) else ()
        )
        if (
            mode not in (0, 1)
            or not sizes
            or any(n > most for n, most in zip(sizes, self._theirs(self._grid), strict=True))
        ):
            raise VolumeError(f"its header says mode {mode}, sizes {list(sizes)}")
        # Mode 1 says the number of values, which mode 0 has by the sizes.
        place = 4 + 4 * count + (4 if mode == 1 else 0)
        stored = self.dtype.newbyteorder(">")
        plain = _unpacked(self._kind, data[place:], prod(sizes) * stored.itemsize)
        values = np.frombuffer(plain, stored, prod(sizes)).reshape(sizes[::-1])
        # The last axis of the array is N5's first.
        last = len(sizes) - 1
        kept = [last - place for place in self._places if place is not None]
        turned = values.transpose(kept)
        return turned if turned.ndim == 4 else turned[None]

    def verify(self) -> None:
        """Raise ChangedError unless the attributes are those that were opened; blocks are checked as they are read."""
        self._folder.verify([f"{self._at}/{MARK}" if self._at else MARK])


def _unpacked(kind: str, data: bytes, size: int) -> bytes:
    if kind in _STREAMS:
        return inflated(_STREAMS[kind], data, size)
    if kind == "xz":
        return lzma.LZMADecompressor(memlimit=max(1 << 27, 2 * size)).decompress(data, size)
    if kind in ("zstd", "blosc"):
        refuse_larger(kind, data, size)
        from numcodecs import Blosc, Zstd  # a tenth of a second

        return bytes((Blosc() if kind == "blosc" else Zstd()).decode(data))
    return data


def _codec(found: dict[str, Any], name: str) -> str:
    given = found.get("compression", found.get("compressionType"))
    kind = given.get("type") if isinstance(given, dict) else given
    if kind not in CODECS:
        raise VolumeError(
            f"{name} is compressed by {str(kind)[:40]}; N5 arrays with {', '.join(CODECS)} are read"
        )
    zlib = isinstance(given, dict) and given.get("useZlib") is True
    return "zlib" if kind == "gzip" and zlib else str(kind)


def _axes(found: dict[str, Any], name: str, count: int) -> list[str]:
    """Return the names of N5's axes, its first one first."""
    given = found.get("axes")
    if given is None:
        return list(AXES[::-1][:count])
    axes = [str(axis).lower() for axis in given] if isinstance(given, list) else []
    if sorted(axes) != sorted(AXES[-count:]):
        raise VolumeError(
            f"{name}: axes must be x, y, z, and c with four dimensions, in any order; found {str(given)[:60]}"
        )
    return axes


def _resolution(found: dict[str, Any], name: str, axes: list[str]) -> Triple64:
    """Return the voxel size z, y, x in nanometres; (1, 1, 1) where it is not said for certain."""
    pixel = found.get("pixelResolution")
    if isinstance(pixel, dict) and (unit := nanometres(str(pixel.get("unit")))):
        x, y, z = voxel_sizes(pixel.get("dimensions"), name, "pixelResolution.dimensions")
        factors = voxel_sizes(
            found.get("downsamplingFactors", (1, 1, 1)), name, "downsamplingFactors"
        )
        return (z * factors[2] * unit, y * factors[1] * unit, x * factors[0] * unit)
    if (sizes := _transformed(found, "scale")) and min(sizes) > 0:
        return sizes
    sizes, units = found.get("resolution"), found.get("units")
    if (
        isinstance(sizes, list)
        and isinstance(units, list)
        and len(sizes) == len(units) == len(axes)
    ):
        by_axis = {}
        for axis, size, unit_name in zip(axes, sizes, units, strict=True):
            unit = nanometres(str(unit_name))
            if unit and type(size) in (int, float):
                by_axis[axis] = size * unit
        if all(axis in by_axis for axis in "zyx"):
            return voxel_sizes([by_axis[axis] for axis in "zyx"], name, "resolution")
    if sizes is not None:
        warnings.warn(
            f"{name}: its resolution {str(sizes)[:60]} has no axes and units, so it may be x, y, z or z, y, x, and is "
            "not taken; data.resolution says it",
            stacklevel=4,
        )
    return (1.0, 1.0, 1.0)


def _place(found: dict[str, Any]) -> Triple64 | None:
    """Return where the first voxel of the image lies, z, y, x in nanometres, the coarser levels' a little behind it."""
    return _transformed(found, "translate")


def _transformed(found: dict[str, Any], key: str) -> Triple64 | None:
    """Return numbers z, y, x in nanometres of a `transform` with axes and units; None where it is none of space."""
    given = found.get("transform")
    if not isinstance(given, dict):
        return None
    axes, units, numbers = (given.get(name) for name in ("axes", "units", key))
    if not all(isinstance(part, list) and len(part) == 3 for part in (axes, units, numbers)):
        return None
    if not all(type(n) in (int, float) and abs(n) < 1e300 for n in numbers or ()):
        return None
    told = zip(axes or (), units or (), numbers or (), strict=True)
    by_axis = {str(axis): n * (nanometres(str(unit)) or 0.0) for axis, unit, n in told}
    units_known = all(nanometres(str(unit)) for unit in units or ())
    if set(by_axis) != set("zyx") or not units_known:
        return None
    return (by_axis["z"], by_axis["y"], by_axis["x"])


def _attributes(folder: ChunkFolder, path: str) -> dict[str, Any]:
    return folder.json(f"{path}/{MARK}" if path else MARK) or {}


def _picked(folder: ChunkFolder, dataset: str | None, usual: Sequence[str]) -> str:
    """Return the path of the array that is meant: what is named, a usual name, or the only one."""
    wanted = [(dataset or "").strip("/")] if dataset else ["", *usual]
    for path in wanted:
        for here in (path, f"{path}/s0" if path else "s0"):
            if "dimensions" in _attributes(folder, here):
                return here
    every = list(_arrays(folder))
    if dataset is None and len(every) == 1:
        return every[0]
    listed = ", ".join(every[:20]) or "none"
    if dataset is not None:
        raise VolumeError(f"{folder.name} has no array {dataset}; it holds: {listed}")
    what = "several arrays could be meant" if every else "the N5 folder holds no array"
    raise VolumeError(f"{folder.name}: {what}: {listed}. Name one as FOLDER:ARRAY")


def _arrays(folder: ChunkFolder) -> Iterator[str]:
    """Yield the paths of arrays, in order; of those of a pyramid the first, whose voxels are smallest."""
    waiting, looked = [""], 0
    while waiting and looked < SEARCHED:
        here, looked = waiting.pop(), looked + 1
        if "dimensions" in _attributes(folder, here):
            yield here
            continue
        names = folder.folders(here)
        names = ["s0"] if "s0" in names else names
        waiting += [f"{here}/{name}" if here else name for name in reversed(names)]
