"""Labels of whole images: one value for each slice, spread over all its voxels."""

from __future__ import annotations

import numpy as np

from znnpy.data.volume import Array, Triple, Volume
from znnpy.errors import VolumeError


class OneEach(Volume):
    """`values` (C, z, 1, 1), one for each slice, as a volume of slices as large as those of `images`."""

    def __init__(self, values: Volume, images: Volume) -> None:
        depth, height, width = images.extent
        if values.extent[0] != depth:
            raise VolumeError(
                f"{values.name} has {values.extent[0]} labels, one an image, but {images.name} has "
                f"{depth} images"
            )
        super().__init__(
            values.name,
            (values.channels, depth, height, width),
            values.dtype,
            images.resolution,
            images.placed,
        )
        self.values, self.directions = values, images.directions

    def _read(self, lower: Triple, upper: Triple) -> Array:
        values = self.values.read((lower[0], 0, 0), (upper[0], 1, 1), finite=False)
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        return np.broadcast_to(values, (self.channels, *sizes))

    def verify(self) -> None:
        """Raise ChangedError unless the file is the one that was opened, unchanged."""
        self.values.verify()

    def close(self) -> None:
        """Close the file."""
        self.values.close()


def spread(volume: Volume, images: Volume) -> Volume:
    """Return labels or masks of `images`, those with one value for each slice spread over all its voxels."""
    single = volume.extent[1:] == (1, 1) and images.extent[1:] != (1, 1)
    return OneEach(volume, images) if single and volume.offset == (0.0, 0.0, 0.0) else volume


def stored(volume: Volume) -> Volume:
    """Return the volume as it is in its file, each value once."""
    return volume.values if isinstance(volume, OneEach) else volume
