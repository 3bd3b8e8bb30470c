"""Tasks of strided layers by Winograd's minimal filtering: the forward pass (`znnpy_kernels.winograd.strided`)."""

from __future__ import annotations

from itertools import product

from znnpy_kernels.winograd.strided import STRIDED, group_of, strided_floats
from znnpy_kernels.winograd.strided_lines import STRIDED_FORMS

from znnpy.engine.convolution.winograd.arguments import (
    place_words,
    reached,
    size_words,
    tile_planes,
    tile_words,
    unframed,
)
from znnpy.engine.convolution.winograd.operands import Ends, Finish
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.memory.tensors import Planes
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part
from znnpy.plan.algorithms.winograd_strided import strided_seconds
from znnpy.plan.algorithms.winograd_tiles import tile_count
from znnpy.plan.partition import evenly

PAIR = 2  # blocks of outputs whose filters lie side by side
AGAIN = 0.15
"""What each part of a task's outputs takes again, as a share of all of them: the transforms of its tiles."""


def emit_strided(step: Step, ends: Ends, points: Buffer) -> None:
    """Declare the tasks: rows of tiles along the cut axis, all along the others, or some blocks of outputs of these."""
    source, target, size = ends.source, ends.target, ends.edge.size
    grain, seconds = ends.build.layout.grain, strided_seconds(ends.shape) / ends.target.batch
    tiles, form = tile_planes(target, size, ends.dilation), STRIDED_FORMS[size]
    new = (form.new_z, form.new_y)[target.cut]
    beside = tile_count(ends.shape) // tiles
    # Few workers have enough to do: tasks have the tiles of half a group, all of which read filters once.
    least = 1 if grain.many else -(-group_of(form) // (2 * beside))
    cuts = grain.ranges(tiles, seconds, min(least, tiles))
    count = len(cuts) * target.batch
    parts = grain.rounds(seconds * target.batch, count, AGAIN)
    pairs = -(-target.blocks // PAIR)
    panels = [(PAIR * low, min(target.blocks, PAIR * high)) for low, high in evenly(pairs, parts)]
    finish, before = Finish(ends, 0), unframed(ends.build, ends.edge)
    words = {
        **ends.words,
        # What a stride leaves over is not seen: tiles at the end would mix it into voxels that do not depend on it.
        **size_words("source_size", reached(ends.edge, source.shape, target.shape, before)),
        **ends.build.worker_scratch(strided_floats(size, source.channels, target.channels)),
        "filters": points.address,
    }
    for batch, (low, high), (block0, block1) in product(range(target.batch), cuts, panels):
        planes = Planes(low * new, min(target.extent, high * new))
        blocks = range(block0, block1)
        written = target.met_by(batch, blocks, *planes)
        step.add(
            STRIDED[size],
            {
                **words,
                **finish.words(batch, range(target.blocks), 0),
                **place_words("source", source, batch),
                **place_words("target", target, batch),
                **tile_words(target, size, ends.dilation, low, high),
                "block0": block0,
                "block1": block1,
            },
            what=ends.task(Part.WINOGRAD),
            cost=seconds * (high - low) / tiles * len(blocks) / target.blocks,
            reads=[
                points.region(),
                *source.regions(batch, *ends.seen(planes)),
                *finish.reads(batch, blocks, planes),
                *(written if words["accumulate"] else ()),
            ],
            writes=written,
        )
    step.note_cut(target, [Planes(low * new, min(target.extent, high * new)) for low, high in cuts])
