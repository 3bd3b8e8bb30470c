"""Makes training targets from labels: boundaries, affinities, masks, classes, or values as they are.

A target sees labels (C, z, y, x) and the voxels `known` (z, y, x): inside the volume, not masked.
It returns the wanted values and their weights, both float32 (K, z, y, x); unknown voxels weigh 0.
Values within `margin` voxels of the array's border miss neighbours, so readers add a margin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.interfaces import mark_interfaces

from znnpy.data.sampling.scratch import at
from znnpy.data.volume import Array, Triple
from znnpy.learning.readings import VALUES, Taken

Float32 = NDArray[np.float32]
Bool = NDArray[np.bool_]
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
"""Offsets of the nearest neighbours before a voxel along z, y and x."""


class Target(ABC):
    """A rule that turns labels into target channels."""

    segmentation: bool = True
    """Whether the labels must be one channel of integers (object numbers)."""

    channels: int | None = None
    """Channels that the labels must have; None: any number."""

    of_channels: ClassVar[str] = ""
    """For error messages: what the channels are for, and what to do with other labels."""

    ignore: int | None = None
    """Label of voxels that do not count; None: all count."""

    @property
    def selective(self) -> bool:
        """Whether some labels do not count."""
        return self.ignore is not None

    @property
    def of_zeros(self) -> str:
        """The meaning of label 0 (no object) to the network, for messages; "" where 0 is a label like others."""
        return ""

    @property
    def values(self) -> bool:
        """Whether its channels hold values of any size, not zeros and ones or probabilities."""
        return False

    @property
    def exclusive(self) -> bool:
        """Whether its channels are classes, of which a voxel has one, or shares that sum to 1."""
        return False

    @property
    def balanced(self) -> bool:
        """Whether values above a half are a class, or may be, that is weighed against the others."""
        return True

    @property
    def by_zero(self) -> bool:
        """Whether all that it asks of a label is whether it is 0."""
        return False

    def tells_apart(self, low: float, high: float) -> bool:
        """Return whether labels between two that occur may have different targets."""
        return low < high

    def counted(self, labels: Array, known: Bool) -> Bool:
        """Return which of the known voxels (z, y, x) count, by their labels (C, z, y, x)."""
        return known if self.ignore is None else known & (labels != self.ignore).all(axis=0)

    @property
    @abstractmethod
    def margin(self) -> int:
        """Voxels of context that a value depends on, the same along all axes."""

    @abstractmethod
    def target_channels(self, given: int) -> int:
        """Return the number K of target channels for labels of `given` channels."""

    @abstractmethod
    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (K, z, y, x) for labels (C, z, y, x) and known voxels (z, y, x).

        Labels that `wrong` finds must not be known.
        """

    def sought(self, values: Float32, weights: Float32, *, whole: bool = False) -> Bool:
        """Return which voxels are foreground of each class (classes, z, y, x), by what `compute` returned.

        `whole`: images have one label each, so that no class is background.
        """
        return (values > 0.5) & (weights > 0)

    def takes_all(self, dtype: np.dtype[Any]) -> bool:
        """Return whether no label of a type can be wrong: object numbers never are."""
        return True

    def takes_span(self, low: float, high: float, dtype: np.dtype[Any]) -> bool:
        """Return whether no label of a type from `low` to `high` can be wrong."""
        return True

    def wrong(self, labels: Array) -> Bool:
        """Return where labels (C, z, y, x) have no target that the loss takes."""
        return np.zeros(labels.shape, np.bool_)

    @property
    def wanted(self) -> str:
        """Return for messages: what labels must be."""
        return "object numbers are wanted"

    def way_out(self, high: float) -> str:
        """Return for messages: what to do with labels that have no target, the largest of which is `high`."""
        return ""


