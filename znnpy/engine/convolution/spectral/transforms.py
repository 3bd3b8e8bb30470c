"""Tasks that transform groups of tiles and back, by the layout of their spectra: blocked or packed."""

from __future__ import annotations

from collections.abc import Iterator

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.spectral import blocked_transforms, packed_transforms
from znnpy.engine.convolution.spectral.planes_apart import columns_first, plane_parts
from znnpy.engine.convolution.spectral.tile_arguments import ORIGIN
from znnpy.engine.convolution.tiles import Stretch, TileSpectra, Window, bands_for, squares_of
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity
from znnpy.geometry import voxels
from znnpy.network.types import Node, Triple


def emit_spectra(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    images: Views,
    window: Window,
    group: int,
    what: Identity,
) -> None:
    """Declare the transforms of a group of the images' tiles; zeros stand where a tile reaches beyond them."""
    tasks_of = (
        packed_transforms.spectra_tasks if spectra.packed else blocked_transforms.spectra_tasks
    )
    for number, task in enumerate(tasks_of(build, spectra, images, window, group)):
        step.add(
            task.kernel,
            task.words,
            what=what,
            cost=task.cost,
            divides=True,
            reads=[region for _, region in task.touched(spectra, window)],
            writes=[spectra.places[group].region(strand=number)],
        )
    # Many transforms write a group and many products read it: one gate instead of an edge for each
    # pair.
    join(step, spectra.places[group])


def emit_images(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    images: Views,
    count: Triple,
    group: int,
    what: Identity,
    node: Node | None = None,
) -> None:
    """Declare the transforms back of a group: the first `count` points of each tile, added up where tiles overlap.

    Bias and function of `node` are applied to points of tiles that do not overlap.
    """
    tiling, window = spectra.tiling, Window(ORIGIN, count)
    strands, bands = tiling.tiles * spectra.parts, bands_for(build.layout.sharers)
    join(step, spectra.places[group])
    tasks_of = packed_transforms.image_tasks if spectra.packed else blocked_transforms.image_tasks
    tasks = list(tasks_of(build, spectra, images, count, group))
    parts = plane_parts(build, spectra, images, count, tasks)
    if parts > 1:
        spectra, tasks = columns_first(step, build, spectra, group, tasks, parts, what)
    for task in tasks:
        first = task.blocks.start * LANES
        step.add(
            task.kernel,
            {
                **task.words,
                # Transforms do not normalise; forward and back together would multiply by the
                # points of a tile.
                "scale": 1.0 / voxels(tiling.tile),
                "bias": build.bias_address(node.name, first) if node else 0,
                "relu": int(node is not None and node.function == "relu"),
            },
            what=what,
            cost=task.cost,
            divides=True,
            reads=[
                spectra.places[group].region(),
                *(build.bias_reads(node.name) if node else ()),
            ],
            writes=[
                # Tiles that overlap are added one after the other; those of other lattices or phases never do.
                region.as_strand(task.phase * strands + strand)
                for stretch, region in task.touched(spectra, window)
                for strand in (
                    _shared(spectra, stretch, bands) if count != tiling.new else (task.strand,)
                )
            ],
        )


def _shared(spectra: TileSpectra, stretch: Stretch, bands: int) -> Iterator[int]:
    """Yield strands for the squares and parts of channels that overlapping tiles touch."""
    parts = range(spectra.parts) if stretch.part is None else stretch.part
    for square in squares_of(spectra.tiling, stretch, bands):
        yield from (square * spectra.parts + part for part in parts)
