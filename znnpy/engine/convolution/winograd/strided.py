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
from znnpy.plan.algorithms.winograd_strided import samples_together, strided_seconds
from znnpy.plan.algorithms.winograd_tiles import tile_count
from znnpy.plan.partition import evenly

PAIR = 2  # blocks of outputs whose filters lie side by side
AGAIN = 0.15
"""What each part of a task's outputs takes again, as a share of all of them: the transforms of its tiles."""


def _samples(ends: Ends) -> list[tuple[int, int]]:
    """Return the ranges of samples that go together, and then read filters once: flat ones of few tiles each."""
    batch = ends.target.batch
    return evenly(batch, -(-batch // samples_together(ends.shape)))


def _planes_words(ends: Ends, first: int, count: int) -> dict[str, int]:
    """Return the argument words of where some samples lie, as the planes of one if there are several."""
    source, target = ends.source, ends.target
    words = {**place_words("source", source, first), **place_words("target", target, first)}
    if count > 1:
        words |= {"source_z": source.batch_stride, "target_z": target.batch_stride}
        words |= {"source_size_z": count, "target_size_z": count, "z0": 0, "z1": count}
    return words


def emit_strided(step: Step, ends: Ends, points: Buffer) -> None:
    """Declare the tasks: rows of tiles along the cut axis, all along the others, or some blocks of outputs of these.

    Of one sample, or of some that have one plane each.
    """
    source, target, size = ends.source, ends.target, ends.edge.size
    grain, samples = ends.build.layout.grain, _samples(ends)
    seconds = strided_seconds(ends.shape)
    tiles, form = tile_planes(target, size, ends.dilation), STRIDED_FORMS[size]
    new = (form.new_z, form.new_y)[target.cut]
    beside = tile_count(ends.shape) // tiles * target.batch // len(samples)
    # Few workers have enough to do: tasks have the tiles of half a group, all of which read filters once.
    least = 1 if grain.many else -(-group_of(form) // (2 * beside))
    cuts = grain.ranges(tiles, seconds / len(samples), min(least, tiles))
    parts = grain.rounds(seconds, len(cuts) * len(samples), AGAIN)
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
    for (first, end), (low, high), (block0, block1) in product(samples, cuts, panels):
        planes, blocks = Planes(low * new, min(target.extent, high * new)), range(block0, block1)
        own, seen = range(first, end), ends.seen(planes)
        share = len(own) / target.batch * (high - low) / tiles * len(blocks) / target.blocks
        written = [it for sample in own for it in target.met_by(sample, blocks, *planes)]
        step.add(
            STRIDED[size],
            {
                **words,
                **finish.words(first, range(target.blocks), 0),
                **tile_words(target, size, ends.dilation, low, high),
                **_planes_words(ends, first, len(own)),
                "block0": block0,
                "block1": block1,
            },
            what=ends.task(Part.WINOGRAD),
            cost=seconds * share,
            reads=[
                points.region(),
                *(it for sample in own for it in source.regions(sample, *seen)),
                *finish.reads(first, blocks, planes),
                *(written if words["accumulate"] else ()),
            ],
            writes=written,
        )
    step.note_cut(target, [Planes(low * new, min(target.extent, high * new)) for low, high in cuts])
