"""Tasks of weight gradients by Winograd's minimal filtering in two stages: points of a range of tiles, then sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.gradient_points import (
    GRADIENT_POINTS,
    SOURCE_POINTS,
    block_floats,
    points_scratch_floats,
)
from znnpy_kernels.winograd.gradient_sums import WINOGRAD_GRADIENT_SUMS, sums_floats
from znnpy_kernels.winograd.shallow_gradient import SUMS_FLOATS, winograd_shallow_sums
from znnpy_kernels.winograd.strided_gradient import (
    STRIDED_GRADIENT_POINTS,
    STRIDED_SOURCE_POINTS,
    STRIDED_SUMS,
    strided_block_floats,
    strided_points_floats,
)

from znnpy.engine.convolution.padding_taps import clear_unmet
from znnpy.engine.convolution.ring_buffers import ring_slot
from znnpy.engine.convolution.winograd.arguments import (
    begin_inside,
    dilation_of,
    place_words,
    reached,
    size_words,
    tile_planes,
    tile_rows,
    tile_words,
)
from znnpy.engine.convolution.winograd.gradient_panels import (
    Panel,
    panels_of,
    planes_of,
    shared_panels,
)
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, BufferPart, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, combine_pieces
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd_gradients import (
    joint_leaves,
    joint_panels,
    joint_ranges,
    joint_seconds,
)
from znnpy.plan.algorithms.winograd_shallow import flat_edge, flat_of, is_shallow, shallow_sums
from znnpy.plan.algorithms.winograd_strided import is_strided
from znnpy.plan.algorithms.winograd_tiles import new_voxels, tiles_by_axis
from znnpy.plan.partition import evenly

POINTS = Use("points of tiles for weight gradients")
UPDATED = Use("gradients of filters that are updated at once")
UPDATED_BYTES = 1 << 17  # of these in a task, of shallow images, whose sums need little else
SUMS_TASKS = 8  # of shallow images, at least: each has a gradient of megabytes


class _Tiles(NamedTuple):
    """Tiles of one image of the batch: low..high along the cut axis, `rows` along the other, all along x."""

    batch: int
    low: int
    high: int
    rows: range
    inside: int
    """How many of them begin inside."""


def single_range(shape: ConvShape) -> bool:
    """Return whether all tiles are summed at once, so that a task makes the whole gradient of its filters."""
    own = flat_of(shape) if is_shallow(shape) else shape
    z, y, _ = tiles_by_axis(own)
    return prod(joint_ranges(own, z * y)) == 1


def emit_joint(
    step: Step, build: Build, edge: Edge, gradient: Tensor, shape: ConvShape, *, updated: bool
) -> None:
    """Declare the points of tiles of source and gradient, and their products, summed by a fixed tree over ranges.

    `updated`: of a single range, whose tasks update the filters and keep no gradient.
    """
    parameter = build.parameters[edge.name]
    made = _Shallow if is_shallow(shape) else _Strided if is_strided(shape) else _Stages
    stages = made(step, build, edge, gradient, shape)
    if updated:
        stages.emit(0, None)
        return
    leaves = build.partial_gradients(edge.name, stages.leaves)
    for number in range(len(stages.ranges)):
        stages.emit(number, leaves[number % stages.leaves], adds=number >= stages.leaves)
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, leaves, parameter.pieces, what, build.layout.grain)
    clear_unmet(step, build, edge)


class _Stages:
    """Emits the tasks of each range."""

    def __init__(
        self, step: Step, build: Build, edge: Edge, gradient: Tensor, shape: ConvShape
    ) -> None:
        self.step, self.build, self.edge, self.gradient = step, build, edge, gradient
        self.source, self.parameter = build.seen(edge), build.parameters[edge.name]
        self.size, self.dilation = edge.size, dilation_of(build, edge)
        self.ranges = list(_ranges(gradient, self.size, self.dilation, shape))
        self.seen = self.source.shape
        # In turn, so that workers who make neighbouring ranges wait for no leaf.
        self.leaves = joint_leaves(shape, len(self.ranges))
        self.seconds = joint_seconds(shape)
        self.tiles = sum(tiles.inside for own in self.ranges for tiles in own)
        self.most = max(sum(tiles.inside for tiles in own) for own in self.ranges)
        self.panels = self._panels()

    def _panels(self) -> list[Panel]:
        """Panels that caches hold, or smaller ones, so that each worker has one: cuts that split no sum."""
        pieces, blocks = self.parameter.pieces, self.source.blocks
        wanted = self.build.layout.grain.shares(self.seconds[2], self.leaves)
        cached = joint_panels(self.size, blocks, LANES)
        return panels_of(
            pieces, blocks, *shared_panels(cached, blocks, len(pieces) // blocks, wanted)
        )

    def emit(self, number: int, leaf: Buffer | None, *, adds: bool = False) -> None:
        """Declare the tasks of a range, whose sums go or are added to a leaf; None: to the update of the filters."""
        own, ring = self.ranges[number], Name(POINTS, self.edge.name)
        floats = self._gradient_points(self.most) + self.gradient.blocks * self._floats(
            self.most, of_source=False
        )
        points = ring_slot(self.step, self.build, ring, floats, number, len(self.ranges))
        tiles = sum(part.inside for part in own)
        of_source, of_gradient, sums = (it * tiles / self.tiles for it in self.seconds)
        self._emit_points(own, points, of_source, of_source=True)
        self._emit_points(own, points, of_gradient, of_source=False)
        if leaf is None:
            self._emit_updates(tiles, points, sums)
            return
        for panel in self.panels:
            first, pieces = self.parameter.pieces[panel.pieces.start].start, panel.pieces
            written = leaf.region(pieces.start, pieces.stop)
            self._emit_sums(
                tiles, points, panel, leaf.address + 4 * first, written, sums, adds=adds
            )

    def _emit_updates(self, tiles: int, points: Buffer, seconds: float) -> None:
        """Declare tasks of some panels each: sums in a buffer that stays in a cache, then updates."""
        mover, parameter, panels = self.step.at_once, self.parameter, self._updated_panels()
        assert mover, parameter.name
        wanted = max(SUMS_TASKS, self.build.layout.grain.shares(seconds, 1))
        cuts = evenly(len(panels), wanted)
        size = max(sum(parameter.pieces[piece].floats for piece in it.pieces) for it in panels)
        # One buffer for all tasks: of several, whose lives follow each other as declared, all would have one place, and
        # tasks would wait for each other.
        name = Name(UPDATED, self.edge.name)
        whole = self.build.shared(name, size * len(cuts))
        for number, (low, high) in enumerate(cuts):
            made = BufferPart(
                name, whole.address + 4 * size * number, size, whole=whole, first=number, count=1
            )
            for panel in panels[low:high]:
                self._emit_sums(
                    tiles, points, panel, made.address, made.region(), seconds,
                    follows=panel is not panels[low],
                )  # fmt: skip
                mover.update(self.step, self.build, parameter, panel.pieces, made)

    def _updated_panels(self) -> list[Panel]:
        """Return panels whose gradients stay in an L2 cache until the filters are updated."""
        return self.panels

    def _emit_points(
        self,
        own: Sequence[_Tiles],
        points: Buffer,
        seconds: float,
        *,
        of_source: bool,
    ) -> None:
        images = self.source if of_source else self.gradient
        before = 0 if of_source else self.source.blocks
        total, first = sum(tiles.inside for tiles in own), 0
        step = 4 * self._floats(total, of_source=of_source)
        target = points.address + (0 if of_source else 4 * self._gradient_points(total))
        kernel, scratch = self._points_kernel(of_source=of_source)
        words = {
            **size_words("images_size", self.seen if of_source else images.shape),
            **size_words("gradient_size", self.gradient.shape),
            **size_words("dilation", self.dilation),
            **self.build.worker_scratch(scratch),
            "tiles": total,
        }
        for strand, tiles in enumerate(own):
            share = tiles.inside / total
            for low, high in self.build.layout.grain.ranges(images.blocks, seconds * share):
                self.step.add(
                    kernel,
                    {
                        **words,
                        **place_words("images", images, tiles.batch, low),
                        **self._tile_words(tiles),
                        "blocks": high - low,
                        "first": first,
                        "target": target + low * step,
                    },
                    what=Identity(self.edge.name, Pass.WEIGHT, Part.TILES),
                    cost=seconds * share * (high - low) / images.blocks,
                    reads=[
                        it
                        for block in range(low, high)
                        for it in images.met(tiles.batch, block, *self._planes(tiles, of_source))
                    ],
                    writes=[
                        # Tiles of several samples lie side by side.
                        points.region(before + low, before + high, strand=strand if own[1:] else -1)
                    ],
                )
            first += tiles.inside

    def _tile_words(self, tiles: _Tiles) -> Mapping[str, int]:
        return tile_words(
            self.gradient, self.size, self.dilation, tiles.low, tiles.high, tiles.rows
        )

    def _planes(self, tiles: _Tiles, of_source: bool) -> tuple[int, int]:
        """Return the planes of source or gradient among which the voxels of some tiles lie."""
        cut = self.gradient.cut
        first, last = planes_of(self.gradient, self.size, self.dilation, tiles.low, tiles.high)
        if not of_source:
            return first, last
        apart, reach = self.edge.stride[cut], (self.size[cut] - 1) * self.dilation[cut]
        return first * apart, min(self.source.extent, (last - 1) * apart + 1 + reach)

    def _floats(self, tiles: int, *, of_source: bool) -> int:
        """Return the floats of the points of so many tiles of a block of the source, or of the gradient."""
        return block_floats(self.size, tiles)

    def _gradient_points(self, tiles: int) -> int:
        """Return the floats before the points of the gradient, which follow those of the source."""
        return self.source.blocks * self._floats(tiles, of_source=True)

    def _points_kernel(self, *, of_source: bool) -> tuple[Kernel, int]:
        """Return the kernel of points of source or gradient, and floats of its scratch."""
        kernels = SOURCE_POINTS if of_source else GRADIENT_POINTS
        return kernels[self.size], points_scratch_floats(self.size)

    def _kernel(self, inputs: int, outputs: int) -> tuple[Kernel, int, Mapping[str, int]]:
        """Return the kernel of sums of so many channels, floats of its scratch, and its own argument words."""
        return WINOGRAD_GRADIENT_SUMS[self.size], sums_floats(self.size, inputs, outputs), {}

    def _emit_sums(
        self,
        tiles: int,
        points: Buffer,
        panel: Panel,
        target: int,
        written: Region,
        seconds: float,
        *,
        adds: bool = False,
        follows: bool = False,
    ) -> None:
        behind = self.source.blocks
        source = 4 * panel.sources.start * self._floats(tiles, of_source=True)
        gradient = panel.targets.start * self._floats(tiles, of_source=False)
        pieces = [self.parameter.pieces[piece] for piece in panel.pieces]
        # Pieces go by outputs first: those of the first group of outputs have all inputs of the panel.
        inputs = sum(piece.inputs for piece in pieces[: len(panel.sources)])
        kernel, floats, words = self._kernel(inputs, self.gradient.lanes * len(panel.targets))
        self.step.add(
            kernel,
            {
                **words,
                **self.build.worker_scratch(floats),
                "source": points.address + source,
                "gradient": points.address + 4 * (self._gradient_points(tiles) + gradient),
                "tiles": tiles,
                "inputs": inputs,
                "blocks": len(panel.targets),
                "target": target,
                "adds": adds,
            },
            what=Identity(self.edge.name, Pass.WEIGHT, Part.WINOGRAD),
            cost=seconds * sum(piece.floats for piece in pieces) / self.parameter.floats,
            reads=[
                points.region(panel.sources.start, panel.sources.stop),
                points.region(behind + panel.targets.start, behind + panel.targets.stop),
                *([written] if adds else []),
            ],
            writes=[written],
            follows=follows,
        )


class _Strided(_Stages):
    """Of strided layers: nine points of the source along a strided axis, five of the gradient."""

    def __init__(
        self, step: Step, build: Build, edge: Edge, gradient: Tensor, shape: ConvShape
    ) -> None:
        super().__init__(step, build, edge, gradient, shape)
        # What a stride leaves over is not seen: tiles at the end would mix it into sums.
        self.seen = reached(edge, self.source.shape, gradient.shape, (0, 0, 0))

    def _floats(self, tiles: int, *, of_source: bool) -> int:
        return strided_block_floats(self.size, tiles, of_source=of_source)

    def _points_kernel(self, *, of_source: bool) -> tuple[Kernel, int]:
        kernels = STRIDED_SOURCE_POINTS if of_source else STRIDED_GRADIENT_POINTS
        return kernels[self.size], strided_points_floats(self.size)

    def _kernel(self, inputs: int, outputs: int) -> tuple[Kernel, int, Mapping[str, int]]:
        return STRIDED_SUMS[self.size], sums_floats(self.size, inputs, outputs), {}


class _Shallow(_Stages):
    """Of shallow images: their planes are tiles, and sums are of taps along z, too."""

    def __init__(
        self, step: Step, build: Build, edge: Edge, gradient: Tensor, shape: ConvShape
    ) -> None:
        self.sums = shallow_sums(shape)
        flat = flat_edge(edge, build.layout.padding(edge))
        super().__init__(step, build, flat, gradient, flat_of(shape))
        self.seconds = *self.seconds[:2], self.sums

    def _panels(self) -> list[Panel]:
        pieces, blocks = self.parameter.pieces, self.source.blocks
        pairs = len(pieces) // blocks
        wanted = max(SUMS_TASKS, self.build.layout.grain.shares(self.sums, self.leaves))
        return panels_of(pieces, blocks, *shared_panels((1, pairs), blocks, pairs, wanted))

    def _updated_panels(self) -> list[Panel]:
        pieces, blocks = self.parameter.pieces, self.source.blocks
        parts = -(-blocks * 4 * pieces[0].floats // UPDATED_BYTES)
        return panels_of(pieces, blocks, min(blocks, parts), 1)

    def _kernel(self, inputs: int, outputs: int) -> tuple[Kernel, int, Mapping[str, int]]:
        return winograd_shallow_sums, SUMS_FLOATS, {"planes": self.gradient.shape[0]}


def _ranges(
    gradient: Tensor, size: Triple, dilation: Triple, shape: ConvShape
) -> Iterator[list[_Tiles]]:
    """Yield the tiles of each range: some samples, or parts of one; by sizes alone, so sums have the same bits."""
    planes, rows = tile_planes(gradient, size, dilation), tile_rows(gradient, size, dilation)
    samples, count = joint_ranges(shape, planes * len(rows))
    # More ranges than planes: each plane by rows.
    shares = evenly(len(rows), max(1, count // planes))
    parts = [(*cut, rows[first:last]) for cut in evenly(planes, count) for first, last in shares]
    for low, high in evenly(gradient.batch, samples):
        for part in parts:
            tiles = [
                _Tiles(batch, *part, _inside(gradient, size, dilation, *part))
                for batch in range(low, high)
            ]
            if tiles[0].inside:
                yield tiles


def _inside(
    gradient: Tensor, size: Triple, dilation: Triple, low: int, high: int, rows: range
) -> int:
    """Return how many of some tiles, and all along x, begin inside."""
    cut, new = gradient.cut, new_voxels(size)
    along_x = range(-(-gradient.shape[2] // (new[2] * dilation[2])) * dilation[2])
    axes = (cut, range(low, high)), (1 - cut, rows), (2, along_x)
    return prod(
        begin_inside(tiles, dilation[axis], new[axis], gradient.shape[axis]) for axis, tiles in axes
    )
