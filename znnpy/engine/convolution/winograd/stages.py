"""Tasks of Winograd convolution in three stages, group by group of tiles: planes, columns, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.stages import IMAGES, PLANES, planes_floats, waiting_floats

from znnpy.engine.convolution.ring_buffers import ring_slot
from znnpy.engine.convolution.winograd.arguments import begin_inside, place_words
from znnpy.engine.convolution.winograd.filters import SET_TILES, made, on_the_way
from znnpy.engine.convolution.winograd.operands import Ends, Finish, strands
from znnpy.engine.convolution.winograd.products import (
    Waiting,
    emit_columns,
    emit_panels,
    emit_shallow,
)
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part
from znnpy.network.types import Triple
from znnpy.plan.algorithms.winograd import group_tiles, stage_seconds
from znnpy.plan.algorithms.winograd_shallow import shallow_products
from znnpy.plan.algorithms.winograd_tiles import NEW, new_voxels, tile_layers
from znnpy.plan.partition import evenly
from znnpy.plan.tiles import lattices

WAITING = Use("planes of groups of tiles")


class _Group(NamedTuple):
    """Tiles of one image of the batch: z0..z1, all along x, and `rows` of a lattice along y from tile `y0` on."""

    size: Triple  # of the filters
    batch: int
    z0: int
    z1: int
    y0: int
    rows: int
    tiles: int  # along z and x that begin inside
    planes: Planes  # of the target along the cut axis that they lie in
    depth: tuple[int, int] | None  # along z, of the target, and
    first: int  # the first row along y, where tiles side by side write rows side by side

    @property
    def words(self) -> dict[str, int]:
        """The argument words of the tiles, as tasks of planes and images take them."""
        return {"z0": self.z0, "z1": self.z1, "y0": self.y0, "y1": 0, "rows": self.rows}

    def rows_of(self, target: Tensor, low: int, high: int) -> Planes:
        """Return the part of the target in rows low..high of the group's."""
        if self.depth is None:
            return self.planes
        rows = self.first + low, min(target.shape[1], self.first + high)
        return Planes(*self.depth, *rows) if target.cut == 0 else Planes(*rows, *self.depth)

    def floats(self, *, seen: bool) -> int:
        """Return the floats of a block that wait before its columns (`seen`), or behind them."""
        return waiting_floats(self.size, self.rows, self.tiles, seen=seen)


def emit_staged(step: Step, ends: Ends) -> None:
    """Declare all tasks of a pass."""
    points = None
    if not (ends.layer or on_the_way(ends.build.layout, ends.shape)):
        points = made(step, ends.build, ends.edge, backward=ends.backward)
    stages = _Stages(step, ends, list(_groups(ends)), points)
    for number, members in enumerate(stages.sets):
        stages.emit(number, members)
    if stages.parts:
        step.note_cut(ends.target, stages.parts)
    stages.finish.emit_sum(step)


