"""Dense prediction of any region of a volume from patches with their halo, remembering patches that blocks share.

`VolumePrediction` reads, normalises, runs the network and joins patches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from znnpy.data.class_labels import Numbering
from znnpy.data.scene import Scene
from znnpy.data.values.scaling import Normalisation, Planes
from znnpy.data.volume import Array, Triple, mirror_read, mirrored_indices
from znnpy.engine.layers.probabilities import probabilities
from znnpy.errors import PredictionError
from znnpy.geometry.shape_inference import Geometry
from znnpy.infer.blending import Joined
from znnpy.infer.blocks import Field, Region, input_region, sub, triple
from znnpy.infer.grid import Grid
from znnpy.infer.kept import Kept
from znnpy.infer.parallel import Parts, whole_part
from znnpy.infer.sliding_window import Windows
from znnpy.infer.together import AHEAD, Together, groups
from znnpy.learning.readings import Reading
from znnpy.network.types import Network

Floats = npt.NDArray[np.float32]
FLOAT32 = np.dtype(np.float32)
Progress = Callable[[int, int], None]
"""Called with (patches done, patches in all)."""


class Predictor(Protocol):
    """The parts of a model that prediction uses; `znnpy.Model` has them."""

    @property
    def network(self) -> Network:
        """The network."""

    @property
    def geometry(self) -> Geometry:
        """The shapes for one patch."""

    def staged(self) -> Mapping[str, Floats]:
        """Return the buffers for the inputs of one patch, (1, channel, z, y, x) by node."""

    def run(self) -> Mapping[str, Floats]:
        """Return output values (1, channel, z, y, x) by node for what is staged; valid until the next call."""


@dataclass(frozen=True)
class Finish:
    """The conversion of output values (channel, z, y, x): to probabilities as `reading` says, or none.

    `flips` takes the mean over all mirror images of the input (test-time augmentation). uint8 holds 0..255 for
    0..1, rounded. With a `numbering` they become class numbers, one channel.
    """

    reading: Reading | None = None
    dtype: np.dtype[Any] = FLOAT32
    flips: bool = False
    numbering: Numbering | None = None

    def written(self, channels: int) -> int:
        """Return the number of channels that are written of an output."""
        return channels if self.numbering is None else 1

    def activated(self, values: Floats, parts: Parts = whole_part) -> Floats:
        """Return new float32 values (channel, z, y, x) to average or to keep; PredictionError if any is not finite."""
        found, odd = np.empty(values.shape, np.float32), list[int]()

        def part(first: int, last: int) -> None:
            some, here = values[:, first:last], found[:, first:last]
            # The least and the largest value show NaN and infinity without an array of truth
            # values.
            if first < last and not np.isfinite([some.min(), some.max()]).all():
                odd.append(first)
                return
            if self.reading is None:
                here[...] = some
            else:
                probabilities(self.reading, some, here)

        parts(part, values.shape[1])
        if odd:
            raise PredictionError(
                "the network predicts values that are NaN or infinite: its weights have grown too large (log.jsonl of "
                "the run has the losses), or the input is not like the one that it was trained on"
            )
        return found

    def encoded(self, found: Floats) -> Array:
        """Return the values in the dtype that is written; `found` may be changed."""
        if self.numbering is not None:
            return self.numbering.labels(found)[None].astype(self.dtype, copy=False)
        if self.dtype != np.uint8:
            return found.astype(self.dtype, copy=False)
        # In place: an output block may take gigabytes.
        np.rint(np.multiply(found, 255, out=found), out=found)
        return np.clip(found, 0, 255, out=found).astype(np.uint8)


@dataclass(frozen=True)
class Input:
    """Voxels as stored (C, z, y, x) by input node, for the patches that span a region.

    `mask`: which voxels of the region are wanted; None: all. Empty `arrays`: none is wanted.
    """

    region: Region
    span: Region
    arrays: Mapping[str, Array]
    mask: npt.NDArray[np.bool_] | None = None


class VolumePrediction:
    """Predicts regions of one field of a scene with one model.

    Values depend on the field and the model's patch, not on the regions asked for. `read` may run
    in one thread while `compute` runs in another. `scene` and `model` stay the caller's. `kept`
    patches that reach over a computed region are remembered for its neighbours. `parts` may divide
    the work around the network's runs among several threads. What lies outside the volume is mirrored; for
    windows, unless `mirror`, it is 0 after normalisation. `together` computes several patches of `whole` at once.
    """

    def __init__(
        self,
        model: Predictor,
        scene: Scene,
        field: Field,
        norms: Mapping[str, Normalisation],
        finish: Finish | None = None,
        kept: int = 0,
        grid: Grid | Windows | None = None,
        parts: Parts = whole_part,
        mirror: bool = True,
        together: Together | None = None,
    ) -> None:
        self.field, self.finish = field, finish or Finish()
        self.grid = grid or Grid.of(model.geometry)
        # MONAI and nnU-Net surround windows by zeros; patches that are exact see no border, or a
        # mirrored one.
        self._zeros = self.grid.blends and not mirror
        self._model, self._scene, self._norms = model, scene, norms
        self._names = [node.name for node in model.network.inputs]
        self._outputs = {node.name: node.channels for node in model.network.outputs}
        self._written = {name: self.finish.written(n) for name, n in self._outputs.items()}
        self._kept = Kept(kept)
        self._parts = parts
        self._together, self._ahead = together, dict[Triple, dict[str, Array]]()

    def read(self, region: Region) -> Input:
        """Read what the patches of a region need, mirrored outside the volume.

        Raises ChangedError when a file is no longer the one that was opened.
        """
        # Verified after reading: a file that changes while it is read would leave a block of both.
        found = self._read(region)
        self._scene.verify()
        return found

    def _read(self, region: Region) -> Input:
        mask = masked(self._scene, self.field, region)
        if mask is not None and not mask.any():
            return Input(region, region, {}, mask)
        span = self.grid.span(region)
        arrays = {}
        for name in self._names:
            wanted = self._region(name, span)
            volume, finite = self._scene.images[name], not self._norms[name].replace
            arrays[name] = mirror_read(volume, wanted.lower, wanted.upper, finite=finite)
        return Input(region, span, arrays, mask)

    def compute(self, given: Input) -> dict[str, Array]:
        """Return finished values (channel, z, y, x) of a region by output node; read only."""
        region, mask, blends = given.region, given.mask, self.grid.blends
        # The usual case, a block of one patch: its values are handed on without a copy.
        if mask is None and not blends and self.grid.count(region) == 1:
            (patch,) = self.grid.meeting(region)
            here = (slice(None), *region.slices(patch.lower))
            return {name: values[here] for name, values in self._patch(patch, given).items()}
        whole = self._joined(given).taken()
        if blends:
            # Windows are averaged in float32 and rounded once, at the end.
            whole = {name: self.finish.encoded(values) for name, values in whole.items()}
        if mask is not None:
            for values in whole.values():
                # After patches are joined: values must not depend on which patches a mask spares.
                values[:, ~mask] = 0
        return whole

    def _joined(self, given: Input) -> Joined:
        """Return the joined patches of a region that hold wanted voxels."""
        region, dtype = given.region, self.finish.dtype
        # Windows are averaged before they become labels, patches are labels already.
        kept = self._outputs if self.grid.blends else self._written
        joined = self.grid.joined(region, kept, dtype, self._parts)
        for patch in self._wanted(given):
            joined.add(patch, self._patch(patch, given))
        return joined

    def region(self, region: Region) -> dict[str, Array]:
        """Read and compute one region."""
        return self.compute(self.read(region))

    def whole(self, progress: Progress | None = None) -> dict[str, Array]:
        """Return all output values in memory, (channel, z, y, x) by output node; reads piece by piece."""
        everything = Region((0, 0, 0), self.field.shape)
        shape = self.field.shape
        whole = {
            name: np.empty((channels, *shape), self.finish.dtype)
            for name, channels in self._written.items()
        }
        pieces = self.grid.pieces(everything)
        done, several = 0, self._together and not self.finish.flips
        for some in groups(pieces, AHEAD * self._together.size if self._together else 1):
            inputs = [self.read(piece.within(everything)) for piece in some]
            if several:
                self._compute_ahead(inputs)
            for given in inputs:
                for name, values in self.compute(given).items():
                    whole[name][:, *given.region.slices()] = values
                done += 1
                if progress:
                    progress(done, len(pieces))
        return whole

    def _compute_ahead(self, inputs: Sequence[Input]) -> None:
        """Compute together all patches that these inputs want, and that are not remembered."""
        assert self._together is not None
        wanted = {
            patch.lower: (patch, given)
            for given in inputs
            for patch in self._wanted(given)
            if patch not in self._kept
        }
        rooms, size = self._model.staged(), self._together.size
        for some in groups(wanted.values(), size):
            images = {name: np.zeros((size, *it.shape[1:]), it.dtype) for name, it in rooms.items()}
            for number, (patch, given) in enumerate(some):
                self._fill({name: it[number] for name, it in images.items()}, patch, given)
            found = self._together(images)
            for number, (patch, _) in enumerate(some):
                values = {name: self.finish.activated(it[number]) for name, it in found.items()}
                self._ahead[patch.lower] = self._finished(values)

    def _wanted(self, given: Input) -> list[Region]:
        """Return the patches of a region that hold wanted voxels."""
        region, mask = given.region, given.mask
        return [
            patch
            for patch in (self.grid.meeting(region) if given.arrays else ())
            if mask is None or mask[patch.within(region).slices(region.lower)].any()
        ]

    def _patch(self, patch: Region, given: Input) -> dict[str, Array]:
        # Taken out and put back: its next use is another one now.
        known = self._kept.take(patch)
        if known is None:
            known = self._ahead.pop(patch.lower, None)
        values = known if known is not None else self._computed(patch, given)
        self._kept.keep(patch, values, given.region, Region((0, 0, 0), self.field.shape))
        return values

    def _computed(self, patch: Region, given: Input) -> dict[str, Array]:
        """Return one patch by the network, or the mean over its mirror images in a fixed order."""
        flips = self._flips() if self.finish.flips else [()]
        total: dict[str, Floats] = {}
        for axes in flips:
            for name, values in self._forward(patch, given, axes).items():
                found = self.finish.activated(values, self._parts)
                if name in total:
                    # In the order of `_flips`, so that sums have the same bits everywhere.
                    total[name] += np.flip(found, axes)
                else:
                    total[name] = found
        if len(flips) > 1:
            for values in total.values():
                values *= np.float32(1 / len(flips))
        return self._finished(total)

    def _finished(self, values: dict[str, Floats]) -> dict[str, Array]:
        if self.grid.blends:
            return dict(values)
        return {name: self.finish.encoded(each) for name, each in values.items()}

    def _forward(self, patch: Region, given: Input, axes: tuple[int, ...]) -> dict[str, Floats]:
        rooms = {name: room[0] for name, room in self._model.staged().items()}
        self._fill(rooms, patch, given, axes)
        return {name: values[0] for name, values in self._model.run().items()}

    def _fill(
        self, rooms: Mapping[str, Floats], patch: Region, given: Input, axes: tuple[int, ...] = ()
    ) -> None:
        """Set inputs (channel, z, y, x) to what a patch sees, mirrored along axes of these."""
        for name, room in rooms.items():
            raw, planes = np.flip(self._seen(name, patch, given), axes), self._planes(name, patch)
            self._stage(raw, name, room, planes[::-1] if 1 in axes else planes)
            if self._zeros:
                self._clear(np.flip(room, axes), self._region(name, patch), name)

    def _clear(self, room: Floats, seen: Region, name: str) -> None:
        """Set to 0 what `seen` has outside the volume."""
        inside = seen.within(Region((0, 0, 0), self._scene.images[name].extent))
        for axis, here in enumerate(inside.slices(seen.lower), start=1):
            along = np.moveaxis(room, axis, 0)
            along[: here.start] = 0
            along[here.stop :] = 0

    def _stage(self, raw: Array, name: str, room: Floats, planes: Planes) -> None:
        def part(first: int, last: int) -> None:
            here = slice(first, last)
            self._norms[name].apply(raw[:, here], room[:, here], planes[here])

        self._parts(part, raw.shape[1])

    def _planes(self, name: str, patch: Region) -> Planes:
        """Return the slices of the volume that an input of a patch holds."""
        seen, depth = self._region(name, patch), self._scene.images[name].extent[0]
        return mirrored_indices(seen.lower[0], seen.upper[0], depth)

    def _flips(self) -> list[tuple[int, ...]]:
        """Return the sets of axes to mirror, without axes along which the network sees a single voxel."""
        views = self._model.geometry.fields_of_view.values()
        # Axis 0 is the channel.
        axes = [1 + axis for axis in range(3) if max(view[axis] for view in views) > 1]
        return [s for count in range(len(axes) + 1) for s in itertools.combinations(axes, count)]

    def _seen(self, name: str, patch: Region, given: Input) -> Array:
        first = self._region(name, given.span)
        return given.arrays[name][:, *self._region(name, patch).slices(first.lower)]

    def _region(self, name: str, patches: Region) -> Region:
        """Return the input region that patches which fill a region need."""
        return input_region(self.field, self._model.geometry, name, patches, self.grid.size)


def masked(scene: Scene, field: Field, region: Region) -> npt.NDArray[np.bool_] | None:
    """Return which voxels (z, y, x) of a region the scene's mask wants, none outside the mask; None without a mask."""
    volume = next(iter(scene.masks.values()), None)
    if volume is None:
        return None
    ends = zip(field.first, region.lower, region.upper, field.stride, strict=True)
    bounds = [(first + a * step, first + (b - 1) * step + 1) for first, a, b, step in ends]
    seen = Region(triple(a for a, _ in bounds), triple(b for _, b in bounds))
    seen = seen.moved(sub((0, 0, 0), scene.corner(volume)))
    inside = seen.within(Region((0, 0, 0), volume.extent))
    found = np.zeros(seen.shape, bool)
    if min(inside.shape) > 0:
        found[inside.slices(seen.lower)] = volume.read(inside.lower, inside.upper)[0] != 0
    down, across, along = (slice(None, None, step) for step in field.stride)
    return found[down, across, along]
