"""Tiled FFT convolution of sources with few channels: lanes hold tiles of one channel, not channels of one tile.

Their spectra take LANES / channels times less time and memory, so all tiles are transformed at once, and what they are
multiplied with comes in small groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul, sub
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.few_channel_tiles import lanes_floats, tile_lanes
from znnpy_kernels.spectral.few_columns import RUNS, few_gradients, few_products
from znnpy_kernels.spectral.gemm import spectral_gradients, spectral_products

from znnpy.engine.convolution.spectral.buffers import (
    Filters,
    phases_of_edge,
    tiling_of,
)
from znnpy.engine.convolution.spectral.columns import column_words, line_seconds
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
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.polyphase import Phases
from znnpy.plan.tiles import FEW_RATE, LANES_RATE, column_group, tile_seconds

FEW_TILES = Use("spectra of tiles of few channels", "source spectra")

# Larger: a shorter chain of additions, more tasks to dispatch.
SHORTER = 4  # tasks than others


class _Run(NamedTuple):
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

    def runs(self, others: TileSpectra, group: int) -> list[_Run]:
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
                found.append(_Run(stretch.grid, block, lane, tile, high - low))
        return found

    def _across(self, others: TileSpectra, group: int) -> list[_Run]:
        found = []
        for stretch in others.stretches(group):
            # One run for each place within a block: every `tiles`-th tile lies in the same lanes.
            for first in range(stretch.low, min(stretch.low + self.tiles, stretch.high)):
                tile, tiles = stretch.grid.first + first - stretch.start, stretch.high - first
                block, place = divmod(first, self.tiles)
                count = -(-tiles // self.tiles)
                lane = place * self.channels
                found.append(_Run(stretch.grid, block, lane, tile, count, across=True))
        return found

    def regions(self, run: _Run) -> list[Region]:
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
    source, phases, tiling = build.seen(edge), phases_of_edge(build, edge), x.tiling
    parts = phased(source, phases).parts
    seconds = tile_seconds(tiling.tile, LANES_RATE)
    for grid in tiling.grids:
        for low, high in build.layout.grain.ranges(x.count(grid), x.count(grid) * seconds):
            step.add(
                tile_lanes,
                {
                    "source": parts[0].at(grid.batch, 0, *grid.lattice),
                    "source_image": source.block_stride,
                    **lattice_strides("source", parts[0], tiling),
                    **_phase_words(source, phases, tiling, grid),
                    "images": source.channels,
                    **sizes("tiles", grid.counts),
                    "block0": low,
                    "block1": high,
                    **sizes("step", tiling.new),
                    **sizes("size", tiling.tile),
                    "target": x.at(grid, 0),
                    "target_block": x.block_stride,
                    "target_frequency": x.frequency_stride,
                    **build.worker_scratch(lanes_floats(tiling.tile)),
                },
                what=what,
                cost=(high - low) * seconds,
                divides=True,
                reads=_read(parts, tiling, x.stretch(grid, low, high)),
                writes=[x.region(grid, block) for block in range(low, high)],
            )


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


def _read(parts: Sequence[Tensor], tiling: Tiling, stretch: Stretch) -> list[Region]:
    """Return what some tiles read of all phases."""
    window = Window((0, 0, 0), tiling.tile)
    return [
        part.region(stretch.grid.batch, image, *planes)
        for part in parts
        if (planes := planes_of(part, tiling, stretch, window))
        for image in range(part.channels)
    ]


def emit_few_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, y: TileSpectra, group: int
) -> None:
    """Declare the spectra of the sums over images, of one group of tiles."""
    count, number = x.tiling.frequencies, 0
    for run in x.runs(y, group):
        seconds = _seconds(run, w, count)
        for low, high in build.layout.grain.ranges(count, seconds):
            step.add(
                spectral_products,
                _words(x, run, w, y, group, low, high),
                what=Identity(edge.name, Pass.FORWARD, Part.PRODUCTS),
                cost=seconds * (high - low) / count,
                divides=True,
                reads=[*x.regions(run), w.place.region()],
                writes=[y.places[group].region(strand=number)],
            )
            # Runs write the same group side by side: each task has a strand of its own.
            number += 1


def emit_few_weight_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, dy: TileSpectra, group: int
) -> None:
    """Declare the tasks that add one group of tiles to the spectra of filter gradients."""
    count = x.tiling.frequencies
    # All runs follow each other in each range: the narrower it is, the shorter is that chain.
    cuts = build.layout.grain.ranges(count, SHORTER * _seconds(x.runs(dy, 0)[0], w, count))
    for number, run in enumerate(x.runs(dy, group)):
        seconds = _seconds(run, w, count)
        for low, high in cuts:
            sums = w.place.region(low, high)
            step.add(
                spectral_gradients,
                {**_words(x, run, w, dy, group, low, high), "accumulate": int(group + number > 0)},
                what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
                cost=seconds * (high - low) / count,
                divides=True,
                reads=[
                    *x.regions(run),
                    dy.places[group].region(),
                    *([sums] if group + number else ()),
                ],
                writes=[sums],
            )


def emit_few_column_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, y: PlaneSpectra, group: int
) -> None:
    """Declare the spectra of the sums over images of one group of tiles, column by column."""
    words, seconds = _column_words(build, x, w, y, group), _column_seconds(x, w, y, group)
    for low, high in build.layout.grain.ranges(y.columns, seconds):
        step.add(
            few_products,
            words | {"w": w.at(), "column0": low, "column1": high},
            what=Identity(edge.name, Pass.FORWARD, Part.PRODUCTS),
            cost=seconds * (high - low) / y.columns,
            divides=True,
            reads=[*_blocks(x, y, group), w.place.region()],
            writes=[y.places[group].region(low, high)],
        )


def emit_few_column_gradients(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, dy: PlaneSpectra, group: int
) -> None:
    """Declare the tasks that add one group of tiles to the spectra of filter gradients, column by column."""
    words = _column_words(build, x, w, dy, group)
    words |= {"w": 0, "gradient": w.at(), "accumulate": int(group > 0)}
    seconds = _column_seconds(x, w, dy, group)
    for low, high in build.layout.grain.ranges(dy.columns, _column_seconds(x, w, dy, 0)):
        sums = w.place.region(low, high)
        step.add(
            few_gradients,
            words | {"column0": low, "column1": high},
            what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
            cost=seconds * (high - low) / dy.columns,
            divides=True,
            reads=[
                *_blocks(x, dy, group),
                dy.places[group].region(low, high),
                *([sums] if group else ()),
            ],
            writes=[sums],
        )


def _column_words(
    build: Build, x: FewSpectra, w: Filters, y: PlaneSpectra, group: int
) -> dict[str, int]:
    runs = x.runs(y, group)
    places = [
        ((x.at(run.grid, run.block, run.lane) - x.place.address) // 4, run.tile, run.tiles)
        for run in runs
    ]
    # The kernel has RUNS sets of words; `runs` says how many count.
    places += [(0, 0, 0)] * (RUNS - len(runs))
    words = column_words(build, x.channels, w, y, group) | {"x": x.place.address, "runs": len(runs)}
    for number, (lane, first, tiles) in enumerate(places):
        words |= {f"lane{number}": lane, f"first{number}": first, f"tiles{number}": tiles}
    return words


def _blocks(x: FewSpectra, y: PlaneSpectra, group: int) -> list[Region]:
    return [x.region(run.grid, run.block) for run in x.runs(y, group)]


def _column_seconds(x: FewSpectra, w: Filters, y: PlaneSpectra, group: int) -> float:
    products = sum(_seconds(run, w, x.tiling.frequencies) for run in x.runs(y, group))
    return line_seconds(y, group) + products


def _words(
    x: FewSpectra, run: _Run, w: Filters, y: TileSpectra, group: int, low: int, high: int
) -> dict[str, int]:
    return {
        "x": x.at(run.grid, run.block, run.lane, low),
        "x_frequency": x.frequency_stride,
        # From tile to tile: a block further, or some lanes further.
        "x_tile": x.block_stride if run.across else x.channels,
        "x_block": PAIR,
        "w": w.at(frequency=low),
        "w_frequency": w.frequency_stride,
        "w_input": w.input_stride,
        "w_block": PAIR,
        "y": y.at(group, run.tile, frequency=low),
        "y_frequency": y.frequency_stride,
        "y_tile": y.tile_stride * (x.tiles if run.across else 1),
        "y_block": y.block_stride,
        "frequencies": high - low,
        "tiles": run.tiles,
        "inputs": x.channels,
        "blocks": y.blocks,
        "x_parts": LANES,
        "y_parts": y.imaginary,
        "lanes": y.last_lanes,
    }


def _seconds(run: _Run, w: Filters, frequencies: int) -> float:
    """Return the seconds of a run's products, bound by the spectra of outputs."""
    # The tiles of outputs, and the filters once.
    return 4.0 * PAIR * w.blocks * frequencies * (run.tiles + 1) / FEW_RATE