@dataclass(frozen=True)
class BoundaryTarget(Target):
    """One channel: 1 on boundaries, 0 inside objects.

    A voxel is boundary if one of its 6 neighbours has another label, up to `thickness` voxels deep
    on either side. `background` says what label 0 is: `boundary` (with `thickness` 0 the only one),
    an `object` like any other, or to `ignore`: it weighs nothing and makes no boundary.
    """

    thickness: int = 1
    background: Literal["boundary", "object", "ignore"] = "boundary"

    @property
    def of_zeros(self) -> str:
        return "boundary" if self.background == "boundary" else ""

    @property
    def margin(self) -> int:
        """The thickness: an interface needs one neighbour, each further voxel of thickness one more."""
        return self.thickness

    def target_channels(self, given: int) -> int:
        """Return 1."""
        return 1

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (1, z, y, x)."""
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
    """One channel per offset: 1 where voxels v and v + offset have the same label, not 0.

    By default the nearest neighbours along z, y and x, in this order: v and the one before.
    Weight 0 where v or v + offset is unknown, so also on the first plane of a volume.
    """

    offsets: tuple[Triple, ...] = NEAREST

    @property
    def of_zeros(self) -> str:
        return "belonging to no object"

    @property
    def margin(self) -> int:
        """The longest step along any axis."""
        return max(abs(step) for offset in self.offsets for step in offset)

    def target_channels(self, given: int) -> int:
        """Return the number of offsets."""
        return len(self.offsets)

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (offsets, z, y, x)."""
        ids = labels[0]
        values = np.zeros((len(self.offsets), *ids.shape), np.float32)
        weights = np.zeros_like(values)
        for index, offset in enumerate(self.offsets):
            here, there = _pairs(offset, ids.shape)
            values[index][here] = (ids[here] == ids[there]) & (ids[here] != 0)
            weights[index][here] = known[here] & known[there]
        return values * weights, weights

    def sought(self, values: Float32, weights: Float32, *, whole: bool = False) -> Bool:
        """Return where neighbours are apart, by offset: within objects, which are most of a volume, they are not."""
        return (values <= 0.5) & (weights > 0)


@dataclass(frozen=True)
class ImageTarget(Target):
    """The labels' values times `scale`, one channel per channel of labels, where the loss takes them."""

    of_channels = (
        ", one for each output channel (class numbers in one go with data.target: labels and a loss of classes, "
        "such as softmax)"
    )
    scale: float = 1.0
    taken: Taken = VALUES.target
    channels: int | None = None
    ignore: int | None = None

    @property
    def margin(self) -> int:
        """0: voxels do not depend on their neighbours."""
        return 0

    @property
    def values(self) -> bool:
        """Whether the loss takes any value."""
        return self.taken.low == -np.inf

    @property
    def exclusive(self) -> bool:
        """Whether the loss takes shares of classes."""
        return self.taken.shares

    @property
    def segmentation(self) -> bool:  # type: ignore[override]
        """False: any values."""
        return False

    def target_channels(self, given: int) -> int:
        """Return the number of label channels."""
        return given

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (C, z, y, x)."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not known may be anything
            values = np.where(known, self._scaled(labels), np.float32(0))
        np.clip(values, self.taken.low, self.taken.high, out=values)
        return values, np.broadcast_to(known, values.shape).astype(np.float32)

    def takes_all(self, dtype: np.dtype[Any]) -> bool:
        """Return whether no value of a type can be wrong."""
        return dtype.kind in "uib" and self.taken.low == -np.inf

    def takes_span(self, low: float, high: float, dtype: np.dtype[Any]) -> bool:
        """Return whether all values from `low` to `high` are valid."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends = self._scaled(np.array([low, high], np.float64))
        return not self.taken.shares and bool(self.taken.inside(ends).all())

    def wrong(self, labels: Array) -> Bool:
        """Return where labels (C, z, y, x) have no target; probabilities that do not add up to 1: the whole voxel."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._scaled(labels)
        return self.taken.wrong(values)

    @property
    def wanted(self) -> str:
        """Return for messages: what values must be."""
        return self.taken.words if self.scale == 1 else f"times {self.scale:g}, {self.taken.words}"

    def way_out(self, high: float) -> str:
        """Return for messages: what to do with other values, the largest of which is `high`."""
        if self.taken.low == -np.inf:
            return "Mend them, or leave these voxels out by a mask"
        scale = f"{1 / high:.6g}" if 1 < high < np.inf else "..."
        return (
            "Set data.target to {kind: mask}, where whatever is not 0 counts as 1, or to {kind: image, "
            f"scale: {scale}}}, values times scale; or leave these voxels out by a mask"
        )

    def _scaled(self, labels: Array) -> Float32:
        found: Float32 = labels.astype(np.float32)
        if self.scale != 1:
            found *= np.float32(self.scale)
        return found


