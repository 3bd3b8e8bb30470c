"""Spectra of sources with few channels: lanes hold tiles of one channel, not channels of one tile.

They take LANES / channels times less time and memory, so all tiles are transformed at once.
"""

from __future__ import annotations

from operator import mul, sub
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.few_channel_tiles import lanes_floats, tile_lane_planes, tile_lanes
from znnpy_kernels.spectral.few_columns import RUNS

from znnpy.engine.convolution.spectral.buffers import phases_of_edge, tiling_of
from znnpy.engine.convolution.spectral.column_tasks import (
    LEAST_PLANES,
    Columns,
    End,
    emit_columns_to,
)
from znnpy.engine.convolution.spectral.tile_arguments import lattice_strides, sizes
from znnpy.engine.convolution.tiles import (
    PAIR,
    Grid,
    PlaneSpectra,
    Stretch,
    TileSpectra,
    Tiling,
    Window,
    planes_of,
)
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import phased
from znnpy.engine.memory.regions import Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.buffer_sharing import gate
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.partition import evenly
from znnpy.plan.polyphase import Phases
from znnpy.plan.tiles import LANES_RATE, PLANES_SHARE, column_group, tile_seconds

FEW_TILES = Use("spectra of tiles of few channels", "source spectra")


class Run(NamedTuple):
    """Tiles that lie in one block of lanes; `tile` is the first one's number in a group.

    `across`: each lies in a block of its own, in the same lanes.
    """

    grid: Grid
    block: int
    lane: int
    tile: int
    tiles: int
    across: bool = False


