"""Volumes: arrays (C, Z, Y, X) in a file or in memory, read by region, mirrored at borders; units of length."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.closing import Closing
from znnpy.errors import VolumeError

Triple = tuple[int, int, int]
Triple64 = tuple[float, float, float]
Shape4 = tuple[int, int, int, int]
Directions = tuple[Triple64, Triple64, Triple64]
Array = NDArray[Any]
Slices = tuple[slice, ...]
UNSET: Triple64 = (1.0, 1.0, 1.0)
"""The voxel size of volumes whose files say none."""


class Volume(Closing, ABC):
    """A volume that always shows four axes, (C, Z, Y, X), whatever the file holds.

    `name` is "path:dataset" for messages; `dtype` the stored one in native byte order; `resolution`
    and `offset` are z, y, x in nanometres ((1, 1, 1) and (0, 0, 0) where the file says nothing); `placed` is
    the offset, or None where the file says nothing;
    `neighbours` are the offsets (z, y, x) of affinities, one a channel, None where there are none; `directions`
    those of the axes z, y, x of a scan in the room, see `flat.geometry`, None where the file says nothing;
    `first_class` the number of the class that channel 0 shows, None where channels are not known to show classes.
    `unnamed`: the file has four axes and does not say which they are; they were taken for c, z, y, x.
    `read` may be called from several threads at once. Use as a context manager, or call `close`.
    """

    unnamed = False

    def __init__(
        self,
        name: str,
        shape: Shape4,
        dtype: np.dtype[Any],
        resolution: Triple64 = UNSET,
        offset: Triple64 | None = None,
    ) -> None:
        if min(shape) < 1:
            raise VolumeError(f"{name}: the volume is empty, its shape (c, z, y, x) is {shape}")
        self.name = name
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        self.resolution = resolution
        self.placed = offset
        self.offset = offset or (0.0, 0.0, 0.0)
        self.neighbours: tuple[Triple, ...] | None = None
        self.first_class: int | None = None
        self.directions: Directions | None = None

    @property
    def channels(self) -> int:
        """The length of the first axis."""
        return self.shape[0]

    @property
    def extent(self) -> Triple:
        """The shape z, y, x in voxels."""
        return self.shape[1:]

    @property
    def nbytes(self) -> int:
        """The bytes that the whole volume takes in memory, in its own dtype."""
        return int(np.prod([float(n) for n in self.shape])) * self.dtype.itemsize

    def read(self, lower: Triple, upper: Triple, *, finite: bool = True) -> Array:
        """Return the region lower <= (z, y, x) < upper of all channels.

        The array is (C, z, y, x) in the volume's dtype, native byte order; the caller must not write
        into it (it may be a view). Raises VolumeError if the region leaves the volume, if the file
        cannot be read there, or, with `finite`, if it holds NaN or infinity.
        """
        self._check_region(lower, upper)
        try:
            array = self._read(lower, upper)
        except VolumeError:
            self.verify()
            raise
        if array.dtype != self.dtype:
            array = array.astype(self.dtype)
        if finite and self.dtype.kind == "f":
            self._check_finite(array, lower)
        return array

    def read_all(self) -> Array:
        """Return the whole volume, (C, Z, Y, X)."""
        return self.read((0, 0, 0), self.extent)

    @abstractmethod
    def _read(self, lower: Triple, upper: Triple) -> Array:
        """Return a region that is known to lie inside, (C, z, y, x); any byte order."""

    def verify(self) -> None:
        """Raise ChangedError unless all that was read so far is of the files that were opened.

        To be called after reading, before what was read is relied on.
        """
        return

    @property
    def chunk(self) -> Triple:
        """The storage unit z, y, x: reading along it is fastest."""
        return (1, *self.extent[1:])

    def close(self) -> None:
        """Close the file; reading afterwards is an error. Closing twice is fine."""
        return

    def _check_region(self, lower: Triple, upper: Triple) -> None:
        fits = all(0 <= a < b <= n for a, b, n in zip(lower, upper, self.extent, strict=True))
        if not fits:
            raise VolumeError(
                f"{self.name}: the region {lower} to {upper} (z, y, x) is empty or not inside the "
                f"volume of {self.extent} voxels"
            )

    def _check_finite(self, array: Array, lower: Triple) -> None:
        bad = ~np.isfinite(array)
        if not bad.any():
            return
        first = np.argwhere(bad)[0]
        value = array[tuple(first)]
        channel, position = (
            int(first[0]),
            tuple(int(p) + q for p, q in zip(first[1:], lower, strict=True)),
        )
        raise VolumeError(
            f"{self.name}: {value} at (z, y, x) = {position}, channel {channel}; all values must "
            "be finite numbers"
        )


class ArrayVolume(Volume):
    """A volume in memory; shares `array`, (C, Z, Y, X) or (Z, Y, X), and reads views of it."""

    def __init__(
        self,
        array: Array,
        name: str = "array",
        resolution: Triple64 = UNSET,
        offset: Triple64 | None = None,
    ) -> None:
        if array.ndim not in (3, 4):
            raise VolumeError(
                f"{name}: expected 3 axes (z, y, x) or 4 (c, z, y, x), got {array.ndim}"
            )
        full = array if array.ndim == 4 else array[None]
        c, z, y, x = full.shape
        super().__init__(name, (c, z, y, x), full.dtype, resolution, offset)
        self.array = full.astype(self.dtype, copy=False).view()
        self._finite = self.dtype.kind != "f" or bool(np.isfinite(self.array).all())
        self.array.setflags(write=False)

    def read(self, lower: Triple, upper: Triple, *, finite: bool = True) -> Array:
        """Return a read-only view of the region, (C, z, y, x); checked only if the array holds non-finite values."""
        return super().read(lower, upper, finite=finite and not self._finite)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        z, y, x = (slice(a, b) for a, b in zip(lower, upper, strict=True))
        return self.array[:, z, y, x]


def neighbours_of(found: Any, channels: int) -> tuple[Triple, ...] | None:
    """Return the attribute `offsets` of affinities, as JSON or HDF5 hold it.

    None unless it holds three whole numbers z, y, x for each channel: other programs may mean another
    thing by that name, which is no reason not to read their images.
    """
    try:
        values = np.asarray([] if found is None else found)
    except (ValueError, OverflowError):
        return None
    if values.shape != (channels, 3) or values.dtype.kind not in "ui":
        return None
    return tuple((int(z), int(y), int(x)) for z, y, x in values)


def directions_of(found: Any) -> Directions | None:
    """Return the attribute `directions`: unit vectors of the axes z, y, x; None unless they span space."""
    try:
        values = np.asarray([] if found is None else found, np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    if values.shape != (3, 3) or not np.isfinite(values).all():
        return None
    lengths = np.linalg.norm(values, axis=1)
    if np.abs(lengths - 1).max() > UNIT or abs(np.linalg.det(values)) < FLAT:
        return None
    z, y, x = ((float(a), float(b), float(c)) for a, b, c in values)
    return (z, y, x)


def directions_attribute(volume: Volume) -> dict[str, list[list[float]]]:
    """Return the attribute `directions` of what lies as a volume does; nothing where it has none."""
    return {"directions": [list(axis) for axis in volume.directions]} if volume.directions else {}


def place_attributes(volume: Volume) -> dict[str, Any]:
    """Return `resolution` and `offset` (z, y, x, nanometres), and `directions`, of what lies as a volume does."""
    return {
        "resolution": list(volume.resolution),
        "offset": list(volume.offset),
        **directions_attribute(volume),
    }


UNIT = 1e-3  # by which the length of a direction may differ from 1
FLAT = 1e-3  # the volume that directions span at least: below it they lie in one plane
SLAB = 1 << 26  # bytes: 64 MiB, large enough to read fast and small beside a machine's memory


def slabs(volume: Volume, size: int = SLAB) -> Iterator[tuple[int, int]]:
    """Yield ranges of z that cut a volume into pieces of about `size` bytes, in whole chunks."""
    return slabs_of(volume, 0, volume.extent[0], size)


def slabs_of(volume: Volume, start: int, stop: int, size: int = SLAB) -> Iterator[tuple[int, int]]:
    """Yield ranges that cut a range of z, as `slabs`; all but the first begin with a chunk."""
    depth, step = volume.extent[0], volume.chunk[0]
    plane = max(1, volume.nbytes // depth)
    step *= max(1, size // (plane * step))
    while start < stop:
        end = min(stop, start - start % step + step)
        yield start, end
        start = end


def mirror_read(volume: Volume, lower: Triple, upper: Triple, *, finite: bool = True) -> Array:
    """Read a region that may leave the volume, as `Volume.read`: what lies outside is mirrored.

    The border voxel is not repeated (index -1 reads 1), and regions of any size work, as in NumPy's
    pad mode "reflect". Returns (C, z, y, x), a copy where mirrored. Errors as in `Volume.read`.
    """
    if all(0 <= a < b <= n for a, b, n in zip(lower, upper, volume.extent, strict=True)):
        return volume.read(lower, upper, finite=finite)
    read, parts = mirrored_parts(volume, lower, upper, finite=finite)
    shape = tuple(b - a for a, b in zip(lower, upper, strict=True))
    found = np.empty((len(read), *shape), read.dtype)
    for here, there in parts:
        found[:, *here] = read[:, *there]
    return found


def mirrored_parts(
    volume: Volume, lower: Triple, upper: Triple, *, finite: bool = True
) -> tuple[Array, Iterator[tuple[Slices, Slices]]]:
    """Return what `mirror_read` reads of a volume, and where its parts lie in the region, and in what was read.

    Parts are few, and voxels one by one would take four times as long.
    """
    if any(a >= b for a, b in zip(lower, upper, strict=True)):
        raise VolumeError(f"{volume.name}: the region {lower} to {upper} (z, y, x) is empty")
    start, stop = mirrored(lower, upper, volume.extent)
    read = volume.read(start, stop, finite=finite)
    runs = [list(_runs(*ends)) for ends in zip(lower, upper, volume.extent, start, strict=True)]
    parts = ((tuple(a for a, _ in it), tuple(b for _, b in it)) for it in itertools.product(*runs))
    return read, parts


def _runs(lower: int, upper: int, size: int, first: int) -> Iterator[tuple[slice, slice]]:
    """Yield the parts of an axis that rise or fall, and where they are read, told from the voxel `first`."""
    period, begin = max(1, size - 1), lower
    while begin < upper:
        turns, into = divmod(begin, period)
        end = min(upper, begin - into + period)
        here, count = slice(begin - lower, end - lower), end - begin
        if size == 1:
            yield here, slice(0, 1)
        elif turns % 2 == 0:
            yield here, slice(into - first, into - first + count)
        else:
            last = size - 1 - into - first
            yield here, slice(last, last - count if last >= count else None, -1)
        begin = end


def mirrored(lower: Triple, upper: Triple, extent: Triple) -> tuple[Triple, Triple]:
    """Return the region of a volume of some extent that `mirror_read` reads for a region, which is not empty."""
    ends = [_mirrored(a, b, n) for a, b, n in zip(lower, upper, extent, strict=True)]
    (z, bottom), (y, height), (x, width) = ends
    return (z, y, x), (bottom, height, width)


def _mirrored(lower: int, upper: int, size: int) -> tuple[int, int]:
    """Return the least voxel of an axis that is read, and the one behind the largest."""
    if lower >= 0 and upper <= size:
        return lower, upper
    index = mirrored_indices(lower, min(upper, lower + 2 * size), size)
    return int(index.min()), int(index.max()) + 1


def clipped(corner: Triple, extent: Triple) -> Triple:
    """Return the nearest corner of a voxel within a volume of some extent."""
    z, y, x = (min(max(0, c), n) for c, n in zip(corner, extent, strict=True))
    return (z, y, x)


def mirrored_indices(lower: int, upper: int, size: int) -> NDArray[np.int64]:
    """Return the voxels of an axis of some size that `mirror_read` takes for lower <= index < upper."""
    period = max(1, 2 * (size - 1))
    index = np.arange(lower, upper, dtype=np.int64) % period
    return np.minimum(index, period - index) if size > 1 else index


_NANOMETRES = {
    ("angstrom", "å", "ångström"): 0.1,
    ("picometer", "picometre", "pm"): 1e-3,
    ("nanometer", "nanometre", "nm"): 1.0,
    ("micrometer", "micrometre", "micron", "microns", "um", "µm", "μm"): 1e3,
    ("millimeter", "millimetre", "mm"): 1e6,
    ("centimeter", "centimetre", "cm"): 1e7,
    ("meter", "metre", "m"): 1e9,
    ("inch", "in"): 2.54e7,
}
NANOMETRES = {name: size for names, size in _NANOMETRES.items() for name in names}


def nanometres(unit: str) -> float | None:
    """Return the nanometres of one unit, None if it is unknown; knows ImageJ's escape of the letter mu."""
    return NANOMETRES.get(unit.strip().replace("\\u00B5", "µ").lower())
