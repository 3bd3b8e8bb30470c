"""Foreground oversampling: patches centred on a voxel of a drawn class, whose voxels are counted block by block.

Nothing is kept of a voxel: the counts of small blocks tell in which one the voxel of a number lies, and that block is
read again when it is drawn, so memory is bounded and volumes may be larger than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.data.samples.image_labels import OneEach
from znnpy.data.sampling.label_checks import read_counted
from znnpy.data.sampling.patch_positions import Placing, mask_shift
from znnpy.data.sampling.position_index import Flips, Range, minus, plus
from znnpy.data.sampling.sample import OutputPatch
from znnpy.data.sampling.targets import Bool, Target
from znnpy.data.scene import Scene
from znnpy.data.values.moments import pieces
from znnpy.data.volume import Array, Triple, Volume
from znnpy.distributed.work_division import Job, divided
from znnpy.distributed.world import World
from znnpy.errors import VolumeError

SIDE = 64  # voxels of a block along each axis: read again for each patch that is centred in it

Read = tuple[Array, Bool]


def due(index: int, share: float) -> bool:
    """Return whether sample number `index` is centred: so many of any samples in a row, as evenly as can be."""
    return int((index + 1) * share) > int(index * share)


class Block(NamedTuple):
    """A block of a scene's labels, by the voxels lower <= (z, y, x) < upper.

    Those of a `piece` are counted together, as chunks of files may be whole planes.
    """

    scene: int
    piece: int
    lower: Triple
    upper: Triple


@dataclass(frozen=True)
class Sought:
    """A class of an output: in `blocks` lie as many of its voxels as `ends` tells, int64 running totals."""

    node: str
    channel: int
    blocks: tuple[Block, ...]
    ends: NDArray[np.int64]


class Foreground:
    """The classes that patches are centred on: each is drawn as often, and of its voxels each.

    Of the labels' voxels those count that patches reach, whichever way they are turned.
    """

    def __init__(self, placing: Placing, sought: Sequence[Sought]) -> None:
        self._placing, self.sought = placing, tuple(sought)

    @classmethod
    def counted(
        cls, scenes: Sequence[Scene], placing: Placing, flips: Sequence[Flips], world: World
    ) -> Foreground:
        """Count the voxels of all classes of all scenes, each volume on one of the ranks.

        Raises VolumeError where there is none.
        """
        jobs: dict[tuple[int, str], tuple[list[Block], Job]] = {}
        for number, scene in enumerate(scenes):
            for node, output in placing.outputs.items():
                if output.target.values:
                    continue
                inside = _reached(placing, scene, node, flips)
                blocks = list(_blocks(number, scene.labels[node], inside))
                jobs[number, node] = blocks, partial(_counts, scene, node, output.target, blocks)
        named = {
            f"{scenes[number].labels[node].name} ({number} of {node}, foreground)": job
            for (number, node), (_, job) in jobs.items()
        }
        counts = dict(zip(jobs, divided(world, named).values(), strict=True))
        sought = [
            found
            for node in placing.outputs
            for found in _classes(
                node, [(jobs[key][0], counts[key]) for key in jobs if key[1] == node]
            )
        ]
        if not sought:
            names = ", ".join(dict.fromkeys(scene.reference.name for scene in scenes))
            raise VolumeError(
                f"training.oversample_foreground: no voxel of the labels of {names} that patches reach is foreground; "
                "leave it out, or look at the labels and data.target"
            )
        return cls(placing, sought)

    def draw(
        self, random: np.random.Generator, scenes: Sequence[Scene], flips: Flips
    ) -> tuple[int, Triple]:
        """Return scene and position of a patch whose output is centred on a drawn voxel, as far as volumes reach."""
        chosen = self.sought[int(random.integers(len(self.sought)))]
        place = int(random.integers(chosen.ends[-1]))
        number = int(np.searchsorted(chosen.ends, place, side="right"))
        block = chosen.blocks[number]
        scene, node, target = scenes[block.scene], chosen.node, self._output(chosen.node).target
        read = _read(scene, node, target, block.lower, block.upper)
        marked = _marked(scene, node, target, read)[chosen.channel]
        before = int(chosen.ends[number - 1]) if number else 0
        z, y, x = np.unravel_index(np.flatnonzero(marked)[place - before], marked.shape)
        voxel = plus(block.lower, (int(z), int(y), int(x)))
        return block.scene, self.position(scene, node, voxel, flips)

    def position(self, scene: Scene, node: str, voxel: Triple, flips: Flips) -> Triple:
        """Return the valid position whose box of an output has a voxel of its labels next to its middle."""
        output = self._output(node)
        z, y, x = (size // 2 * step for size, step in zip(output.shape, output.stride, strict=True))
        first = self._placing.lower(scene, node, scene.labels[node], (0, 0, 0), flips)
        wanted = minus(minus(voxel, (z, y, x)), first)
        lower, upper = self._placing.range(scene, flips)
        a, b, c = (
            min(max(at, low), high - 1) for at, low, high in zip(wanted, lower, upper, strict=True)
        )
        return (a, b, c)

    def _output(self, node: str) -> OutputPatch:
        return self._placing.outputs[node]


def _reached(placing: Placing, scene: Scene, node: str, flips: Sequence[Flips]) -> Range:
    """Return the voxels of a node's labels that some patch has, whichever of the flips is drawn."""
    labels = scene.labels[node]
    found = [placing.covered(scene, node, labels, placing.range(scene, it), it) for it in flips]
    lower = tuple(max(low[axis] for low, _ in found) for axis in range(3))
    upper = tuple(min(high[axis] for _, high in found) for axis in range(3))
    return (lower[0], lower[1], lower[2]), (upper[0], upper[1], upper[2])


