"""Prediction of prepared scans (`data.prepare`): nnU-Net's own inference, whose labels lie in the scan's voxels.

Windows, mirror images and members are averaged as logits; the means are resampled to the scan's voxels a few planes at
a time, and become labels at once. Kept in memory: the prepared scan, the planes that windows still reach, the labels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import Config
from znnpy.data.preparing.resampling import Resampling, along, used
from znnpy.data.preparing.scan import Prepared
from znnpy.data.process_memory import give_back
from znnpy.data.volume import Array
from znnpy.engine.model import Model
from znnpy.errors import PredictionError
from znnpy.infer.request import numbering_of
from znnpy.infer.sliding_window import Windows
from znnpy.infer.window_sums import Float32, mean_planes, padded
from znnpy.network import training_losses

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Called with (windows done, windows in all)."""
AXES = "zyx"
PLANES = 32 << 20  # bytes of logits that are resampled at once
SUMS = 64 << 20  # bytes of sums beside those of a window, so that members change seldom


@dataclass
class ScanModel:
    """A network of one window's size, and functions that read the weights of its members, whose logits are averaged.

    What a function returns is emptied. `flips`: axes of the array (c, z, y, x) along which mirror images are taken.
    `planned`: how many of them its passes are planned for; the model's batch, or more than there are (0: its batch).
    For one thread at a time.
    """

    model: Model
    members: Sequence[Callable[[], dict[str, Any]]]
    flips: tuple[int, ...]
    planned: int = 0
    current: int = -1

    @property
    def channels(self) -> int:
        """The number of logits of a voxel."""
        return self.model.network.outputs[0].channels

    @property
    def at_once(self) -> int:
        """How many windows share a pass with all their mirror images; 1 also where these take several passes."""
        return max(1, self.model.batch // len(self._mirrored()))

    def begin(self) -> None:
        """Do what `logits` of the first member begins with: set its weights, make what runs.

        While a scan is read, on another thread: most of it needs no Python.
        """
        self._take(0)
        self.model.ready()

    def logits(self, windows: Sequence[Float32], member: int = 0) -> list[Float32]:
        """Return what a member adds to the mean logits (k, z, y, x) of each window (c, z, y, x), until the next call.

        The same bits, whichever windows are given together. Raises PredictionError where they are not finite.
        """
        self._take(member)
        # What the last window, or reading weights, has freed: most memory is needed while one runs.
        give_back()
        found = self._means(windows)
        if not all(np.isfinite([values.min(), values.max()]).all() for values in found):
            raise PredictionError(
                "the network predicts values that are NaN or infinite: is the scan like those that it was trained on?"
            )
        return found

    def _take(self, member: int) -> None:
        """Set a member's weights, unless the model has them."""
        if member != self.current:
            # Read when they are wanted, and not kept: the model has them. Of nobody where that ends half-way.
            self.current = -1
            self.model.take_parameters(self.members[member]())
            self.current = member

    def _means(self, windows: Sequence[Float32]) -> list[Float32]:
        """Return each window's sum over its mirror images, by how many of these there are in all, of all members."""
        mirrored, size = self._mirrored(), self.model.batch
        images = [(number, axes) for number in range(len(windows)) for axes in mirrored]
        share = len(self.members) * len(mirrored)
        found: list[Float32] = []
        for low in range(0, len(images), size):
            some = images[low : low + size]
            made = self._run([(windows[number], axes) for number, axes in some])
            for (number, _), values in zip(some, made, strict=True):
                if number < len(found):
                    found[number] += values
                else:
                    # Of its own where it is changed, or the next run may write there.
                    found.append(np.array(values) if share > 1 or len(images) > size else values)
        for values in found if share > 1 else ():
            values /= np.float32(share)
        return found

    def _run(self, images: Sequence[tuple[Float32, tuple[int, ...]]]) -> list[Float32]:
        """Return the logits of windows that were mirrored along some axes, mirrored back; `batch` of them at most."""
        (name,) = (node.name for node in self.model.network.inputs)
        # Places that are left over keep what they had: it is computed, and nobody reads it.
        for place, (window, axes) in zip(self.model.staged()[name], images, strict=False):
            place[:] = np.flip(window, axes)
        (found,) = self.model.run().values()
        return [np.flip(it, axes) for it, (_, axes) in zip(found, images, strict=False)]

    def _mirrored(self) -> list[tuple[int, ...]]:
        """Return all sets of axes, in a fixed order."""
        counts = range(len(self.flips) + 1)
        return [s for count in counts for s in itertools.combinations(self.flips, count)]


def windows_of(config: Config, prepared: Prepared) -> Windows:
    """Return the windows over a prepared scan, padded to their size."""
    said = config.inference
    size = said.window or config.training.output_shape
    z, y, x = (max(pair) for pair in zip(prepared.array.shape[1:], size, strict=True))
    return Windows(size, said.overlap, said.blend, (z, y, x), spread=said.spread)


def rows_together(model: ScanModel, windows: Windows) -> int:
    """Return how many rows of windows one member has before the next: as setting its weights takes time.

    As many as fill passes, if windows share these; all of them, where their sums fit.
    """
    starts, along_y, along_x = windows.starts

    def full(each: int) -> int:
        return each // gcd(each, len(along_y) * len(along_x))

    if len(model.members) == 1:
        return full(model.at_once)
    plane = 4 * (model.channels + 1) * windows.extent[1] * windows.extent[2]
    room = SUMS // plane
    rows = sum(start - starts[0] < room for start in starts)
    # Not by the batch, which follows from how many there are: sums of members would have other bits.
    least = full(max(1, (model.planned or model.model.batch) // (1 << len(model.flips))))
    return rows if rows == len(starts) else max(least, rows // least * least)


def flips_of(config: Config) -> tuple[int, ...]:
    """Return the axes of arrays (c, z, y, x) along which predictions of scans are mirrored."""
    return tuple(sorted(1 + AXES.index(axis) for axis in set(config.inference.flips)))


def labelled(
    model: ScanModel, prepared: Prepared, config: Config, progress: Progress | None = None
) -> Array:
    """Return the labels (z, y, x) of a scan as it was read, uint8 or uint16; 0 where it was cut off."""
    network = model.model.network
    (node,) = network.outputs
    numbering = numbering_of(config, node)
    # Of logits 0 is a half.
    half = 0.0 if training_losses(config, network)[node.name].reading.functions else 0.5
    found = np.zeros(prepared.whole, numbering.type(node.channels))
    kept, place = found[prepared.box], 0
    for logits in _restored(model, prepared, config, progress):
        rows = slice(place, place + logits.shape[1])
        kept[rows] = numbering.labels(logits, half)
        place = rows.stop
    return prepared.turn.undone(found)


def logits_of(
    model: ScanModel, prepared: Prepared, config: Config, progress: Progress | None = None
) -> Array:
    """Return the logits (k, z, y, x) of a scan as it was read, float32; 0 where it was cut off."""
    found = np.zeros((model.channels, *prepared.whole), np.float32)
    kept, place = found[(slice(None), *prepared.box)], 0
    for logits in _restored(model, prepared, config, progress):
        rows = slice(place, place + logits.shape[1])
        kept[:, rows] = logits
        place = rows.stop
    return np.stack([prepared.turn.undone(channel) for channel in found])


def _restored(
    model: ScanModel, prepared: Prepared, config: Config, progress: Progress | None
) -> Iterator[Float32]:
    """Yield logits (k, planes, y, x) in the voxels of the cropped scan, from the first plane to the last."""
    windows = windows_of(config, prepared)
    array, inside = padded(prepared.array, windows.size)
    total, done = len(windows.meeting(inside)) * len(model.members), itertools.count(1)

    def run(member: int, some: Sequence[Float32]) -> Sequence[Float32]:
        values = model.logits(some, member)
        if progress:
            for _ in some:
                progress(next(done), total)
        return values

    assert config.data.prepare is not None
    runs = [partial(run, member) for member in range(len(model.members))]
    rows = rows_together(model, windows)
    means = mean_planes(array, windows, model.channels, runs, rows, model.at_once)
    planes = _inner(means, inside.slices())
    yield from resampled_planes(planes, prepared.restoring(config.data.prepare))


def _inner(planes: Iterator[Float32], inside: tuple[slice, slice, slice]) -> Iterator[Float32]:
    """Yield planes without what was added around them."""
    z, y, x = inside
    first = 0
    for some in planes:
        count = some.shape[1]
        low, high = max(z.start - first, 0), min(z.stop - first, count)
        if high > low:
            yield some[:, low:high, y, x]
        first += count


def resampled_planes(planes: Iterator[Float32], how: Resampling) -> Iterator[Float32]:
    """Yield planes (k, planes, y, x) resampled, a few at a time, as soon as those that they are made from have come."""
    if how.idle:
        yield from planes
        return
    depth, height, width = how.wanted
    shares = [how.matrix(axis) for axis in range(3)]
    kept: Float32 | None = None
    first, place = 0, 0
    for some in planes:
        kept = some if kept is None else np.concatenate([kept, some], axis=1)
        there = first + kept.shape[1]
        step = max(1, PLANES // (4 * len(kept) * height * width))
        while place < depth:
            rows = slice(place, min(depth, place + step))
            low, high = used(shares[0], rows)
            if high > there:
                break
            part = kept[:, low - first : high - first]
            yield _resampled(part, [shares[0][rows, low:high], *shares[1:]])
            place = rows.stop
        if place < depth:
            # Planes that nothing takes, where there are fewer than before, are dropped as they come.
            low = min(used(shares[0], slice(place, place + 1))[0], there)
            kept, first = kept[:, low - first :].copy(), low


def _resampled(part: Float32, shares: Sequence[NDArray[np.float64]]) -> Float32:
    found = []
    for channel in part:
        for axis in np.argsort([len(m) / m.shape[1] for m in shares]):
            channel = along(np.ascontiguousarray(channel), shares[axis], int(axis))
        found.append(channel)
    return np.stack(found)