class FewSpectra:
    """Spectra of all tiles of few channels: [grid][block of lanes][frequency][re, im][lane].

    Of several `phases` a block holds few tiles, so products take them `across` blocks, to read filters for many at
    once: [frequency][grid][block of lanes][re, im][lane].
    """

    def __init__(self, tiling: Tiling, channels: int, phases: int = 1) -> None:
        channels *= phases
        self.tiling, self.channels, self.tiles = tiling, channels, LANES // channels
        # With phases a block holds few tiles, too few for a product; so products go across blocks.
        self.across = phases > 1
        # Each lattice begins with a block of its own: tiles of two lattices never share a vector.
        self.firsts: dict[int, int] = {}  # block by the first tile of its grid
        self.blocks = 0
        for grid in tiling.grids:
            self.firsts[grid.first] = self.blocks
            self.blocks += self.count(grid)
        # An odd number of pairs of lines, so that frequencies do not fall on one set of the caches.
        self.frequency_stride = (self.blocks | 1) * PAIR if self.across else PAIR
        self.block_stride = PAIR if self.across else tiling.frequencies * PAIR
        self.place = Buffer(Name(FEW_TILES))

    @property
    def floats(self) -> int:
        """The floats of all blocks."""
        return self.tiling.frequencies * self.frequency_stride * (1 if self.across else self.blocks)

    def count(self, grid: Grid) -> int:
        """Return the number of blocks of a grid."""
        return -(-grid.tiles // self.tiles)

    def at(self, grid: Grid, block: int, lane: int = 0, frequency: int = 0) -> int:
        """Return the address of a block of a grid."""
        floats = (self.firsts[grid.first] + block) * self.block_stride + lane
        return self.place.address + 4 * (floats + frequency * self.frequency_stride)

    def region(self, grid: Grid, block: int) -> Region:
        """Return the region of one block."""
        # A section a block: tasks that make different blocks never wait for each other.
        return self.place.region(section=self.firsts[grid.first] + block)

    def stretch(self, grid: Grid, low: int, high: int) -> Stretch:
        """Return the tiles of some blocks of a grid."""
        return Stretch(grid, low * self.tiles, min(high * self.tiles, grid.tiles), 0, 0)

    def planes(self, channels: int) -> PlaneSpectra:
        """Return half transformed tiles of the other end's images, in groups of at most RUNS runs each."""
        tiling = self.tiling
        most = column_group(tiling.tile, tiling.tiles, channels)
        if most > self.tiles:
            # Whole blocks of lanes, so that a group has as few runs as possible.
            most -= most % self.tiles
        found = PlaneSpectra(tiling, channels, most)
        while max(len(self.runs(found, group)) for group in range(found.groups)) > RUNS:
            most -= 1
            found = PlaneSpectra(tiling, channels, most)
        return found

    def runs(self, others: TileSpectra, group: int) -> list[Run]:
        """Return the runs of a group of other spectra, block by block or across blocks."""
        if self.across:
            return self._across(others, group)
        found = []
        for stretch in others.stretches(group):
            for block in range(stretch.low // self.tiles, -(-stretch.high // self.tiles)):
                low = max(stretch.low, block * self.tiles)
                high = min(stretch.high, (block + 1) * self.tiles)
                # The tile's number within the group of the other end.
                tile = stretch.grid.first + low - stretch.start
                # Lane t * channels + c holds channel c of a block's tile t.
                lane = low % self.tiles * self.channels
                found.append(Run(stretch.grid, block, lane, tile, high - low))
        return found

    def _across(self, others: TileSpectra, group: int) -> list[Run]:
        found = []
        for stretch in others.stretches(group):
            # One run for each place within a block: every `tiles`-th tile lies in the same lanes.
            for first in range(stretch.low, min(stretch.low + self.tiles, stretch.high)):
                tile, tiles = stretch.grid.first + first - stretch.start, stretch.high - first
                block, place = divmod(first, self.tiles)
                count = -(-tiles // self.tiles)
                lane = place * self.channels
                found.append(Run(stretch.grid, block, lane, tile, count, across=True))
        return found

    def regions(self, run: Run) -> list[Region]:
        """Return the regions of a run's blocks."""
        blocks = run.tiles if run.across else 1
        return [self.region(run.grid, run.block + block) for block in range(blocks)]


def few_source(step: Step, build: Build, edge: Edge, which: PassName) -> FewSpectra:
    """Return spectra of the source's tiles; declare their tasks unless the other pass has left them."""
    phases, tiling = phases_of_edge(build, edge), tiling_of(build, edge, which)
    x = FewSpectra(tiling, build.seen(edge).channels, phases.count)
    layer = build.layout.plan.layers[edge.name]
    same = layer.method("forward") == layer.method("weight")
    split = phases.counts, phases.apart, phases.stride
    grid = tiling.tile, tiling.new, tiling.dilation, tiling.extents
    view = build.layout.padding(edge), edge.border
    # `same` marks what both passes share; otherwise the pass is in the name, and each makes its
    # own.
    name = Name(FEW_TILES, edge.source, (*split, *grid, *view, same or PASS_OF[which]))
    x.place = build.shared(name, x.floats)
    # All tiles at once: they fill few vectors, and serve both passes.
    if step.once(x.place):
        kept = Identity(edge.source, Pass.FORWARD, Part.KEPT_TILES)
        own = Identity(edge.name, PASS_OF[which], Part.TILES)
        _emit_lanes(step, build, edge, x, kept if same else own)
    return x


def _emit_lanes(step: Step, build: Build, edge: Edge, x: FewSpectra, what: Identity) -> None:
    tiling, grain = x.tiling, build.layout.grain
    seconds = tile_seconds(tiling.tile, LANES_RATE)
    parts = grain.rounds(x.blocks * seconds, x.blocks) if tiling.tile[0] > 1 else 1
    for grid in tiling.grids:
        words = _lane_words(build, edge, x, grid)
        if parts > 1:
            for block in range(x.count(grid)):
                _emit_lane_planes(step, build, edge, x, what, grid, block, parts)
            continue
        for low, high in grain.ranges(x.count(grid), x.count(grid) * seconds):
            step.add(
                tile_lanes,
                words | {"block0": low, "block1": high},
                what=what,
                cost=(high - low) * seconds,
                divides=True,
                reads=_read(build, edge, tiling, x.stretch(grid, low, high)),
                writes=[x.region(grid, block) for block in range(low, high)],
            )


def _emit_lane_planes(
    step: Step,
    build: Build,
    edge: Edge,
    x: FewSpectra,
    what: Identity,
    grid: Grid,
    block: int,
    parts: int,
) -> None:
    """Declare the transforms of one block of lanes: `parts` of its planes, then as many of its columns."""
    tiling, count = x.tiling, x.tiling.tile[0]
    seconds = tile_seconds(tiling.tile, LANES_RATE)
    own = x.region(grid, block)
    words = _lane_words(build, edge, x, grid) | {"block0": block, "block1": block + 1}
    for strand, (low, high) in enumerate(evenly(count, parts, LEAST_PLANES)):
        step.add(
            tile_lane_planes,
            words | {"plane0": low, "plane1": high},
            what=what,
            cost=PLANES_SHARE * seconds * (high - low) / count,
            divides=True,
            reads=_read(build, edge, tiling, x.stretch(grid, block, block + 1), (low, high)),
            writes=[own.as_strand(strand)],
        )
    columns, row = tiling.frequencies // count, x.frequency_stride
    # Spectra take the place of planes, point by point.
    end = End(x.at(grid, block), columns * row, row, 0)
    whole = Columns(count, columns, 1, end, end, LANES)
    step.tasks.append(gate([own.key], step.stage))
    emit_columns_to(step, build, whole, parts, what, (1.0 - PLANES_SHARE) * seconds, own, own)
    # One gate instead of an edge for each pair of transforms and products.
    step.tasks.append(gate([own.key], step.stage))


def _lane_words(build: Build, edge: Edge, x: FewSpectra, grid: Grid) -> dict[str, int]:
    source, phases, tiling = build.seen(edge), phases_of_edge(build, edge), x.tiling
    part = phased(source, phases).parts[0]
    return {
        "source": part.at(grid.batch, 0, *grid.lattice),
        "source_image": source.block_stride,
        **lattice_strides("source", part, tiling),
        **_phase_words(source, phases, tiling, grid),
        "images": source.channels,
        **sizes("tiles", grid.counts),
        **sizes("step", tiling.new),
        **sizes("size", tiling.tile),
        "target": x.at(grid, 0),
        "target_block": x.block_stride,
        "target_frequency": x.frequency_stride,
        **build.worker_scratch(lanes_floats(tiling.tile)),
    }


def _phase_words(source: Tensor, phases: Phases, tiling: Tiling, grid: Grid) -> dict[str, int]:
    """Return the words of where phases lie, and how far those of a lattice reach."""
    strides = source.z_stride, source.y_stride, source.x_stride
    first = map(mul, grid.lattice, phases.stride)
    return {
        **sizes("extent", map(sub, source.shape, first)),
        **sizes("apart", map(mul, phases.stride, tiling.dilation)),
        **sizes("phases", phases.counts),
        **sizes("phase", map(mul, phases.apart, strides)),
        **sizes("between", phases.apart),
    }


def _read(
    build: Build, edge: Edge, tiling: Tiling, stretch: Stretch, some: tuple[int, int] | None = None
) -> list[Region]:
    """Return what some tiles, or `some` of their planes, read of all phases."""
    low, high = some or (0, tiling.tile[0])
    window = Window((low, 0, 0), (high - low, *tiling.tile[1:]))
    return [
        part.region(stretch.grid.batch, image, *planes)
        for part in phased(build.seen(edge), phases_of_edge(build, edge)).parts
        if (planes := planes_of(part, tiling, stretch, window))
        for image in range(part.channels)
    ]
