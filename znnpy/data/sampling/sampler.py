"""Training patches: sample k depends on the seed and k alone, in whatever order they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.data.samples.each import OneEach, stored
from znnpy.data.sampling.augment import Augmentation, Groups, Turn, draw_order
from znnpy.data.sampling.places import (
    NO_FLIPS,
    Box,
    Flips,
    Places,
    Range,
    box_in,
    hull,
    minus,
    number_of,
    plus,
)
from znnpy.data.sampling.rebalance import (
    ClassCounts,
    Rebalance,
    count_patch,
    count_volume,
    rebalance,
)
from znnpy.data.sampling.shuffle import shuffled
from znnpy.data.sampling.taken import (
    check_kind,
    check_labels,
    read_counted,
    read_taken,
    refuse_untaken,
)
from znnpy.data.sampling.targets import Target
from znnpy.data.scene import Scene
from znnpy.data.values.normalise import Mode, Normalisation, normalisation, unexamined
from znnpy.data.volume import Array, Triple, Volume, clipped, mirror_read, mirrored
from znnpy.errors import ShapeError, VolumeError

Float32 = NDArray[np.float32]
Order = Literal["random", "shuffled"]
# Patches that a mask leaves empty teach nothing; so many in a row mean that the mask is wrong.
ATTEMPTS = 1000


@dataclass(frozen=True)
class InputPatch:
    """Shape z, y, x of an input node's patch; `offset` from the first input's, or centred."""

    shape: Triple
    offset: Triple | None = None


@dataclass(frozen=True)
class OutputPatch:
    """Shape z, y, x of an output node's patch and what it shall show.

    Output voxel i lies at `offset + i * stride` in the first input's patch; centred without offset.
    """

    shape: Triple
    target: Target
    offset: Triple | None = None
    stride: Triple = (1, 1, 1)


@dataclass(frozen=True)
class Patch:
    """One sample: float32 (C, z, y, x) by node, or several; owned by whoever asked for it."""

    images: dict[str, Float32]
    targets: dict[str, Float32]
    weights: dict[str, Float32]


def stacked(patches: Sequence[Patch]) -> Patch:
    """Several samples as one, (number, C, z, y, x) by node."""

    def together(groups: list[dict[str, Float32]]) -> dict[str, Float32]:
        return {node: np.stack([group[node] for group in groups]) for node in groups[0]}

    return Patch(
        together([patch.images for patch in patches]),
        together([patch.targets for patch in patches]),
        together([patch.weights for patch in patches]),
    )


@dataclass(frozen=True)
class Excerpt:
    """Some positions of scene number `scene` by flips, and a scene that has all voxels that patches there read."""

    scene: int
    ranges: Mapping[Flips, Range]
    held: Scene


class Sampler:
    """Draws patches uniformly over all valid positions of all scenes.

    Each by itself (`order` random), or every position once in an epoch, in another order each time
    (shuffled); there, a position where nothing counts gives way to a random one.
    A position is valid if all output patches lie inside their labels and, unless `mirror`, all
    input patches inside their images. `rebalance` as in `znnpy.data.sampling.rebalance`, within each patch or
    over the volume it is from. Images are normalised per volume, `replace` as there.
    `sample` reads the scenes; several threads may call it at once. `possible`: of shapes by output, the largest
    at most as large that there may be, if any. Without `examine` no volume is looked through beforehand, and
    images stay as they are. Raises VolumeError and ShapeError for what does not fit.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        inputs: Mapping[str, InputPatch],
        outputs: Mapping[str, OutputPatch],
        *,
        augmentation: Augmentation | None = None,
        order: Order = "random",
        rebalance: Rebalance = "none",
        normalise: Mode = "mean_std",
        replace: bool = False,
        mirror: bool = False,
        seed: int = 0,
        examine: bool = True,
        possible: Callable[[Mapping[str, Triple]], Mapping[str, Triple]] = dict,
    ) -> None:
        if not scenes:
            raise VolumeError("there is no volume to take patches from")
        if not 0 <= seed < 2**64:
            raise ValueError(f"the seed must lie in 0 .. 2**64 - 1, got {seed}")
        self._scenes, self._inputs, self._outputs = tuple(scenes), dict(inputs), dict(outputs)
        self._augmentation = augmentation or Augmentation("", "none")
        self._rebalance: Rebalance = rebalance
        self._mirror, self._seed, self._order, self._possible = mirror, seed, order, possible
        self._turn: Callable[[int], int] = lambda index: index
        self._key, self._where = seed, ""
        self._frame = next(iter(self._inputs.values())).shape
        self._boxes = self._place()
        for scene in self._scenes:
            self._check(scene, examine=examine)
        self._places = {flips: self._all_places(flips) for flips in self._augmentation.all_flips}
        self._refuse_uneven()
        self._norms = [
            {
                node: normalisation(v, normalise, replace=replace)
                if examine
                else unexamined(v, replace=replace)
                for node, v in scene.images.items()
            }
            for scene in self._scenes
        ]
        self._groups = [self._swappable(scene) for scene in self._scenes]
        counting = rebalance == "volume"
        self._counts = [self._count(scene) if counting else {} for scene in self._scenes]

    @property
    def normalisations(self) -> Sequence[Mapping[str, Normalisation]]:
        """How each scene's images are normalised, by input node."""
        return self._norms

    @property
    def input_shapes(self) -> dict[str, Triple]:
        """Shape z, y, x of the patches by input node."""
        return {node: patch.shape for node, patch in self._inputs.items()}

    @property
    def positions(self) -> int:
        """Number of valid positions, unflipped."""
        return self._places[NO_FLIPS].ends[-1]

    @property
    def scenes(self) -> Sequence[Scene]:
        """Where patches come from."""
        return self._scenes

    def ranges(self, number: int) -> dict[Flips, Range]:
        """Valid positions of a scene by flips."""
        return {flips: places.ranges[number] for flips, places in self._places.items()}

    def regions(self, number: int, ranges: Mapping[Flips, Range]) -> dict[Volume, Range]:
        """Voxels that patches at some positions of a scene read, by volume as it is in its file."""
        found: dict[Volume, Range] = {}
        for flips, positions in ranges.items():
            for volume, region in self._regions(self._scenes[number], flips, positions):
                found[volume] = hull(found.get(volume, region), region)
        return found

    @property
    def selective(self) -> bool:
        """Whether voxels may not count: they are masked, or have a label to ignore."""
        ignored = any(output.target.ignore is not None for output in self._outputs.values())
        return ignored or any(scene.masks for scene in self._scenes)

    def counted(self, number: int, positions: Range) -> float:
        """Which share of the voxels counts that outputs at some positions of a scene show; reads them."""
        scene, shares = self._scenes[number], []
        for node, output in self._outputs.items():
            labels, mask = scene.labels[node], scene.masks.get(node)
            lower, upper = self._covered(scene, node, labels, positions)
            shift = _mask_shift(scene, node)
            known = read_counted(output.target, labels, mask, lower, upper, shift)[1]
            shares.append(float(known.mean()))
        return max(shares)

    def over(
        self,
        excerpts: Sequence[Excerpt],
        turn: Callable[[int], int] | None = None,
        key: int = 0,
        where: str = "",
    ) -> Sampler:
        """A sampler of some of this one's positions, which reads the excerpts alone.

        Images are normalised, and voxels weighed, as those of the whole scenes. With order shuffled sample
        `index` is the one of number `turn(index)` in an order of the seed `key`. `where` says for people, after
        what it is that is lacking, which positions these are.
        """
        found, numbers = copy(self), [it.scene for it in excerpts]
        found._scenes = tuple(it.held for it in excerpts)
        found._places = {f: Places.of([it.ranges[f] for it in excerpts]) for f in self._places}
        found._norms = [self._norms[number] for number in numbers]
        found._groups = [self._groups[number] for number in numbers]
        found._counts = [self._counts[number] for number in numbers]
        found._turn, found._key = turn or self._turn, key if turn else self._key
        found._where = where
        return found

    def sample(self, index: int) -> Patch:
        """Sample number `index` (0, 1, ...); the same for the same seed and scenes, bit by bit."""
        # The draws of a sample count up the low words, so samples never share a number.
        random = np.random.Generator(np.random.Philox(key=self._seed, counter=[0, 0, 0, index]))
        for attempt in range(ATTEMPTS):
            number, position, turn = self._draw(random, index if attempt == 0 else None)
            targets, weights = self._targets(number, position, turn)
            if any(weight.any() for weight in weights.values()):
                return Patch(self._images(number, position, turn), targets, weights)
        names = dict.fromkeys(scene.reference.name for scene in self._scenes)
        raise VolumeError(
            f"{ATTEMPTS} patches in a row hold no voxel that counts; the masks (or the labels to "
            f"ignore) of {', '.join(names)} leave too little{self._where}"
        )

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Several samples by number, stacked: float32 (number, C, z, y, x) by node.

        Slices that are turned by nothing and counted whole, as images with a label each, are made at once:
        a tenth of the time, and the same bits.
        """
        if self._slices:
            return self._sliced(numbers)
        return stacked([self.sample(number) for number in numbers])

    @property
    def _slices(self) -> bool:
        """Whether samples are single slices, of which each is as it lies in the volume and counts whole."""
        boxes = self._boxes.values()
        outputs = self._outputs.values()
        return (
            self._order == "shuffled"
            and self._rebalance == "none"
            and len(self._places) == 1
            and not any(self._groups)
            and not any(scene.masks for scene in self._scenes)
            and all(box.extent[0] == 1 for box in boxes)
            and all(o.target.margin == 0 and o.target.ignore is None for o in outputs)
        )

    def _sliced(self, numbers: Sequence[int]) -> Patch:
        places = self._places[NO_FLIPS]
        drawn = [places.at(self._shuffled(k, places)) for k in numbers]
        found = Patch({}, {}, {})
        for scene in {scene for scene, _ in drawn}:
            where = [i for i, (number, _) in enumerate(drawn) if number == scene]
            self._add_slices(found, scene, [drawn[i][1] for i in where], where, len(drawn))
        return found

    def _add_slices(
        self, found: Patch, number: int, positions: list[Triple], where: list[int], count: int
    ) -> None:
        """Put the slices at some positions of a scene to their places among `count` samples."""
        scene = self._scenes[number]
        for node in self._inputs:
            norm = self._norms[number][node]
            volume = scene.images[node]
            lowers = self._corners(scene, volume, node, positions)
            raw = self._planes(volume, node, lowers, finite=not norm.replace)
            _place(found.images, node, norm.apply(raw), where, count)
        for node, output in self._outputs.items():
            volume = scene.labels[node]
            lowers = self._corners(scene, volume, node, positions)
            labels = self._planes(volume, node, lowers, finite=False)
            known = np.ones(labels.shape[1:], np.bool_)
            if not output.target.takes_all(labels.dtype):
                for i, lower in enumerate(lowers):
                    own = slice(i, i + 1)
                    refuse_untaken(output.target, volume.name, labels[:, own], known[own], lower)
            rows, columns = (slice(None, None, step) for step in output.stride[1:])
            made = output.target.compute(labels[:, :, rows, columns], known[:, rows, columns])
            for group, values in zip((found.targets, found.weights), made, strict=True):
                _place(group, node, values, where, count)

    def _corners(
        self, scene: Scene, volume: Volume, node: str, positions: list[Triple]
    ) -> list[Triple]:
        """Where in a volume a node's boxes at some positions begin."""
        box, corner = self._boxes[node], scene.corner(volume)
        return [
            minus(box.placed(position, self._frame, NO_FLIPS), corner) for position in positions
        ]

    def _planes(self, volume: Volume, node: str, lowers: list[Triple], *, finite: bool) -> Array:
        """A node's slices of a volume that begin there, (C, number, y, x)."""
        extent = self._boxes[node].extent
        planes = [mirror_read(volume, a, plus(a, extent), finite=finite) for a in lowers]
        return np.concatenate(planes, axis=1)

    def verify(self) -> None:
        """ChangedError unless all samples so far are of the files that were opened."""
        for scene in self._scenes:
            scene.verify()

    def _draw(self, random: np.random.Generator, index: int | None) -> tuple[int, Triple, Turn]:
        """Scene, position and turn; `index` is the sample's number unless it was drawn before."""
        flips = self._augmentation.draw_flips(random)
        places = self._places[flips]
        if self._order == "shuffled" and index is not None:
            drawn = self._shuffled(index, places)
        else:
            drawn = int(random.integers(places.ends[-1]))
        number, position = places.at(drawn)
        return number, position, Turn(flips, draw_order(self._groups[number], random))

    def _shuffled(self, index: int, places: Places) -> int:
        return shuffled(self._turn(index), places.ends[-1], self._key)

    def _regions(
        self, scene: Scene, flips: Flips, positions: Range
    ) -> Iterator[tuple[Volume, Range]]:
        for node in self._inputs:
            volume = scene.images[node]
            read = self._covered(scene, node, volume, positions, flips)
            yield volume, mirrored(*read, volume.extent)
        for node, output in self._outputs.items():
            margin = output.target.margin
            wide = (margin, margin, margin)
            masks = [scene.masks[node]] if node in scene.masks else []
            for volume in (scene.labels[node], *masks):
                lower, upper = self._covered(scene, node, volume, positions, flips)
                yield _in_file(volume, minus(lower, wide), plus(upper, wide))

    def _covered(
        self,
        scene: Scene,
        node: str,
        volume: Volume,
        positions: Range,
        flips: Flips = NO_FLIPS,
    ) -> Range:
        """Where in a volume a node's boxes at some positions lie; they may leave it."""
        corner = scene.corner(volume)
        lower, upper = self._boxes[node].covered(positions, self._frame, flips)
        return minus(lower, corner), minus(upper, corner)

    def _all_places(self, flips: Flips) -> Places:
        return Places.of([self._range(scene, flips) for scene in self._scenes])

    def _refuse_uneven(self) -> None:
        numbers = {places.ends for places in self._places.values()}
        if self._order == "shuffled" and len(numbers) > 1:
            raise VolumeError(
                "training.order: shuffled takes each position once, but flipped patches have others, as "
                "volumes and labels do not cover the same place; set augment.enabled: false"
            )

    def _images(self, number: int, position: Triple, turn: Turn) -> dict[str, Float32]:
        scene, images = self._scenes[number], {}
        for node in self._inputs:
            volume, box = scene.images[node], self._boxes[node]
            lower = minus(box.placed(position, self._frame, turn.flips), scene.corner(volume))
            norm = self._norms[number][node]
            upper = plus(lower, box.extent)
            raw = mirror_read(volume, lower, upper, finite=not norm.replace)
            images[node] = norm.apply(turn.apply(raw))
        return images

    def _targets(
        self, number: int, position: Triple, turn: Turn
    ) -> tuple[dict[str, Float32], dict[str, Float32]]:
        targets, weights = {}, {}
        for node in self._outputs:
            value, weight = self._target(node, self._scenes[number], position, turn)
            if self._rebalance != "none":
                counts = self._counts[number].get(node) or count_patch(value, weight)
                weight = rebalance(value, weight, counts)
            targets[node], weights[node] = value, weight
        return targets, weights

    def _target(
        self, node: str, scene: Scene, position: Triple, turn: Turn
    ) -> tuple[Float32, Float32]:
        """Read with a margin, turn, make the target, cut the margin off, take every stride-th."""
        output, box = self._outputs[node], self._boxes[node]
        margin = output.target.margin
        corner = scene.corner(scene.labels[node])
        lower = minus(box.placed(position, self._frame, turn.flips), corner)
        upper = plus(lower, box.extent)
        wide = (margin, margin, margin)
        labels, known = read_taken(
            output.target,
            scene.labels[node],
            scene.masks.get(node),
            minus(lower, wide),
            plus(upper, wide),
            _mask_shift(scene, node),
        )
        value, weight = output.target.compute(turn.apply(labels), turn.apply(known))
        cut = tuple(
            slice(margin, margin + size, step)
            for size, step in zip(box.extent, output.stride, strict=True)
        )
        return np.ascontiguousarray(value[:, *cut]), np.ascontiguousarray(weight[:, *cut])

    def _place(self) -> dict[str, Box]:
        boxes = {n: box_in(self._frame, p.shape, p.offset) for n, p in self._inputs.items()}
        for node, patch in self._outputs.items():
            z, y, x = ((n - 1) * s + 1 for n, s in zip(patch.shape, patch.stride, strict=True))
            boxes[node] = box_in(self._frame, (z, y, x), patch.offset)
        return boxes

    def _range(self, scene: Scene, flips: Flips) -> tuple[Triple, Triple]:
        """Valid positions lower <= p < upper of the first input's corner; may be empty."""
        bound = [scene.labels[node] for node in self._outputs]
        nodes = list(self._outputs)
        if not self._mirror:
            bound += [scene.images[node] for node in self._inputs]
            nodes += list(self._inputs)
        lows, highs = [], []
        for node, volume in zip(nodes, bound, strict=True):
            box = self._boxes[node]
            first = minus(scene.corner(volume), box.placed((0, 0, 0), self._frame, flips))
            lows.append(first)
            highs.append(minus(plus(plus(first, volume.extent), (1, 1, 1)), box.extent))
        lower = (max(c[0] for c in lows), max(c[1] for c in lows), max(c[2] for c in lows))
        upper = (min(c[0] for c in highs), min(c[1] for c in highs), min(c[2] for c in highs))
        return lower, upper

    def _check(self, scene: Scene, *, examine: bool) -> None:
        name = scene.reference.name
        for what, wanted, given in (
            ("an image for input", self._inputs, scene.images),
            ("labels for output", self._outputs, scene.labels),
        ):
            missing = [node for node in wanted if node not in given]
            if missing:
                raise VolumeError(
                    f"{name} comes without {what} {missing[0]!r}; given: {', '.join(given) or 'none'}"
                )
        for node, output in self._outputs.items():
            volume, mask = scene.labels[node], scene.masks.get(node)
            check_kind(output.target, volume)
            if examine:
                check_labels(output.target, volume, mask, _mask_shift(scene, node))
        # Uneven offsets shift the range under flips, each axis by itself.
        ranges = [self._range(scene, (flip, flip, flip)) for flip in (False, True)]
        if min(number_of(*both) for both in ranges) == 0:
            shapes = ", ".join(f"{n} {p.shape}" for n, p in (self._inputs | self._outputs).items())
            labels = ", ".join(str(volume.extent) for volume in scene.labels.values())
            raise ShapeError(
                f"{name}: no patch fits into the volume of {scene.reference.extent} voxels "
                f"(z, y, x) and its labels of {labels}; the patches are {shapes}. "
                f"{self._advice(ranges)}"
            )

    def _advice(self, ranges: list[tuple[Triple, Triple]]) -> str:
        """The nearest output sizes that fit, given the valid positions of patches that do not."""
        spare = np.min([np.subtract(upper, lower) for lower, upper in ranges], axis=0) - 1
        fitting: Mapping[str, Triple] = {
            node: plus(patch.shape, _whole(np.minimum(0, spare // patch.stride)))
            for node, patch in self._outputs.items()
        }
        mirror = "" if self._mirror else ", or set data.border: mirror"
        if min(min(shape) for shape in fitting.values()) >= 1:
            fitting = self._possible(fitting)
        if not fitting or min(min(shape) for shape in fitting.values()) < 1:
            return f"No output fits; take a larger volume or a smaller network{mirror}"
        sizes = ", ".join(f"{node} {shape}" for node, shape in fitting.items())
        return f"Lower training.output_shape (the largest that fits: {sizes}){mirror}"

    def _swappable(self, scene: Scene) -> Groups:
        boxes = self._boxes.values()
        same = [self._frame, *(b.lower for b in boxes), *(b.extent for b in boxes)]
        same += [output.stride for output in self._outputs.values()]
        return self._augmentation.groups(scene.resolution, same, scene.reference.name)

    def _count(self, scene: Scene) -> dict[str, ClassCounts]:
        return {
            node: count_volume(
                scene.labels[node], scene.masks.get(node), output.target, _mask_shift(scene, node)
            )
            for node, output in self._outputs.items()
        }


def _place(
    group: dict[str, Float32], node: str, values: Float32, where: list[int], count: int
) -> None:
    """Put slices (C, number, y, x) to their places in a node's samples, which begin as nothing."""
    channels, _, *plane = values.shape
    if node not in group:
        group[node] = np.empty((count, channels, 1, *plane), np.float32)
    group[node][where] = values.swapaxes(0, 1)[:, :, None]


def _in_file(volume: Volume, lower: Triple, upper: Triple) -> tuple[Volume, Range]:
    """A volume as it is in its file, and what a region, which may leave it, has of that: a voxel at least."""
    last = minus(volume.extent, (1, 1, 1))
    start, stop = clipped(lower, last), plus(clipped(minus(upper, (1, 1, 1)), last), (1, 1, 1))
    if isinstance(volume, OneEach):
        return stored(volume), ((start[0], 0, 0), (stop[0], 1, 1))
    return volume, (start, stop)


def _mask_shift(scene: Scene, node: str) -> Triple:
    if node not in scene.masks:
        return (0, 0, 0)
    return minus(scene.corner(scene.labels[node]), scene.corner(scene.masks[node]))


def _whole(sizes: NDArray[np.int64]) -> Triple:
    z, y, x = sizes.tolist()
    return z, y, x
