"""Tasks of the second of Winograd's stages: products with filters that are read, or transformed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.few_tiles import FEW_TILES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.panel_filters import PAIR, most_terms
from znnpy_kernels.winograd.panels import PANELS_OF, panels_floats
from znnpy_kernels.winograd.planes import plane
from znnpy_kernels.winograd.products import odd_bytes
from znnpy_kernels.winograd.shallow import SHALLOW, shallow_floats
from znnpy_kernels.winograd.stages import COLUMNS_OF, columns_floats

from znnpy.engine.convolution.winograd.operands import Ends
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part
from znnpy.plan.algorithms.winograd import panel_parts
from znnpy.plan.partition import evenly

SHALLOW_BYTES = 1 << 16
"""Of sums of a task of shallow images, about."""
AGAIN = 0.04
"""What each part of a task's outputs takes again, as a share of all of them: its tiles' transform along y."""


class Waiting(NamedTuple):
    """What waits before and behind the stage: of so many images, the same tiles and rows of them."""

    before: Buffer
    behind: Buffer
    images: int
    tiles: int  # along z and x that begin inside
    rows: int  # of them along y
    lone: Mapping[str, int]  # argument words of columns: which of them see one voxel
    floats: tuple[int, int]  # of a block of an image: before and behind


def emit_columns(
    step: Step, ends: Ends, waiting: Waiting, points: Buffer, seconds: float, sets: int
) -> None:
    """Declare the tasks for the one image of one of so many sets, with transformed filters."""
    size, source, target, grain = ends.edge.size, ends.source, ends.target, ends.build.layout.grain
    tiles = waiting.tiles * waiting.rows
    words = {
        "source": waiting.before.address,
        "target": waiting.behind.address,
        "inputs": source.channels,
        "blocks": target.blocks,
        "filters": points.address,
        "tiles": waiting.tiles,
        "rows": waiting.rows,
        **waiting.lone,
        **ends.build.worker_scratch(columns_floats(size, source.channels, target.channels, tiles)),
    }
    columns, blocks = int(plane(FORMS[size])), target.blocks
    cuts = grain.ranges(columns, seconds)
    parts = grain.rounds(seconds * sets, len(cuts) * sets, AGAIN)
    # Filters lie by pairs of blocks.
    pairs = -(-blocks // PAIR)
    panels = [(PAIR * low, min(blocks, PAIR * high)) for low, high in evenly(pairs, parts)]
    for (low, high), (block0, block1) in product(cuts, panels):
        step.add(
            COLUMNS_OF[size],
            {**words, "column0": low, "column1": high, "block0": block0, "block1": block1},
            what=ends.task(Part.WINOGRAD),
            cost=seconds * (high - low) / columns * (block1 - block0) / blocks,
            # All blocks of the source: a column's products sum over every input.
            divides=True,
            reads=[waiting.before.region(), points.region()],
            # Here regions count columns; before them, blocks: rings are gated as a whole, so units may differ.
            writes=[waiting.behind.region(low, high, strand=block0 if len(panels) > 1 else -1)],
        )


def emit_panels(step: Step, ends: Ends, waiting: Waiting, seconds: float, sets: int) -> None:
    """Declare the tasks for one of so many sets of images, with filters as they lie."""
    parameter, form = ends.build.parameters[ends.edge.name], FORMS[ends.edge.size]
    source, target, grain = ends.source, ends.target, ends.build.layout.grain
    tiles = waiting.images * waiting.tiles * waiting.rows
    most = most_terms(ends.edge.size[0]) // LANES
    together = min(source.blocks, most) if tiles > FEW_TILES else 1
    pairs = -(-target.blocks // PAIR)
    depths, outputs = panel_parts(ends.shape, tiles)
    panels = -(-pairs // max(1, outputs // (PAIR * LANES)))
    work, pieces = seconds * sets, depths * panels * sets
    wanted = panels * max(grain.shares(work, pieces), grain.rounds(work, pieces, AGAIN))
    if 1 < wanted < pairs:
        # The last of an odd number would be waited for.
        wanted += depths * wanted * sets % 2
    # Outputs first: parts of the planes of points read all filters again.
    panels = min(pairs, wanted)
    depths = min(form.points_z, depths * -(-wanted // panels))
    cut = evenly(pairs, panels)
    for (low, high), (first, last) in product(evenly(form.points_z, depths), cut):
        block0, block1 = PAIR * first, min(target.blocks, PAIR * last)
        floats = panels_floats(ends.edge.size, high - low, block1 - block0, tiles, together)
        step.add(
            PANELS_OF[ends.edge.size, ends.backward],
            {
                **_panel_words(ends, waiting),
                "depth0": low,
                "depth1": high,
                "block0": block0,
                "block1": block1,
                "together": together,
                **ends.build.worker_scratch(floats),
            },
            what=ends.task(Part.WINOGRAD),
            cost=seconds * (high - low) / form.points_z * (block1 - block0) / target.blocks,
            divides=True,
            # All blocks of the source: products sum over every input.
            reads=[waiting.before.region(), parameter.values_region()],
            # Here regions count columns; before them, blocks: rings are gated as a whole, so units may differ.
            writes=[
                waiting.behind.region(
                    low * form.points_x,
                    high * form.points_x,
                    strand=block0 if len(cut) > 1 else -1,
                )
            ],
        )


def emit_shallow(step: Step, ends: Ends, waiting: Waiting, seconds: float, sets: int) -> None:
    """Declare the tasks for one of so many sets of shallow images, with filters as they lie."""
    target, grain, tiles = ends.target, ends.build.layout.grain, waiting.images * waiting.tiles
    parameter, pairs = ends.build.parameters[ends.edge.name], -(-target.blocks // PAIR)
    columns = int(plane(FORMS[ends.edge.size]))
    # As many outputs as have their sums in an L2 cache: tasks transform the same tiles along y.
    sums = PAIR * columns * FORMS[ends.edge.size].points_y * odd_bytes(tiles)
    panels = -(-pairs // max(1, SHALLOW_BYTES // sums))
    work, pieces = seconds * sets, panels * sets
    wanted = panels * max(grain.shares(work, pieces), grain.rounds(work, pieces, AGAIN))
    cut = evenly(pairs, min(pairs, wanted))
    parts = evenly(columns, min(columns, -(-wanted // len(cut))))
    for (low, high), (first, last) in product(parts, cut):
        block0, block1 = PAIR * first, min(target.blocks, PAIR * last)
        step.add(
            SHALLOW[ends.backward],
            {
                **_panel_words(ends, waiting),
                "depth0": low,
                "depth1": high,
                "block0": block0,
                "block1": block1,
                "together": 1,
                **ends.build.worker_scratch(shallow_floats(high - low, block1 - block0, tiles)),
            },
            what=ends.task(Part.WINOGRAD),
            cost=seconds * (high - low) / columns * (block1 - block0) / target.blocks,
            divides=True,
            reads=[waiting.before.region(), parameter.values_region()],
            writes=[waiting.behind.region(low, high, strand=block0 if len(cut) > 1 else -1)],
        )


def _panel_words(ends: Ends, waiting: Waiting) -> dict[str, int]:
    """Return the argument words that all tasks of a set have whose filters lie as they do."""
    source, target = ends.source, ends.target
    return {
        "source": waiting.before.address,
        "source_image": 4 * source.blocks * waiting.floats[0],
        "target": waiting.behind.address,
        "target_image": 4 * target.blocks * waiting.floats[1],
        "images": waiting.images,
        "tiles": waiting.tiles,
        "rows": waiting.rows,
        "inputs": source.channels,
        "outputs": target.channels,
        "filters": ends.build.parameters[ends.edge.name].values,
    }
