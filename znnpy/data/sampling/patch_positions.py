"""Finds the valid patch positions in a scene and the voxels that patches of all nodes read there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from znnpy.data.samples.image_labels import OneEach, stored
from znnpy.data.sampling.position_index import (
    NO_FLIPS,
    Box,
    Flips,
    Range,
    box_in,
    minus,
    number_of,
    plus,
)
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.scene import Scene
from znnpy.data.volume import Triple, Volume, clipped, mirrored
from znnpy.errors import ShapeError

Possible = Callable[[Mapping[str, Triple]], Mapping[str, Triple]]
"""Returns, for shapes by output, the largest possible shapes that are no larger, if there are any."""


class Placing:
    """The patches of all nodes, and where each lies in the first input's, whose corner is their position.

    A position is valid if all output patches lie inside their labels and all input patches inside their
    images; with `mirror` if all output patches lie inside the images.
    """

    def __init__(
        self,
        inputs: Mapping[str, InputPatch],
        outputs: Mapping[str, OutputPatch],
        *,
        mirror: bool,
        possible: Possible,
    ) -> None:
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.frame = next(iter(self.inputs.values())).shape
        self.boxes = self._boxes()
        self._mirror, self._possible = mirror, possible

    @property
    def sizes(self) -> list[Triple]:
        """Return the extents of patches along z, y, x, which must be equal on axes that are swapped."""
        boxes = self.boxes.values()
        lengths = [self.frame, *(b.lower for b in boxes), *(b.extent for b in boxes)]
        return [*lengths, *(output.stride for output in self.outputs.values())]

    def lower(
        self, scene: Scene, node: str, volume: Volume, position: Triple, flips: Flips = NO_FLIPS
    ) -> Triple:
        """Return where a node's box at a position begins in a volume; it may lie outside."""
        box = self.boxes[node]
        return minus(box.placed(position, self.frame, flips), scene.corner(volume))

    def covered(
        self,
        scene: Scene,
        node: str,
        volume: Volume,
        positions: Range,
        flips: Flips = NO_FLIPS,
    ) -> Range:
        """Return the range that a node's boxes at some positions cover in a volume; it may leave it."""
        corner = scene.corner(volume)
        lower, upper = self.boxes[node].covered(positions, self.frame, flips)
        return minus(lower, corner), minus(upper, corner)

    def regions(
        self, scene: Scene, flips: Flips, positions: Range
    ) -> Iterator[tuple[Volume, Range]]:
        """Yield the voxels that patches at some positions read, by volume as it is in its file; some volumes twice."""
        for node in self.inputs:
            volume = scene.images[node]
            read = self.covered(scene, node, volume, positions, flips)
            yield volume, mirrored(*read, volume.extent)
        for node, output in self.outputs.items():
            margin = output.target.margin
            wide = (margin, margin, margin)
            masks = [scene.masks[node]] if node in scene.masks else []
            for volume in (scene.labels[node], *masks):
                lower, upper = self.covered(scene, node, volume, positions, flips)
                yield _in_file(volume, minus(lower, wide), plus(upper, wide))

    def range(self, scene: Scene, flips: Flips) -> Range:
        """Return the range of valid positions; it may be empty."""
        return self._range(scene, flips, self._mirror)

    def _range(self, scene: Scene, flips: Flips, mirror: bool) -> Range:
        bound = [(node, scene.labels[node]) for node in self.outputs]
        if mirror:  # what outputs show is in the images, though not all that they are made from
            bound += [(node, image) for node in self.outputs for image in scene.images.values()]
        else:
            bound += [(node, scene.images[node]) for node in self.inputs]
        lows, highs = [], []
        for node, volume in bound:
            box = self.boxes[node]
            first = minus(scene.corner(volume), box.placed((0, 0, 0), self.frame, flips))
            lows.append(first)
            highs.append(minus(plus(plus(first, volume.extent), (1, 1, 1)), box.extent))
        lower = (max(c[0] for c in lows), max(c[1] for c in lows), max(c[2] for c in lows))
        upper = (min(c[0] for c in highs), min(c[1] for c in highs), min(c[2] for c in highs))
        return lower, upper

    def refuse_none(self, scene: Scene) -> None:
        """Raise ShapeError, with the sizes that fit, where no position is valid."""
        # Uneven offsets shift the range under flips, each axis by itself.
        ranges = [self.range(scene, (flip, flip, flip)) for flip in (False, True)]
        if min(number_of(*both) for both in ranges) == 0:
            shapes = ", ".join(f"{n} {p.shape}" for n, p in (self.inputs | self.outputs).items())
            labels = ", ".join(_extent(scene, volume) for volume in scene.labels.values())
            raise ShapeError(
                f"{scene.reference.name}: no patch fits into the volume of {scene.reference.extent} voxels "
                f"(z, y, x) and its labels of {labels}; the patches are {shapes}. "
                f"{self._advice(scene, ranges)}"
            )

    def _advice(self, scene: Scene, ranges: list[Range]) -> str:
        """Return the nearest output sizes that fit, given the valid positions of patches that do not."""
        spare = np.min([np.subtract(upper, lower) for lower, upper in ranges], axis=0) - 1
        fitting: Mapping[str, Triple] = {
            node: plus(patch.shape, _whole(np.minimum(0, spare // patch.stride)))
            for node, patch in self.outputs.items()
        }
        mirrored = (self._range(scene, (flip, flip, flip), True) for flip in (False, True))
        helps = min(number_of(*both) for both in mirrored) > 0
        mirror = ", or set data.border: mirror" if helps else ""
        if min(min(shape) for shape in fitting.values()) >= 1:
            fitting = self._possible(fitting)
        if not fitting or min(min(shape) for shape in fitting.values()) < 1:
            return f"No output fits; take a larger volume or a smaller network{mirror}"
        sizes = ", ".join(f"{node} {shape}" for node, shape in fitting.items())
        return f"Lower training.output_shape (the largest that fits: {sizes}){mirror}"

    def _boxes(self) -> dict[str, Box]:
        boxes = {n: box_in(self.frame, p.shape, p.offset) for n, p in self.inputs.items()}
        for node, patch in self.outputs.items():
            z, y, x = ((n - 1) * s + 1 for n, s in zip(patch.shape, patch.stride, strict=True))
            boxes[node] = box_in(self.frame, (z, y, x), patch.offset)
        return boxes


def mask_shift(scene: Scene, node: str) -> Triple:
    """Return the shift from a node's labels to its mask: voxel v of the labels is voxel v + shift of the mask."""
    if node not in scene.masks:
        return (0, 0, 0)
    return minus(scene.corner(scene.labels[node]), scene.corner(scene.masks[node]))


def _extent(scene: Scene, volume: Volume) -> str:
    """Return as text how large a volume is, and where it lies if that is elsewhere than the first image."""
    corner = scene.corner(volume)
    return f"{volume.extent} from voxel {corner} on" if any(corner) else str(volume.extent)


def _in_file(volume: Volume, lower: Triple, upper: Triple) -> tuple[Volume, Range]:
    """Return a volume as it is in its file, and the part of a region inside it: at least one voxel."""
    last = minus(volume.extent, (1, 1, 1))
    start, stop = clipped(lower, last), plus(clipped(minus(upper, (1, 1, 1)), last), (1, 1, 1))
    if isinstance(volume, OneEach):
        return stored(volume), ((start[0], 0, 0), (stop[0], 1, 1))
    return volume, (start, stop)


def _whole(sizes: NDArray[np.int64]) -> Triple:
    z, y, x = sizes.tolist()
    return z, y, x
