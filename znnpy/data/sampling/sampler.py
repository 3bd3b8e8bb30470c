"""Draws training patches at random or shuffled: sample k depends on the seed and k alone, in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from znnpy.data.sampling.augmentation import Augmentation, Turn, draw_order
from znnpy.data.sampling.class_weights import Rebalance, count_patch, rebalance
from znnpy.data.sampling.distortions import Drawn
from znnpy.data.sampling.draws import Key
from znnpy.data.sampling.foreground import Foreground, due
from znnpy.data.sampling.label_checks import read_counted
from znnpy.data.sampling.patch_positions import Placing, Possible, mask_shift
from znnpy.data.sampling.position_index import NO_FLIPS, Flips, Places, Range, hull
from znnpy.data.sampling.sample import Float32, InputPatch, OutputPatch, Patch, stacked
from znnpy.data.sampling.scene_patches import Material, are_slices, check, read_slices
from znnpy.data.sampling.shuffle import shuffled
from znnpy.data.sampling.volume_statistics import as_they_are, examined
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import Mode
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import Triple, Volume
from znnpy.distributed.world import World
from znnpy.errors import VolumeError

Order = Literal["random", "shuffled"]
# Patches that a mask leaves empty teach nothing; so many in a row mean that the mask is wrong.
ATTEMPTS = 1000


@dataclass(frozen=True)
class Excerpt:
    """Some positions of scene number `scene`, by flips, and a scene that has all voxels that patches there read."""

    scene: int
    ranges: Mapping[Flips, Range]
    held: Scene


class Sampler:
    """Draws patches uniformly over all valid positions of all scenes (`Placing`).

    Each patch is drawn independently (`order` random), or every position comes once in an epoch, in another order
    each time (shuffled); there, a position where nothing counts is replaced by a random one. `rebalance` as in
    `znnpy.data.sampling.class_weights`, within each patch or over the volume it is from, but for targets
    without classes (`Target.balanced`). Images are normalised per
    volume, `replace` as there. `sample` reads the scenes; several threads may call it at once. `possible`: returns,
    for shapes by output, the largest possible ones that are no larger. Without `examine` no volume is looked through
    beforehand, and images stay as they are; ranks of a `world`, which all make the same sampler, look through some
    each. `foreground`: the share of the samples that are centred on foreground (`Foreground`), of a random order.
    Raises VolumeError and ShapeError for what does not fit.
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
        possible: Possible = dict,
        world: World | None = None,
        foreground: float = 0.0,
    ) -> None:
        if not scenes:
            raise VolumeError("there is no volume to take patches from")
        if not 0 <= seed < 2**64:
            raise ValueError(f"the seed must lie in 0 .. 2**64 - 1, got {seed}")
        self._placing = placing = Placing(inputs, outputs, mirror=mirror, possible=possible)
        self._augmentation = augmentation or Augmentation("", "none")
        self._rebalance: Rebalance = rebalance
        self._draws, self._order = Key(seed), order
        self._turn: Callable[[int], int] = lambda index: index
        self._key, self._where = seed, ""
        for scene in scenes:
            check(placing, scene)
        self._places = {
            flips: Places.of([placing.range(scene, flips) for scene in scenes])
            for flips in self._augmentation.all_flips
        }
        self._refuse_uneven()
        groups = [
            self._augmentation.groups(it.resolution, placing.sizes, it.reference.name)
            for it in scenes
        ]
        if examine:
            targets = {node: output.target for node, output in placing.outputs.items()}
            counting = rebalance == "volume"
            norms, counts = examined(
                scenes, targets, normalise, world or World(), replace=replace, counting=counting
            )
        else:
            norms, counts = as_they_are(scenes, replace=replace)
        self._material = list(map(Material, scenes, norms, groups, counts))
        self._foreground: Foreground | None = None
        self._share = foreground
        if foreground:
            flips = self._augmentation.all_flips
            self._foreground = Foreground.counted(scenes, placing, flips, world or World())

    @property
    def normalisations(self) -> Sequence[Mapping[str, Normalisation]]:
        """Return how each scene's images are normalised, by input node."""
        return [it.norms for it in self._material]

    @property
    def input_shapes(self) -> dict[str, Triple]:
        """The shape z, y, x of patches by input node."""
        return {node: patch.shape for node, patch in self._placing.inputs.items()}

    @property
    def positions(self) -> int:
        """The number of valid positions, unflipped."""
        return self._places[NO_FLIPS].ends[-1]

    @property
    def scenes(self) -> Sequence[Scene]:
        """The scenes that patches come from."""
        return [it.scene for it in self._material]

    def ranges(self, number: int) -> dict[Flips, Range]:
        """Return the valid positions of a scene by flips."""
        return {flips: places.ranges[number] for flips, places in self._places.items()}

    def regions(self, number: int, ranges: Mapping[Flips, Range]) -> dict[Volume, Range]:
        """Return the voxels that patches at some positions of a scene read, by volume as it is in its file."""
        found: dict[Volume, Range] = {}
        for flips, positions in ranges.items():
            scene = self._material[number].scene
            for volume, region in self._placing.regions(scene, flips, positions):
                found[volume] = hull(found.get(volume, region), region)
        return found

    @property
    def selective(self) -> bool:
        """Whether some voxels may not count: they are masked, or have a label to ignore."""
        outputs = self._placing.outputs.values()
        ignored = any(output.target.selective for output in outputs)
        return ignored or any(scene.masks for scene in self.scenes)

    def counted(self, number: int, positions: Range) -> float:
        """Return the fraction of voxels that count among those that outputs at some positions show; reads them."""
        scene, shares = self._material[number].scene, []
        for node, output in self._placing.outputs.items():
            labels, mask = scene.labels[node], scene.masks.get(node)
            lower, upper = self._placing.covered(scene, node, labels, positions)
            shift = mask_shift(scene, node)
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
        """Return a sampler of some of this one's positions, which reads the excerpts alone.

        Images are normalised, and voxels weighed, as those of the whole scenes. With order shuffled, sample `index` is
        number `turn(index)` in an order of the seed `key`. `where` says in messages which positions these are, after
        what is lacking.
        """
        if self._foreground:
            raise ValueError("foreground is counted over all positions, not some")
        found = copy(self)
        found._places = {f: Places.of([it.ranges[f] for it in excerpts]) for f in self._places}
        found._material = [replace(self._material[it.scene], scene=it.held) for it in excerpts]
        found._turn, found._key = turn or self._turn, key if turn else self._key
        found._where = where
        return found

    def sample(self, index: int) -> Patch:
        """Return sample number `index` (0, 1, ...); the same for the same seed and scenes, bit by bit."""
        random = self._draws.generator(0, index)
        # By draws of its own: positions and turns are those without. Drawn anew with each position, as a warp that
        # reads beside all labels at one does so at many.
        warps = self._draws.generator(1, index)
        for attempt in range(ATTEMPTS):
            number, position, turn = self._draw(random, index if attempt == 0 else None)
            material = self._material[number]
            drawn = self._distorted(material, position, turn, warps)
            targets, weights = self._targets(material, position, turn, drawn)
            if any(weight.any() for weight in weights.values()):
                images = material.images(self._placing, position, turn, drawn)
                return Patch(images, targets, weights)
        names = ", ".join(dict.fromkeys(scene.reference.name for scene in self.scenes))
        moving = self._augmentation.distortions is not None
        moved = (
            ", or what augment moves (rotate, affine, elastic) lies beside them" if moving else ""
        )
        raise VolumeError(
            f"{ATTEMPTS} patches in a row hold no voxel that counts; the masks (or the labels to "
            f"ignore) of {names} leave too little{moved}{self._where}"
        )

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return several samples by number, stacked: float32 (number, C, z, y, x) by node.

        Slices that are not turned and count whole, as images with a label each, are read together: a tenth of the
        time, and the same bits.
        """
        if self._slices:
            places = self._places[NO_FLIPS]
            drawn = [places.at(self._shuffled(number, places)) for number in numbers]
            return read_slices(self._placing, self._material, drawn)
        return stacked([self.sample(number) for number in numbers])

    def _distorted(
        self, material: Material, position: Triple, turn: Turn, random: np.random.Generator
    ) -> Drawn | None:
        """Return how a sample is distorted."""
        settings = self._augmentation.distortions
        if settings is None:
            return None
        node = next(iter(self._placing.inputs))
        scene, extent = material.scene, self._placing.boxes[node].extent
        lower = self._placing.lower(scene, node, scene.reference, position, turn.flips)
        return Drawn.of(settings, random, lower, extent, scene.resolution)

    def verify(self) -> None:
        """Raise ChangedError unless all samples so far are of the files that were opened."""
        for scene in self.scenes:
            scene.verify()

    @property
    def _slices(self) -> bool:
        """Whether samples are single slices, each as it lies in the volume, with every voxel counting."""
        plain = self._order == "shuffled" and self._rebalance == "none" and len(self._places) == 1
        plain = plain and self._augmentation.distortions is None
        return plain and are_slices(self._placing, self._material)

    def _draw(self, random: np.random.Generator, index: int | None) -> tuple[int, Triple, Turn]:
        """Return scene, position and turn; `index` is the sample's number, or None to draw at random."""
        flips = self._augmentation.draw_flips(random)
        places = self._places[flips]
        if self._foreground and index is not None and due(index, self._share):
            # By draws of its own: what else is drawn of this sample stays.
            own = self._draws.generator(2, index)
            number, position = self._foreground.draw(own, self.scenes, flips)
            return number, position, Turn(flips, draw_order(self._material[number].groups, random))
        if self._order == "shuffled" and index is not None:
            drawn = self._shuffled(index, places)
        else:
            drawn = int(random.integers(places.ends[-1]))
        number, position = places.at(drawn)
        return number, position, Turn(flips, draw_order(self._material[number].groups, random))

    def _shuffled(self, index: int, places: Places) -> int:
        return shuffled(self._turn(index), places.ends[-1], self._key)

    def _refuse_uneven(self) -> None:
        numbers = {places.ends for places in self._places.values()}
        if self._order == "shuffled" and len(numbers) > 1:
            raise VolumeError(
                "training.order: shuffled takes each position once, but flipped patches have others, as "
                "volumes and labels do not cover the same place; set augment.enabled: false"
            )

    def _targets(
        self, material: Material, position: Triple, turn: Turn, drawn: Drawn | None
    ) -> tuple[dict[str, Float32], dict[str, Float32]]:
        targets, weights = {}, {}
        for node, output in self._placing.outputs.items():
            value, weight = material.target(self._placing, node, position, turn, drawn)
            if self._rebalance != "none" and output.target.balanced:
                counts = material.counts.get(node) or count_patch(value, weight)
                exclusive = output.target.exclusive
                weight = rebalance(value, weight, counts, exclusive=exclusive)
            targets[node], weights[node] = value, weight
        return targets, weights
