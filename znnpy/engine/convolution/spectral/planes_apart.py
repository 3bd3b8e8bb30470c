"""Transforms back in two stages, where tiles are fewer than the workers: columns of all tiles, then planes of each.

Columns are the same work for any worker, whatever tiles overlap; planes follow each other in turns, but each of a tile
is a task of its own. The same bits as `tile_images` and `packed_images`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from znnpy_kernels.spectral.packed_planes import packed_plane_images, plane_floats
from znnpy_kernels.spectral.tile_plane_images import tile_plane_images

from znnpy.engine.convolution.ring_buffers import ring_slot
from znnpy.engine.convolution.spectral.column_tasks import (
    LEAST_PLANES,
    Columns,
    End,
    emit_columns_from,
)
from znnpy.engine.convolution.spectral.transform_task import TransformTask
from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra, TileSpectra
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity
from znnpy.network.types import Triple
from znnpy.plan.partition import evenly
from znnpy.plan.tiles import PLANES_SHARE

HALF = Use("half transformed tiles")


def plane_parts(
    build: Build, spectra: TileSpectra, images: Views, count: Triple, tasks: Sequence[TransformTask]
) -> int:
    """Return into how many parts the planes of each of these tasks are cut; 1: each transforms whole tiles."""
    tiling, grain = spectra.tiling, build.layout.grain
    if isinstance(spectra, PlaneSpectra) or not _may_be_cut(spectra, images, count, tasks):
        return 1
    turns = tiling.turns if count != tiling.new else 1
    if turns > 1:
        grain = grain.in_turn(turns)
    # Groups are under way at the same time, turns are not.
    seconds = PLANES_SHARE * sum(task.cost for task in tasks) * spectra.groups / turns
    beside = max(1, len(tasks) * spectra.groups // turns)
    return min(count[0] // LEAST_PLANES, grain.rounds(seconds, beside))


def _may_be_cut(
    spectra: TileSpectra, images: Views, count: Triple, tasks: Sequence[TransformTask]
) -> bool:
    """Return whether planes of one tile may be written by several tasks."""
    # Of tiles of one plane columns lie along y; regions tell planes apart along z alone.
    if count[0] < 2 * LEAST_PLANES or any(part.cut != 0 for part in images.parts):
        return False
    if not spectra.packed or count == spectra.tiling.new:
        return True
    # A vector may hold a tile before one of an earlier turn along z: then one task must write all planes.
    apart = -(-spectra.tiling.tile[0] // spectra.tiling.new[0])
    return all(it.grid.counts[0] <= apart for task in tasks for it in task.stretches)


def columns_first(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    group: int,
    tasks: Sequence[TransformTask],
    parts: int,
    what: Identity,
) -> tuple[TileSpectra, list[TransformTask]]:
    """Declare the tasks of a group's columns; return where its planes then lie, and the tasks of these."""
    half = _half(step, build, spectra, group, what) if spectra.packed else spectra
    emit_columns_from(
        step, build, _columns(spectra, half, group), what,
        (1.0 - PLANES_SHARE) * sum(task.cost for task in tasks),
        spectra.places[group].region(), half.places[group].region(),
    )  # fmt: skip
    join(step, half.places[group])
    return half, [own for task in tasks for own in _planes(build, half, group, task, parts)]


def _half(
    step: Step, build: Build, spectra: TileSpectra, group: int, what: Identity
) -> PlaneSpectra:
    """Return room for a group's half transformed tiles: parts of packed spectra lie too far apart for their own."""
    half = PlaneSpectra(spectra.tiling, spectra.channels, spectra.most)
    name = Name(HALF, what.owner or "", (what.serves, what.part))
    half.places[group] = ring_slot(step, build, name, half.floats, group, spectra.groups)
    return half


def _columns(spectra: TileSpectra, half: TileSpectra, group: int) -> Columns:
    points, frequencies = spectra.tiling.tile[0], spectra.tiling.frequencies
    columns, row = frequencies // points, spectra.frequency_stride
    vector = spectra.block_stride
    own = End(spectra.at(group), columns * row, row, vector)
    planes = own
    if isinstance(half, PlaneSpectra):
        planes = End(half.at(group), half.point_stride, PAIR, half.vector_stride)
    return Columns(points, columns, spectra.vectors(group), own, planes, spectra.imaginary)


def _planes(
    build: Build, half: TileSpectra, group: int, task: TransformTask, parts: int
) -> Iterator[TransformTask]:
    """Yield the tasks of the planes of a task, the last ones first, as one task would write them."""
    words, count = dict(task.words), int(task.words["count_z"])
    kernel = tile_plane_images
    if isinstance(half, PlaneSpectra):
        kernel = packed_plane_images
        words = {name: word for name, word in words.items() if not name.startswith("spectra")}
        words |= {"planes": half.at(group), **build.worker_scratch(plane_floats(half.tiling.tile))}
    for low, high in reversed(evenly(count, parts, LEAST_PLANES)):
        yield replace(
            task,
            kernel=kernel,
            words=words | {"plane0": low, "plane1": high},
            cost=PLANES_SHARE * task.cost * (high - low) / count,
            planes=(low, high),
        )
