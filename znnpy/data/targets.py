"""What a network shall predict, made from labels: boundaries, affinities, the labels themselves.

A target sees labels (C, z, y, x) and the voxels `known` (z, y, x): inside the volume, not masked.
It returns the wanted values and their weights, both float32 (K, z, y, x); unknown voxels weigh 0.
Values within `margin` voxels of the array's border miss neighbours, so readers add a margin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.data.labelled import Bool
from znnpy.data.volume import Array, Triple
from znnpy.errors import VolumeError

Float32 = NDArray[np.float32]
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))


class Target(ABC):
    """A rule that turns labels into target images."""

    segmentation: bool = True
    """Whether the labels must be one channel of integers (object numbers)."""

    @property
    @abstractmethod
    def margin(self) -> int:
        """Voxels of context that a value depends on, the same along all axes."""

    @abstractmethod
    def images(self, channels: int) -> int:
        """Number K of target images for labels of so many channels."""

    @abstractmethod
    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Values and weights (K, z, y, x) for labels (C, z, y, x) and known voxels (z, y, x)."""


@dataclass(frozen=True)
class BoundaryTarget(Target):
    """One image: 1 on boundaries, 0 inside objects.

    A voxel is boundary if one of its 6 neighbours has another label, up to `thickness` voxels deep
    on either side. `background` says what label 0 is: `boundary` (with `thickness` 0 the only one),
    an `object` like any other, or to `ignore`: it weighs nothing and makes no boundary.
    """

    thickness: int = 1
    background: Literal["boundary", "object", "ignore"] = "boundary"

    @property
    def margin(self) -> int:
        """An interface needs one neighbour; each further voxel of thickness one more."""
        return self.thickness

    def images(self, channels: int) -> int:
        """Always 1."""
        return 1

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Values and weights (1, z, y, x)."""
        ids = labels[0]
        counted = known & (ids != 0) if self.background == "ignore" else known
        boundary = np.zeros(ids.shape, np.bool_)
        if self.thickness:
            _mark_interfaces(ids, counted, boundary)
            for _ in range(self.thickness - 1):
                boundary = _dilated(boundary)
        if self.background == "boundary":
            boundary |= (ids == 0) & known
        return boundary[None].astype(np.float32), counted[None].astype(np.float32)


@dataclass(frozen=True)
class AffinityTarget(Target):
    """One image per offset: 1 where voxels v and v + offset have the same label, not 0.

    By default the nearest neighbours along z, y and x, in this order: v and the one before.
    Weight 0 where v or v + offset is unknown, so also on the first plane of a volume.
    """

    offsets: tuple[Triple, ...] = NEAREST

    @property
    def margin(self) -> int:
        """The longest step along any axis."""
        return max(abs(step) for offset in self.offsets for step in offset)

    def images(self, channels: int) -> int:
        """One per offset."""
        return len(self.offsets)

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Values and weights (offsets, z, y, x)."""
        ids = labels[0]
        values = np.zeros((len(self.offsets), *ids.shape), np.float32)
        weights = np.zeros_like(values)
        for index, offset in enumerate(self.offsets):
            here, there = _pairs(offset, ids.shape)
            values[index][here] = (ids[here] == ids[there]) & (ids[here] != 0)
            weights[index][here] = known[here] & known[there]
        return values * weights, weights


@dataclass(frozen=True)
class LabelsTarget(Target):
    """The labels as given, one image per channel; with `classes`, one-hot images of classes."""

    classes: int | None = None

    @property
    def margin(self) -> int:
        """Voxels do not depend on their neighbours."""
        return 0

    @property
    def segmentation(self) -> bool:  # type: ignore[override]
        """One-hot images need whole numbers."""
        return self.classes is not None

    def images(self, channels: int) -> int:
        """As many as classes, or as channels of the labels."""
        return self.classes or channels

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Values and weights (K, z, y, x)."""
        values = labels.astype(np.float32) if self.classes is None else self._one_hot(labels, known)
        values *= known
        return values, np.broadcast_to(known, values.shape).astype(np.float32)

    def _one_hot(self, labels: Array, known: Bool) -> Float32:
        assert self.classes is not None
        classes = labels[0]
        wrong = known & ((classes < 0) | (classes >= self.classes))
        if wrong.any():
            raise VolumeError(
                f"class {classes[wrong][0]} in the labels, but the network has {self.classes} "
                f"output images, for classes 0 to {self.classes - 1}"
            )
        one_hot: Bool = np.arange(self.classes)[:, None, None, None] == classes
        return one_hot.astype(np.float32)


def _mark_interfaces(ids: Array, known: Bool, boundary: Bool) -> None:
    """Set both voxels of each pair of neighbours with different labels."""
    for axis in range(3):
        step = [0, 0, 0]
        step[axis] = -1
        here, there = _pairs((step[0], step[1], step[2]), ids.shape)
        differ = (ids[here] != ids[there]) & known[here] & known[there]
        boundary[here] |= differ
        boundary[there] |= differ


def _dilated(boundary: Bool) -> Bool:
    out = boundary.copy()
    for offset in NEAREST:
        here, there = _pairs(offset, boundary.shape)
        out[here] |= boundary[there]
        out[there] |= boundary[here]
    return out


def _pairs(offset: Triple, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slices of all voxels v that have a neighbour v + offset, and of those neighbours."""
    here, there = [], []
    for step, size in zip(offset, shape, strict=True):
        length = max(0, size - abs(step))
        here.append(slice(max(0, -step), max(0, -step) + length))
        there.append(slice(max(0, step), max(0, step) + length))
    return tuple(here), tuple(there)
