"""A scan prepared for its network, and what is needed to put the network's output back into the scan's voxels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from znnpy.config.prepare_section import DeviationScheme, PlainScheme, PrepareSection
from znnpy.data.preparing.resampling import (
    Float32,
    Resampling,
    labels_resampled,
    new_shape,
    spacing_of,
)
from znnpy.data.preparing.schemes import Mask, normalise
from znnpy.data.preparing.turning import Turn, turn_of
from znnpy.data.volume import Array, ArrayVolume, Triple, Triple64, Volume
from znnpy.errors import VolumeError

Box = tuple[slice, slice, slice]


@dataclass(frozen=True)
class Prepared:
    """A scan as its network sees it: `array` float32 (c, z, y, x), axes turned, cropped, normalised, resampled.

    `whole`: voxels of the turned scan, of which `box` was kept. `before`, `after`: voxel sizes, in the scan and in
    the array, axes turned. `turn`: how they were.
    """

    array: Float32
    whole: Triple
    box: Box
    before: Triple64
    after: Triple64
    turn: Turn

    @property
    def cropped(self) -> Triple:
        """The voxels that were kept of the scan."""
        z, y, x = (side.stop - side.start for side in self.box)
        return (z, y, x)

    def restoring(self, section: PrepareSection) -> Resampling:
        """Return the resampling of the network's output to the voxels that were kept."""
        shape: Triple = self.array.shape[1:]
        aslant = self.turn.oblique
        return Resampling.of(
            shape, self.cropped, self.after, self.before, section.restore, oblique=aslant
        )


def prepare(volume: Volume, section: PrepareSection) -> Prepared:
    """Return a scan prepared; reads all of it. Raises VolumeError where it has other channels than the section."""
    schemes = section.normalize or (PlainScheme(kind="none"),) * volume.channels
    if volume.channels != len(schemes):
        raise VolumeError(
            f"{volume.name} has {volume.channels} channel(s), but data.prepare.normalize names {len(schemes)}"
        )
    turn = turn_of(volume, section)
    raw = turn.applied(volume.read_all())
    before = turn.size(volume.resolution)
    box = _box(raw) if section.crop else _all(raw)
    kept = raw[(slice(None), *box)]
    after = spacing_of(before, section.spacing)
    shape: Triple = kept.shape[1:]
    wanted = new_shape(shape, before, after, section.resample.grid)
    how = Resampling.of(shape, wanted, before, after, section.resample, oblique=turn.oblique)
    if min(how.wanted) < 1:
        raise VolumeError(
            f"{volume.name} would have no voxel left: it has voxels of {before} nm, its network's are of {after} nm "
            "(data.resolution says the size where the file does not)"
        )
    found = np.empty((len(kept), *how.wanted), np.float32)
    inside = _inside(kept, section)
    for channel, made, scheme in zip(kept, found, schemes, strict=True):
        values = np.array(channel, np.float32, order="C")
        normalise(values, scheme, inside, volume.name)
        made[...] = how.applied(values)
    return Prepared(found, raw.shape[1:], box, before, after, turn)


def prepared_volume(prepared: Prepared, name: str) -> ArrayVolume:
    """Return a prepared scan as a volume."""
    return ArrayVolume(prepared.array, name, prepared.after)


def prepared_labels(labels: Volume, prepared: Prepared, section: PrepareSection) -> ArrayVolume:
    """Return labels of a scan in the voxels of its prepared form; VolumeError where they have other voxels."""
    array = prepared.turn.applied(labels.read_all())
    if array.shape[1:] != prepared.whole:
        raise VolumeError(
            f"{labels.name} has {labels.extent} voxels (z, y, x), and its scan others: labels of scans that are "
            "prepared (data.prepare) cover them"
        )
    kept = array[(slice(None), *prepared.box)]
    wanted: Triple = prepared.array.shape[1:]
    how = Resampling.of(
        prepared.cropped, wanted, prepared.before, prepared.after, section.restore, oblique=prepared.turn.oblique
    )  # fmt: skip
    found = np.stack([labels_resampled(one, how) for one in kept])
    return ArrayVolume(found, labels.name, prepared.after)


def _all(raw: Array) -> Box:
    z, y, x = (slice(0, n) for n in raw.shape[1:])
    return z, y, x


def _box(raw: Array) -> Box:
    """Return the least box outside of which all channels are 0; all where they are 0 everywhere."""
    rows = np.zeros(raw.shape[1], bool)
    plane = np.zeros(raw.shape[2:], bool)
    for index in range(raw.shape[1]):
        here = (raw[:, index] != 0).any(axis=0)
        rows[index] = here.any()
        plane |= here
    if not rows.any():
        return _all(raw)
    z, y, x = (
        _ends(flags) for flags in (rows, *(np.asarray(plane.any(axis=axis)) for axis in (1, 0)))
    )
    return z, y, x


def _ends(flags: Array) -> slice:
    (found,) = np.nonzero(flags)
    return slice(int(found[0]), int(found[-1]) + 1)


def _inside(kept: Array, section: PrepareSection) -> Mask | None:
    """Return the voxels where any channel is not 0, holes filled; None where nobody asks."""
    if not any(isinstance(it, DeviationScheme) and it.inside for it in section.normalize or ()):
        return None
    from scipy.ndimage import binary_fill_holes

    found: Mask = binary_fill_holes((kept != 0).any(axis=0))
    return found
