"""What finding objects tile by tile begins with: all that its results depend on, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil

from znnpy.data.process_memory import available_memory, readable
from znnpy.data.volume import Triple, Volume
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.destination import Destination
from znnpy.errors import VolumeError
from znnpy.scheduler.core_count import available_cores
from znnpy.segment.bonds import BOND
from znnpy.segment.job import Meaning, Request, label_attributes
from znnpy.segment.method import Method
from znnpy.segment.region_graph import EDGE, FRAGMENT, RegionGraph
from znnpy.segment.source import Source
from znnpy.segment.tile_store import TileStore
from znnpy.segment.tiles import Tiling, tiling_of
from znnpy.segment.wanted import Wanted

VERSION = 2  # of how fragments are made: tiles of another one are made anew
Show = Callable[[str, int, int], None]
"""Is told what is being done, and how many of how many are."""


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Passes:
    """What is done to each tile: `Method.cut`, `meet` and `grow`, each as it is there or as it is imported."""

    cut: Any
    meet: Any = None
    grow: Any = None


@dataclass(frozen=True)
class Work:
    """What a process needs to know to cut a tile or to fill a block."""

    source: Source
    channels: tuple[int, ...]
    wanted: Wanted
    passes: Passes
    tiling: Tiling
    store: TileStore
    destination: Destination
    spec: OutputSpec


@dataclass(frozen=True)
class Settings:
    """How objects are written by blocks, which changes none: `block` (z, y, x), bytes of `memory` of this process.

    `client`: of a dask scheduler whose workers do it. `threads`: tiles worked on at once on this machine, None: as
    many as cores and memory allow. `tile` and `halo` alone change where fragments end, None: those of the method.
    """

    block: Triple | None = None
    memory: int | None = None
    allow_filters: tuple[str, ...] = ()
    client: Any = None
    threads: int | None = None
    tile: Triple | None = None
    halo: int | None = None
    show: Show = _silent


def work_of(
    destination: Destination,
    volume: Volume,
    request: Request,
    chosen: tuple[Meaning, Method, float],
    settings: Settings,
) -> Work:
    """Return what processes need to know to find the objects of a volume, as `settled` chose."""
    shown, method, threshold = chosen
    source = Source.of(volume, settings.allow_filters)
    wanted = Wanted(shown.kind, threshold, shown.offsets, request.min_size)
    tiling = tiling_of(
        method, volume.extent, volume.resolution, wanted.level, settings.tile, settings.halo
    )
    passes = Passes(method.cut, method.meet, method.grow)
    job = _identity(volume, source.fingerprint, request, chosen, tiling)
    attributes = label_attributes(volume, method.name, threshold, request)
    z, y, x = volume.extent
    block = _cut_off(settings.block or tiling.tile, volume.extent)
    spec = OutputSpec((1, z, y, x), np.dtype(np.uint64), block, attributes, job, channels=False)
    place = replace(destination, path=destination.path.resolve())
    store = TileStore.beside(destination.path)
    return Work(source, shown.channels, wanted, passes, tiling, store, place, spec)


def _identity(
    volume: Volume,
    prediction: str,
    request: Request,
    chosen: tuple[Meaning, Method, float],
    tiling: Tiling,
) -> dict[str, Any]:
    """Return all that labels depend on; `prediction`: its fingerprint."""
    shown, method, threshold = chosen
    return {
        "version": VERSION,
        "prediction": prediction,
        "method": method.name,
        "kind": shown.kind,
        "channels": list(shown.channels),
        "offsets": [list(offset) for offset in shown.offsets],
        "threshold": threshold,
        "min_size": request.min_size,
        "tile": list(tiling.tile),
        "halo": tiling.halo,
        "voxel size": list(volume.resolution),
    }


def _cut_off(size: Triple, most: Triple) -> Triple:
    return triple(np.minimum(size, most))


def triple(values: Any) -> Triple:
    """Return three numbers, z, y, x, as integers of Python."""
    z, y, x = (int(value) for value in values)
    return (z, y, x)


def settled_threads(volume: Volume, method: Method, work: Work, settings: Settings) -> int:
    """Return how many tiles are worked on at once; raise VolumeError where these do not fit, before any is."""
    channels = len(work.channels)
    each_voxel = method.voxel_bytes + channels * (8 + method.channel_bytes)
    each_voxel += volume.channels * volume.dtype.itemsize
    block = 16 * int(np.prod(work.spec.block, dtype=np.int64))
    tile = int(work.tiling.most_voxels * each_voxel) + block
    taken, free = _memory(settings)
    # The room of one is left to others.
    fitting = max(1, (free - taken) // tile - 1)
    threads = min(settings.threads or min(available_cores(), fitting), len(work.tiling.places))
    of = f"of {work.tiling.tile} voxels (z, y, x)"
    what = f"a tile {of}" if threads == 1 else f"work on {threads:,} tiles {of} at once"
    way_out = (
        "objects depend on the size of tiles, so no --block changes it: allow more"
        if threads == 1
        else "take fewer --threads"
    )
    _refuse(volume, what, threads * tile, settings, f"; {way_out}")
    return threads


def refuse_graph(volume: Volume, graph: RegionGraph, settings: Settings) -> None:
    """Raise VolumeError where the graph of all fragments does not fit, before it is solved."""
    bins = 0 if graph.faces.counts is None else 12 * graph.faces.counts.shape[1]
    needed = len(graph.ids) * FRAGMENT + len(graph.faces.pairs) * (EDGE + bins)
    if graph.bonds is not None:
        needed = len(graph.ids) * FRAGMENT + len(graph.bonds.pairs) * BOND
    _refuse(volume, f"the graph of {len(graph.ids):,} fragments", needed, settings)


def _memory(settings: Settings) -> tuple[int, int]:
    """Return bytes that this process has taken of those it may take, and these."""
    if settings.memory is None:
        return 0, available_memory()
    return int(psutil.Process().memory_info().rss), settings.memory


def _refuse(volume: Volume, what: str, needed: int, settings: Settings, way_out: str = "") -> None:
    taken, free = _memory(settings)
    if needed + taken > free:
        kind = "available" if settings.memory is None else "allowed"
        raise VolumeError(
            f"{volume.name}: {what} takes about {readable(needed + taken)} of memory, but only {readable(free)} are "
            f"{kind}{way_out}"
        )
