"""Reads labels with masks and checks them: refuses those that a target or loss cannot take, warns of sparse ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod

import numpy as np

from znnpy.data.samples.image_labels import stored
from znnpy.data.sampling.position_index import minus, plus
from znnpy.data.sampling.targets import Bool, Target
from znnpy.data.values.moments import pieces
from znnpy.data.values.sampled_range import looked_at
from znnpy.data.volume import Array, Triple, Volume, clipped
from znnpy.errors import VolumeError

# The least number that no object has: the negative ones, and what they are as unsigned.
MARKS = 2**63
# Share of voxels that are labelled: cells that touch fill more than half, with membranes of 0 too.
FEW = 1 / 4
HARDLY_ANY = 1 / 50
# Share of labelled voxels whose 6 neighbours have the same label: in a ball of radius 2 a fifth.
THIN = 1 / 4


@dataclass(frozen=True)
class Strokes:
    """Counts that tell brush strokes from dense labels: `voxels`, `labelled` (not 0), `inner` (inside a label).

    `alike`: all that are labelled have one number.
    """

    voxels: int
    labelled: int
    inner: int
    alike: bool = False

    @property
    def likely(self) -> bool:
        """Whether zeros seem to be unannotated voxels, not background."""
        return self._share_within(HARDLY_ANY) or (self._share_within(FEW) and self._thin)

    @property
    def drawn(self) -> bool:
        """Whether labels of classes are both few and thin, and of several classes.

        Lesions are few, and vessels few and thin; but whoever draws by hand must draw two classes at least.
        """
        return self._share_within(HARDLY_ANY) and self._thin and not self.alike

    @property
    def _thin(self) -> bool:
        return self.inner < THIN * self.labelled

    def _share_within(self, most: float) -> bool:
        return 0 < self.labelled / max(1, self.voxels) < most


def strokes(labels: Volume) -> Strokes:
    """Count voxels of a bounded part of one-channel labels; errors as in `Volume.read`."""
    voxels = labelled = inner = 0
    ends = set[float]()
    for lower, upper in looked_at(labels):
        ids = labels.read(lower, upper)[0]
        marked = ids != 0
        voxels += ids.size
        labelled += int(marked.sum())
        inner += int((marked & _inside(ids)).sum())
        if marked.any():
            ends |= {ids[marked].min(), ids[marked].max()}
    return Strokes(voxels, labelled, inner, len(ends) == 1)


def highest(target: Target, labels: Volume) -> float:
    """Return the highest label that counts in a bounded part of labels, -inf if none does."""
    found = -np.inf
    for lower, upper in looked_at(labels):
        values, known = read_counted(target, labels, None, lower, upper)
        counted = values[:, known]
        counted = counted[np.isfinite(counted)]
        found = max(found, float(counted.max())) if counted.size else found
    return found


def _inside(ids: Array) -> Array:
    """Return where no neighbour along z, y or x has another label; beyond the array there is none."""
    found = np.ones(ids.shape, np.bool_)
    for axis in range(ids.ndim):
        before, after = [slice(None)] * ids.ndim, [slice(None)] * ids.ndim
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        same = ids[tuple(before)] == ids[tuple(after)]
        found[tuple(before)] &= same
        found[tuple(after)] &= same
    return found


def check_labels(
    target: Target, labels: Volume, mask: Volume | None, shift: Triple = (0, 0, 0)
) -> None:
    """Raise VolumeError for labels without a target where they count, with their range and a way out.

    Warns where all that count are the same, or, for a mask, none is 0, and of objects with numbers below 0.
    Of very large volumes evenly spaced slabs are
    read; `read_taken` checks the rest. Where no label can be wrong, reading ends with the second value. Voxel v of the
    labels is voxel v + shift of the mask.
    """
    check_kind(target, labels)
    if mask is None:
        labels = stored(labels)
    if target.segmentation and (labels.dtype.kind == "i" or labels.dtype == np.uint64):
        _warn_of_marks(target, labels, mask, shift)
    seen, read = _Seen(), list(pieces(labels))
    for lower, upper in read:
        values, known = read_counted(target, labels, mask, lower, upper, shift)
        seen.add(target, values, known, lower)
        if target.takes_all(labels.dtype) and seen.tell_apart(target):
            return
    seen.refuse(target, labels.name)
    if sum(prod(minus(upper, lower)) for lower, upper in read) == prod(labels.extent):
        seen.doubt(target, labels.name)


def _warn_of_marks(target: Target, labels: Volume, mask: Volume | None, shift: Triple) -> None:
    """Warn of numbers that other programs mark voxels with, -1 above all, and that are objects here; by a part."""
    for lower, upper in looked_at(labels):
        values, known = read_counted(target, labels, mask, lower, upper, shift)
        counted = values[0, known]
        marks = counted[(counted < 0) | (counted >= MARKS)]
        if marks.size:
            warnings.warn(
                f"{labels.name}: some labels are {marks[0]}, which counts as one object more; where it marks voxels "
                "that nobody has labelled, name a `mask` that is 0 there, or let them be 0 where nothing is",
                stacklevel=4,
            )
            return


def read_taken(
    target: Target,
    labels: Volume,
    mask: Volume | None,
    lower: Triple,
    upper: Triple,
    shift: Triple = (0, 0, 0),
) -> tuple[Array, Bool]:
    """Read as `read_counted` does; raise VolumeError with the place where the target cannot take what counts."""
    values, known = read_counted(target, labels, mask, lower, upper, shift)
    refuse_untaken(target, labels.name, values, known, lower)
    return values, known


def refuse_untaken(target: Target, name: str, values: Array, known: Bool, lower: Triple) -> None:
    """Raise VolumeError for labels (C, z, y, x), the first voxel of which is `lower`, that the target cannot take."""
    if not target.takes_all(values.dtype):
        seen = _Seen()
        seen.add(target, values, known, lower)
        seen.refuse(target, name)


def read_counted(
    target: Target,
    labels: Volume,
    mask: Volume | None,
    lower: Triple,
    upper: Triple,
    shift: Triple = (0, 0, 0),
) -> tuple[Array, Bool]:
    """Read as `read_labelled` does; voxels with the label that the target ignores are not known."""
    values, known = read_labelled(labels, mask, lower, upper, shift)
    return values, target.counted(values, known)


def read_labelled(
    labels: Volume, mask: Volume | None, lower: Triple, upper: Triple, shift: Triple = (0, 0, 0)
) -> tuple[Array, Bool]:
    """Read labels (C, z, y, x), and which voxels (z, y, x) are inside the volume with a mask that is not 0.

    `lower` and `upper` count in the labels' voxels and may leave the volume; voxel v of the labels
    is voxel v + shift of the mask. A mask of several channels must be set in all of them. Labels may
    be NaN or infinite, where they are known as well.
    """
    values, known = read_padded(labels, lower, upper, finite=False)
    if mask is not None:
        inner, outer = plus(lower, shift), plus(upper, shift)
        known &= np.all(read_padded(mask, inner, outer)[0] != 0, axis=0)
    return values, known


def read_padded(
    volume: Volume, lower: Triple, upper: Triple, *, finite: bool = True
) -> tuple[Array, Bool]:
    """Read a region that may leave the volume: values (C, z, y, x), 0 outside, and where it is inside (z, y, x).

    Both arrays are new and belong to the caller. `finite` as in `Volume.read`.
    """
    sizes = tuple(b - a for a, b in zip(lower, upper, strict=True))
    if all(0 <= a < b <= n for a, b, n in zip(lower, upper, volume.extent, strict=True)):
        found = volume.read(lower, upper, finite=finite).copy()
        return found, np.ones(sizes, np.bool_)
    values = np.zeros((volume.channels, *sizes), volume.dtype)
    inside = np.zeros(sizes, np.bool_)
    start = clipped(lower, volume.extent)
    stop = clipped(upper, volume.extent)
    if all(a < b for a, b in zip(start, stop, strict=True)):
        z, y, x = (slice(a - o, b - o) for a, b, o in zip(start, stop, lower, strict=True))
        values[:, z, y, x] = volume.read(start, stop, finite=finite)
        inside[z, y, x] = True
    return values, inside


@dataclass
class _Seen:
    """The range of values that count, whether 0 is among them, how many have no target, and the first of those."""

    low: float = np.inf
    high: float = -np.inf
    zero: bool = False
    wrong: int = 0
    first: str = ""

    def add(self, target: Target, values: Array, known: Bool, lower: Triple) -> None:
        """Add labels (C, z, y, x) whose first voxel is `lower`."""
        counted = values if known.all() else values[:, known]
        if not counted.size:
            return
        low, high = float(counted.min()), float(counted.max())  # NaN where any is
        if target.by_zero and not self.zero:
            self.zero = bool((counted == 0).any())
        if np.isfinite(low) and np.isfinite(high):
            self._widen(low, high)
            if target.takes_span(low, high, values.dtype):
                return
        elif (finite := counted[np.isfinite(counted)]).size:
            self._widen(float(finite.min()), float(finite.max()))
        wrong = target.wrong(values) & known
        self.wrong += int(wrong.sum())
        if not self.first and wrong.any():
            channel, *inner = (int(n) for n in np.argwhere(wrong)[0])
            place = tuple(a + b for a, b in zip(inner, lower, strict=True))
            found = values[channel, *inner]
            self.first = f"{found} at (z, y, x) = {place}, channel {channel}"

    def tell_apart(self, target: Target) -> bool:
        """Return whether the values that count may have different targets."""
        return (self.zero or not target.by_zero) and target.tells_apart(self.low, self.high)

    def _widen(self, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    def refuse(self, target: Target, name: str) -> None:
        """Raise VolumeError if anything was wrong."""
        if self.wrong:
            span = f"from {self.low:g} to {self.high:g}" if self.low <= self.high else "not finite"
            raise VolumeError(
                f"{name}: values are {span}, and {self.wrong} of them fit no target, the first "
                f"{self.first}; {target.wanted}. {target.way_out(self.high)}"
            )

    def doubt(self, target: Target, name: str) -> None:
        """Warn if all labels that count are the same, to the target at least."""
        if self.low > self.high or self.tell_apart(target):
            return
        why, way_out = "", ""
        if target.ignore is not None:
            why = f", as data.target ignores {target.ignore}"
            way_out = f"; where {target.ignore} is a class, leave `ignore` out"
        elif target.selective:
            why = ", as data.target leaves labels below `first` out"
        same = (
            f"{self.low:g}"
            if self.low == self.high
            else f"{self.low:g} to {self.high:g}, none is 0"
        )
        warnings.warn(
            f"{name}: all labels that count are {same}{why}: they tell nothing apart{way_out}",
            stacklevel=4,
        )


def check_kind(target: Target, labels: Volume) -> None:
    """Raise VolumeError when labels lack the channels or the type that a target needs."""
    if target.segmentation and (labels.channels != 1 or labels.dtype.kind not in "uib"):
        raise VolumeError(
            f"{labels.name} holds {labels.channels} channel(s) of {labels.dtype}; this target needs "
            "one channel of integer labels"
        )
    if target.channels not in (None, labels.channels):
        raise VolumeError(
            f"{labels.name} holds {labels.channels} channel(s); this target needs {target.channels}"
            f"{target.of_channels}"
        )