class _Stages:
    """Emits the tasks of each set of groups that share filters: the same tiles of some images."""

    def __init__(
        self, step: Step, ends: Ends, groups: Sequence[_Group], points: Buffer | None
    ) -> None:
        self.step, self.ends, self.groups, self.points = step, ends, groups, points
        self.finish = Finish(ends, len(groups))
        self.parts = list[Planes]()
        """Of the target, as tasks write them: of its first blocks, of one image; none if they lie among others."""
        build, source, target, size = ends.build, ends.source, ends.target, ends.edge.size
        self.grain = build.layout.grain
        # Filters that are read are shared by all groups in any case.
        self.sets = [[number] for number in range(len(groups))] if points else _sets(groups)
        # Of the largest group, for all: rings and scratch have one size.
        self.planes_scratch = build.worker_scratch(
            planes_floats(size, max(it.tiles for it in groups))
        )
        self.waiting = {
            seen: blocks * max(len(own) * groups[own[0]].floats(seen=seen) for own in self.sets)
            for seen, blocks in ((True, source.blocks), (False, target.blocks))
        }
        self.rows = max(FORMS[size].new_y * it.rows for it in groups)
        # Groups that lie in the same planes write next to each other.
        self.apart = len({(group.batch, group.planes) for group in groups}) < len(groups)

    def emit(self, number: int, members: Sequence[int]) -> None:
        """Declare the tasks of a set of groups."""
        group, images = self.groups[members[0]], len(members)
        tiles = group.tiles * group.rows
        made = self.points is None
        planes, _, outputs = stage_seconds(self.ends.shape, tiles, made=made)
        _, products, _ = stage_seconds(self.ends.shape, tiles * images, made=made)
        before, behind = (self._waiting(number, seen=seen) for seen in (True, False))
        # Stage after stage for one set, so that what waits between them is read while a cache may
        # hold it.
        for image, member in enumerate(members):
            self._emit_planes(self.groups[member], image, before, planes)
        floats = group.floats(seen=True), group.floats(seen=False)
        lone = _lone(self.ends, group)
        waiting = Waiting(before, behind, images, group.tiles, group.rows, lone, floats)
        if self.ends.layer:
            products = shallow_products(self.ends.shape, images)
            emit_shallow(self.step, self.ends, waiting, products, len(self.sets))
        elif self.points:
            emit_columns(self.step, self.ends, waiting, self.points, products, len(self.sets))
        else:
            emit_panels(self.step, self.ends, waiting, products, len(self.sets))
        for image, member in enumerate(members):
            self._emit_images(member, image, behind, outputs)

    def _waiting(self, number: int, *, seen: bool) -> Buffer:
        ring = Name(WAITING, self.ends.edge.name, (self.ends.serves, seen))
        floats, sets = self.waiting[seen], len(self.sets)
        return ring_slot(self.step, self.ends.build, ring, floats, number, sets)

    def _emit_planes(self, group: _Group, image: int, before: Buffer, seconds: float) -> None:
        ends, source = self.ends, self.ends.source
        first = image * source.blocks
        form = FORMS[group.size]
        rows = form.new_y * group.rows + form.points_y - form.new_y
        for (low, high), (row0, row1), strand in self._by_rows(source.blocks, rows, seconds):
            part = source.part(low, min(source.channels - low * LANES, (high - low) * LANES))
            self.step.add(
                PLANES[group.size],
                {
                    **PLAIN,
                    **ends.words,
                    **group.words,
                    **self.planes_scratch,
                    **place_words("source", source, group.batch, low),
                    **place_words("target", ends.target, group.batch),
                    "inputs": part.channels,
                    "row0": row0,
                    "row1": row1,
                    "planes": before.address + 4 * (first + low) * group.floats(seen=True),
                },
                what=ends.task(Part.TILES),
                cost=seconds * (high - low) / source.blocks * (row1 - row0) / rows,
                reads=part.regions(group.batch, *self._seen(group, row0, row1)),
                writes=[before.region(first + low, first + high, strand=strand)],
            )

    def _seen(self, group: _Group, row0: int, row1: int) -> Planes:
        """Return the part of the source in rows row0..row1 of those that a group sees."""
        ends = self.ends
        if group.depth is None:
            return ends.seen(group.planes)
        size, first = ends.source.shape[1], group.first - ends.words["before_y"]
        # Tiles may reach beyond the source, where nothing is read.
        low = min(max(0, first + row0), size - 1)
        rows = low, max(low + 1, min(size, first + row1))
        depth = ends.seen_along(0, *group.depth)
        return Planes(*depth, *rows) if ends.source.cut == 0 else Planes(*rows, *depth)

    def _by_rows(
        self, blocks: int, rows: int, seconds: float, *, whole: bool = False
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int], int]]:
        """Yield the blocks and the rows of each task of a stage, and a number of its own among the rows of its blocks.

        Rows are cut where blocks are fewer than the workers, and not needed `whole`.
        """
        cuts = self.grain.ranges(blocks, seconds)
        beside = len(cuts) * len(self.groups)
        parts = 1 if whole else self.grain.rounds(seconds * len(self.groups), beside)
        for own in cuts:
            for strand, part in enumerate(evenly(rows, parts)):
                yield own, part, strand if parts > 1 else -1

    def _emit_images(self, number: int, image: int, behind: Buffer, seconds: float) -> None:
        ends, target, group = self.ends, self.ends.target, self.groups[number]
        first = image * target.blocks
        rows, summed = FORMS[group.size].new_y * group.rows, self.finish.partials is not None
        if group.depth is not None:
            rows = min(rows, target.shape[1] - group.first)
        for own, (row0, row1), strand in self._by_rows(target.blocks, rows, seconds, whole=summed):
            blocks, low = range(*own), own[0]
            part = target.part(low, min(target.channels - low * LANES, len(blocks) * LANES))
            planes = group.rows_of(target, row0, row1)
            beside = -1
            if group.depth is None:
                # Of filters with holes: even where planes differ, those of two lattices overlap.
                if self.apart or strand >= 0:
                    beside = number * self.rows + max(0, strand)
            elif group.batch == 0 and low == 0:
                self.parts.append(planes)
            written = strands(part.regions(group.batch, *planes), beside)
            self.step.add(
                IMAGES[group.size],
                {
                    **ends.words,
                    **group.words,
                    **self.planes_scratch,
                    **place_words("source", ends.source, group.batch),
                    **place_words("target", target, group.batch, low),
                    **self.finish.words(group.batch, blocks, number),
                    "blocks": len(blocks),
                    "row0": row0,
                    "row1": row1,
                    "planes": behind.address + 4 * (first + low) * group.floats(seen=False),
                },
                what=ends.task(Part.INVERSE),
                cost=seconds * len(blocks) / target.blocks * (row1 - row0) / rows,
                divides=True,
                reads=[
                    behind.region(),
                    *self.finish.reads(group.batch, blocks, planes),
                    *(written if ends.words["accumulate"] else ()),
                ],
                writes=[
                    *written,
                    *self.finish.leaves_behind(number, blocks),
                ],
            )


