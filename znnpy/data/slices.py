"""A range of slices of a volume along z, as a volume of its own: one part to train on, the next to validate on."""

from __future__ import annotations

from znnpy.data.volume import Array, Triple, Triple64, Volume
from znnpy.errors import VolumeError


class Slices(Volume):
    """Slices `start` to `stop` (after the last) along z of a volume, which it closes.

    It keeps the offset of the whole volume, so that volumes cut alike lie to each other as the whole ones do, or has
    the one that is `placed`. Raises VolumeError for a range that leaves the volume.
    """

    def __init__(
        self, volume: Volume, start: int, stop: int, placed: Triple64 | None = None
    ) -> None:
        channels, depth, height, width = volume.shape
        if stop > depth:
            volume.close()
            raise VolumeError(
                f"{volume.name} has {depth} slices along z, from 0 on; slices [{start}, {stop}] go beyond"
            )
        shape = (channels, stop - start, height, width)
        super().__init__(
            volume.name, shape, volume.dtype, volume.resolution, placed or volume.placed
        )
        self.neighbours, self.directions = volume.neighbours, volume.directions
        self.unnamed = volume.unnamed
        self._volume, self._start = volume, start

    @property
    def chunk(self) -> Triple:
        """The storage unit of the whole volume."""
        return self._volume.chunk

    def _read(self, lower: Triple, upper: Triple) -> Array:
        below, above = ((z + self._start, y, x) for z, y, x in (lower, upper))
        return self._volume.read(below, above, finite=False)

    def verify(self) -> None:
        """Raise ChangedError unless the file is the one that was opened, unchanged."""
        self._volume.verify()

    def close(self) -> None:
        """Close the whole volume."""
        self._volume.close()