@dataclass(frozen=True)
class MaskTarget(ImageTarget):
    """1 where labels are not 0, else 0: one channel per channel of labels."""

    @property
    def values(self) -> bool:
        """False: zeros and ones, whatever the loss takes."""
        return False

    @property
    def by_zero(self) -> bool:
        """True."""
        return True

    def takes_all(self, dtype: np.dtype[Any]) -> bool:
        """Return whether a type holds integers alone, which are 0 or not."""
        return dtype.kind in "uib" and not self.taken.shares

    @property
    def wanted(self) -> str:
        """Return for messages: what values must be."""
        return self.taken.words if self.taken.shares else "a mask takes finite numbers"

    def way_out(self, high: float) -> str:
        """Return for messages: what to do with other values."""
        return "Mend them, or leave these voxels out by a mask"

    def _scaled(self, labels: Array) -> Float32:
        found: Float32 = np.where(np.isfinite(labels), labels != 0, np.float32(np.nan))
        return found.astype(np.float32, copy=False)


@dataclass(frozen=True)
class ClassesTarget(Target):
    """One-hot channels of class numbers from `first` on, from labels of one channel; lower ones do not count."""

    classes: int
    channels: int | None = 1
    ignore: int | None = None
    first: int = 0

    @property
    def of_zeros(self) -> str:
        """Class 0, unless what does not count has been said."""
        return "" if self.selective else "class 0"

    @property
    def margin(self) -> int:
        """0: voxels do not depend on their neighbours."""
        return 0

    @property
    def selective(self) -> bool:
        """Whether some labels do not count."""
        return self.ignore is not None or self.first > 0

    def counted(self, labels: Array, known: Bool) -> Bool:
        """Return which voxels count; negative numbers and NaN do, so that they are refused."""
        found = super().counted(labels, known)
        if self.first == 0:
            return found
        lower = ((labels >= 0) & (labels < self.first)).any(axis=0)
        return np.asarray(found & ~lower)

    @property
    def exclusive(self) -> bool:
        """True."""
        return True

    @property
    def segmentation(self) -> bool:  # type: ignore[override]
        """False: class numbers may come as floats."""
        return False

    def target_channels(self, given: int) -> int:
        """Return the number of classes."""
        return self.classes

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (classes, z, y, x)."""
        numbers = np.arange(self.first, self.first + self.classes)
        one_hot: Bool = (numbers[:, None, None, None] == labels[0]) & known
        return one_hot.astype(np.float32), np.broadcast_to(known, one_hot.shape).astype(np.float32)

    def sought(self, values: Float32, weights: Float32, *, whole: bool = False) -> Bool:
        """Return the voxels of each class; class 0 is background and none of them, unless images are of a class."""
        found = super().sought(values, weights)
        if self.first == 0 and not whole:
            found[0] = False
        return found

    def takes_all(self, dtype: np.dtype[Any]) -> bool:
        """Return False: every type holds numbers that are no class."""
        return False

    def takes_span(self, low: float, high: float, dtype: np.dtype[Any]) -> bool:
        """Return whether all values of a type from `low` to `high` are classes."""
        return dtype.kind in "uib" and low >= self.first and high < self.first + self.classes

    def wrong(self, labels: Array) -> Bool:
        """Return where labels (1, z, y, x) are no class."""
        inside = (labels >= self.first) & (labels < self.first + self.classes)
        classes: Bool = inside & (labels == np.floor(labels))
        return ~classes

    @property
    def wanted(self) -> str:
        """Return for messages: what values must be."""
        return (
            f"the network has {self.classes} output channels, for whole class numbers from {self.first} to "
            f"{self.first + self.classes - 1}"
        )

    def way_out(self, high: float) -> str:
        """Return for messages: what to do with other values."""
        return (
            "Number the classes so, give the network a channel for each, or leave these voxels out by a "
            "mask; for a mask of 0 and 255 take one channel, binomial_cross_entropy and {kind: mask}"
        )


def _mark_interfaces(ids: Array, known: Bool, boundary: Bool) -> None:
    """Set both voxels of each pair of neighbours with different labels."""
    labels, counted = np.ascontiguousarray(ids), np.ascontiguousarray(known)
    mark_interfaces(at(boundary), at(labels), labels.itemsize, at(counted), *ids.shape)


def _dilated(boundary: Bool) -> Bool:
    out = boundary.copy()
    for offset in NEAREST:
        here, there = _pairs(offset, boundary.shape)
        out[here] |= boundary[there]
        out[there] |= boundary[here]
    return out


def _pairs(offset: Triple, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return slices of all voxels v that have a neighbour v + offset, and slices of those neighbours."""
    here, there = [], []
    for step, size in zip(offset, shape, strict=True):
        length = max(0, size - abs(step))
        here.append(slice(max(0, -step), max(0, -step) + length))
        there.append(slice(max(0, step), max(0, step) + length))
    return tuple(here), tuple(there)