def _lone(ends: Ends, group: _Group) -> dict[str, int]:
    """Return the argument words that say which tiles of a group see one voxel, their first, and zeros otherwise."""
    if ends.dilation != (1, 1, 1) or ends.edge.size != (3, 3, 3):
        return {"wide": group.tiles, "lone_z": 0, "lone_y": 0, "lone_x": 0}
    tiles = [tile_layers(extent, 1, NEW) for extent in ends.target.shape]
    last = (group.z1 == tiles[0], group.y0 + group.rows == tiles[1], True)
    lone = {
        f"lone_{axis}": int(
            ends_here and NEW * (count - 1) - ends.words[f"before_{axis}"] == extent - 1
        )
        for axis, count, extent, ends_here in zip(
            "zyx", tiles, ends.source.shape, last, strict=True
        )
    }
    return {"wide": tiles[2], **lone}


def _sets(groups: Sequence[_Group]) -> list[list[int]]:
    """Return the numbers of the groups of each set: the same tiles of as many images as share their filters."""
    alike: dict[Triple, list[int]] = {}
    for number, group in enumerate(groups):
        alike.setdefault((group.z0, group.y0, group.rows), []).append(number)
    found = []
    for numbers in alike.values():
        group = groups[numbers[0]]
        most = max(1, SET_TILES // (group.tiles * group.rows))
        found += [numbers[low:high] for low, high in evenly(len(numbers), -(-len(numbers) // most))]
    return found


def _groups(ends: Ends) -> Iterator[_Group]:
    """Yield all groups: those of a slab of tiles one after the other, and within it those of a lattice along y."""
    shape, (apart_z, apart_y, apart_x) = ends.target.shape, ends.dilation
    size, new = ends.edge.size, new_voxels(ends.edge.size)
    along_x = tile_layers(shape[2], apart_x, new[2])
    slabs = -(-shape[0] // (new[0] * apart_z))
    lines = [-(-points // new[1]) for points in lattices(shape[1], apart_y)]
    deep, rows = group_tiles(ends.shape)
    for batch, slab in product(range(ends.target.batch), range(0, slabs, deep)):
        # Tiles along z: apart_z of each slab, one a lattice.
        z0, z1 = slab * apart_z, min(slabs, slab + deep) * apart_z
        # Those that begin beyond the image are left out.
        tiles = along_x * begin_inside(range(z0, z1), apart_z, new[0], shape[0])
        for lattice, line in enumerate(lines):
            for row in range(0, line, rows):
                many = min(rows, line - row)
                # Slabs of tiles along the cut axis, in units of the new voxels of a tile a lattice.
                first, last = (slab, slab + deep) if ends.target.cut == 0 else (row, row + many)
                thick = new[ends.target.cut] * ends.dilation[ends.target.cut]
                planes = Planes(first * thick, min(ends.target.extent, last * thick))
                y0 = row * apart_y + lattice
                depth = None
                # For many workers alone: rows have as many regions more.
                if apart_z == apart_y == 1 and ends.build.layout.grain.many:
                    depth = z0 * new[0], min(shape[0], z1 * new[0])
                yield _Group(size, batch, z0, z1, y0, many, tiles, planes, depth, row * new[1])