def _blocks(scene: int, labels: Volume, inside: Range) -> Iterator[Block]:
    """Yield the blocks of labels that are counted: of very large ones those of evenly spaced slabs."""
    for piece, (lower, upper) in enumerate(pieces(labels)):
        low = [max(pair) for pair in zip(lower, inside[0], strict=True)]
        high = [min(pair) for pair in zip(upper, inside[1], strict=True)]
        for z in range(low[0], high[0], SIDE):
            for y in range(low[1], high[1], SIDE):
                for x in range(low[2], high[2], SIDE):
                    ends = (min(at + SIDE, end) for at, end in zip((z, y, x), high, strict=True))
                    bottom, down, right = ends
                    yield Block(scene, piece, (z, y, x), (bottom, down, right))


def _counts(scene: Scene, node: str, target: Target, blocks: Sequence[Block]) -> list[list[int]]:
    """Return the voxels of each class in each block."""
    counts, wide = [], 2 * target.margin
    for _, together in groupby(blocks, key=lambda it: it.piece):
        those = list(together)
        corner = those[0].lower
        values, known = _read(scene, node, target, corner, those[-1].upper)
        for block in those:
            z, y, x = (
                slice(low - at, high - at + wide)
                for low, high, at in zip(block.lower, block.upper, corner, strict=True)
            )
            marked = _marked(scene, node, target, (values[:, z, y, x], known[z, y, x]))
            counts.append([int(np.count_nonzero(it)) for it in marked])
    return counts


def _read(scene: Scene, node: str, target: Target, lower: Triple, upper: Triple) -> Read:
    """Read labels and what counts of them, with the margin of the target."""
    labels, mask, shift = scene.labels[node], scene.masks.get(node), mask_shift(scene, node)
    wide = (target.margin, target.margin, target.margin)
    return read_counted(target, labels, mask, minus(lower, wide), plus(upper, wide), shift)


def _marked(scene: Scene, node: str, target: Target, read: Read) -> Bool:
    """Return which voxels that were read, within the margin, are of each class, (classes, z, y, x)."""
    whole, margin = isinstance(scene.labels[node], OneEach), target.margin
    found = target.sought(*target.compute(*read), whole=whole)
    return found[:, *(slice(margin, size - margin) for size in found.shape[1:])]


def _classes(
    node: str, counted: Sequence[tuple[Sequence[Block], Sequence[Sequence[int]]]]
) -> Iterator[Sought]:
    """Yield the classes of a node that have a voxel, from the counts of all scenes."""
    rows = [
        (block, row)
        for blocks, counts in counted
        for block, row in zip(blocks, counts, strict=True)
    ]
    for channel in range(max((len(row) for _, row in rows), default=0)):
        there = [(block, row[channel]) for block, row in rows if row[channel]]
        if there:
            ends = np.cumsum([count for _, count in there], dtype=np.int64)
            yield Sought(node, channel, tuple(block for block, _ in there), ends)
