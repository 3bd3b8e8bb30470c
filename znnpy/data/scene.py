"""Scenes: images, labels and masks that show the same place, on one voxel grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from znnpy.data.volume import UNSET, Triple, Triple64, Volume
from znnpy.errors import VolumeError

SAME = 1e-5  # by which voxel sizes may differ, relatively: headers hold them as float32
TURNED = 1e-3  # by which parts of directions may differ
_NOWHERE: Triple64 = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scene:
    """Images by input node, labels and masks by output node, all of one place.

    Positions count in voxels of the first image. Other volumes may be smaller or larger if their
    `offset` attributes say where they lie (CREMI labels within a larger raw image). Raises
    VolumeError if volumes do not lie on one grid.
    """

    images: Mapping[str, Volume]
    labels: Mapping[str, Volume]
    masks: Mapping[str, Volume] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.images:
            raise VolumeError("a training volume needs an image")
        for volume in self.volumes():
            self.corner(volume)

    @property
    def reference(self) -> Volume:
        """The volume in whose voxels positions count."""
        return next(iter(self.images.values()))

    @property
    def resolution(self) -> Triple64:
        """The voxel size z, y, x in nanometres."""
        return self.reference.resolution

    def volumes(self) -> Iterator[Volume]:
        """Yield all volumes, images first; one that several nodes share comes once."""
        groups = (self.images, self.labels, self.masks)
        yield from {id(v): v for group in groups for v in group.values()}.values()

    def corner(self, volume: Volume) -> Triple:
        """Return the position of a volume's first voxel, in voxels of the first image."""
        first = self.reference
        _check_resolution(first, volume)
        _check_directions(first, volume)
        alike = volume.extent == first.extent and volume.offset in (first.offset, _NOWHERE)
        if not alike and not _says_where(first, volume):
            # (images, classes), as labels of lists of images are often stored elsewhere.
            listed = volume.extent[:2] == (1, first.extent[0])
            each = ". Labels of a list of images are 1 number for each image" if listed else ""
            raise VolumeError(
                f"{volume.name} has {volume.extent} voxels (z, y, x), {first.name} has "
                f"{first.extent}; they must be equal, or `offset` attributes must say where "
                f"they lie{each}"
            )
        return (0, 0, 0) if alike else _steps(first, volume)

    def verify(self) -> None:
        """Raise ChangedError unless all that was read is of the files that were opened."""
        for volume in self.volumes():
            volume.verify()

    def close(self) -> None:
        """Close all volumes."""
        for volume in self.volumes():
            volume.close()


def _check_resolution(first: Volume, volume: Volume) -> None:
    sizes = {first.resolution, volume.resolution} - {UNSET}
    if len(sizes) > 1 and not np.allclose(first.resolution, volume.resolution, rtol=SAME, atol=0):
        raise VolumeError(
            f"{volume.name} has voxels of {volume.resolution} nm (z, y, x), {first.name} of "
            f"{first.resolution} nm; they must be equal"
        )


def _check_directions(first: Volume, volume: Volume) -> None:
    if first.directions is None or volume.directions is None:
        return
    if not np.allclose(first.directions, volume.directions, atol=TURNED):
        raise VolumeError(
            f"{volume.name} has axes z, y, x in the directions {volume.directions} (right, front, up), {first.name} in "
            f"{first.directions}; they must be equal: resample one to the other"
        )


def _says_where(first: Volume, volume: Volume) -> bool:
    """Return whether it is known where a volume lies in the first: its file says so, or both begin at one place."""
    return volume.placed is not None or first.placed == volume.offset


def _steps(first: Volume, volume: Volume) -> Triple:
    pairs = zip(volume.offset, first.offset, first.resolution, strict=True)
    exact = [(a - b) / size for a, b, size in pairs]
    z, y, x = (round(e) for e in exact)
    if any(abs(e - n) > 0.01 for e, n in zip(exact, (z, y, x), strict=True)):
        raise VolumeError(
            f"{volume.name} lies {tuple(exact)} voxels (z, y, x) from {first.name}, by their "
            "offsets in nanometres; expected whole voxels"
        )
    return (z, y, x)
