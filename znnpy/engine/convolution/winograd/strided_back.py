"""Tasks of data gradients of strided layers by Winograd's minimal filtering (`znnpy_kernels.winograd.strided_back`)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from znnpy_kernels.winograd.strided import group_of
from znnpy_kernels.winograd.strided_back import MADE, STRIDED_BACK, strided_back_floats
from znnpy_kernels.winograd.strided_lines import POINTS, STRIDED_FORMS

from znnpy.engine.convolution.winograd.arguments import place_words, size_words
from znnpy.engine.convolution.winograd.operands import Ends, Finish
from znnpy.engine.convolution.winograd.strided import AGAIN, PAIR
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.memory.tensors import Planes, firsts
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part
from znnpy.network.types import Triple
from znnpy.plan.algorithms.winograd_strided import strided_back_seconds
from znnpy.plan.algorithms.winograd_tiles import NEW
from znnpy.plan.partition import evenly, light_ranges


class _Axis(NamedTuple):
    """Tiles along an axis of the target: how many, and voxels of each; gradients seen, and from one tile to the next.

    `shift`: voxels of the first tile before the target; `before`: gradients that it sees before the source.
    """

    tiles: int
    made: int
    seen: int
    step: int
    shift: int
    before: int

    @classmethod
    def of(cls, extent: int, taps: int, cropped: int) -> _Axis:
        """Return the tiles of so many voxels, before which so many of the padding are left out."""
        if taps == 1:
            return cls(extent, 1, 1, 1, 0, -cropped)
        # A tile begins with a voxel that meets one tap, which have odd numbers if the padding counts.
        shift = 1 - cropped % 2
        return cls(-(-(extent + shift) // MADE), MADE, POINTS, NEW, shift, -((cropped - 1) // 2))

    def voxels(self, low: int, high: int, extent: int) -> tuple[int, int]:
        """Return the voxels of the target in tiles low..high."""
        return max(0, low * self.made - self.shift), min(extent, high * self.made - self.shift)

    def gradients(self, low: int, high: int, extent: int) -> tuple[int, int]:
        """Return the gradients that tiles low..high see: one at least, so that there is a region."""
        first = min(max(0, low * self.step - self.before), extent - 1)
        return first, max(first + 1, min(extent, (high - 1) * self.step + self.seen - self.before))


def emit_strided_back(step: Step, ends: Ends, points: Buffer) -> None:
    """Declare the tasks: rows of tiles along the cut axis, all along the others, or some blocks of voxels of these."""
    source, target, size = ends.source, ends.target, ends.edge.size
    grain, seconds = ends.build.layout.grain, strided_back_seconds(ends.shape) / target.batch
    cropped = firsts(ends.build.layout.cropped(ends.edge))
    axes = [_Axis.of(*it) for it in zip(target.shape, size, cropped, strict=True)]
    own, across = axes[target.cut], axes[1 - target.cut]
    beside = prod(axis.tiles for axis in axes) // own.tiles
    # Few workers have enough to do: tasks have the tiles of half a group, all of which read filters once.
    least = min(own.tiles, -(-group_of(STRIDED_FORMS[size]) // (2 * beside)))
    # Sums for the bias have the same leaves for any number of workers.
    if ends.node:
        cuts = light_ranges(own.tiles, seconds, least)
    else:
        cuts = grain.ranges(own.tiles, seconds, 1 if grain.many else least)
    parts = grain.rounds(seconds * target.batch, len(cuts) * target.batch, AGAIN)
    pairs = -(-target.blocks // PAIR)
    panels = [(PAIR * low, min(target.blocks, PAIR * high)) for low, high in evenly(pairs, parts)]
    finish = Finish(ends, len(cuts) * target.batch)
    words = {
        **ends.words,
        **_words("shift", axes),
        **_words("before", axes),
        **ends.build.worker_scratch(strided_back_floats(size, source.channels, target.channels)),
        "filters": points.address,
    }
    tasks = product(range(target.batch), enumerate(cuts), panels)
    for batch, (number, (low, high)), (block0, block1) in tasks:
        planes = Planes(*own.voxels(low, high, target.extent))
        blocks, leaf = range(block0, block1), batch * len(cuts) + number
        rows = (low, high, 0, across.tiles) if target.cut == 0 else (0, across.tiles, low, high)
        step.add(
            STRIDED_BACK[size],
            {
                **words,
                **finish.words(batch, blocks, leaf),
                **place_words("source", source, batch),
                **place_words("target", target, batch, block0),
                **dict(zip(("z0", "z1", "y0", "y1"), rows, strict=True)),
                "block0": block0,
                "block1": block1,
            },
            what=ends.task(Part.WINOGRAD),
            cost=seconds * (high - low) / own.tiles * len(blocks) / target.blocks,
            reads=[
                points.region(),
                *source.regions(batch, *own.gradients(low, high, source.extent)),
                *finish.reads(batch, blocks, planes),
            ],
            writes=[
                *target.met_by(batch, blocks, *planes),
                *finish.leaves_behind(leaf, blocks),
            ],
        )
    step.note_cut(target, [Planes(*own.voxels(*it, target.extent)) for it in cuts])
    finish.emit_sum(step)


def _words(name: str, axes: list[_Axis]) -> dict[str, int]:
    z, y, x = (getattr(axis, name) for axis in axes)
    values: Triple = (z, y, x)
    return size_words(name, values)
