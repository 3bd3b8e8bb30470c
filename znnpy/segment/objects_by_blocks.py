"""Objects of volumes beyond memory: fragments tile by tile, one graph of all, labels block by block; restartable."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from znnpy.data.fingerprint import fingerprint
from znnpy.data.opening import open_volume
from znnpy.data.volume import Array, Triple, Volume
from znnpy.data.writing.block_output import BlockOutput, Finished, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.preflight import refuse_loss, refuse_output
from znnpy.errors import VolumeError, reason, refuse_own
from znnpy.registry import resolved
from znnpy.segment.job import Request, remark_on_largest, settled
from znnpy.segment.method import Method
from znnpy.segment.methods import SURER, boundaries
from znnpy.segment.probabilities import doubt, scaled
from znnpy.segment.processes import each
from znnpy.segment.region_graph import graph_of, objects_of
from znnpy.segment.tile_store import Summary
from znnpy.segment.tile_work import (
    Settings,
    Show,
    Work,
    refuse_graph,
    refuse_memory,
    triple,
    work_of,
)
from znnpy.segment.tiles import box, cut


def write_objects(
    destination: Destination, volume: Volume, request: Request, settings: Settings | None = None
) -> Summary | None:
    """Write the objects of a prediction, uint64 (z, y, x); return what came out, None if only the end was left to do.

    The method is one with `join`. Stopped at any moment, a call with the same arguments goes on. Raises VolumeError for
    predictions and options that the method does not take, outputs in the way, too little memory, and disks that fail.
    """
    settings = settings or Settings()
    found, method, threshold = settled(volume, request)
    refuse_output(destination)
    refuse_loss(destination, [volume])
    work = work_of(destination, volume, request, (found, method, threshold), settings)
    refuse_memory(volume, work, settings)
    summary = None
    try:
        with suppress(Finished), open_output(destination, work.spec) as output:
            left = [region for region in work.spec.blocks() if region not in output.done]
            if left:
                work.store.begin(work.spec.head(destination.dataset))
                _cut_tiles(work, settings)
                summary = _settle(work, volume, method, request.min_size, settings)
                _fill(work, output, left, settings)
            # Before the end, so that whoever is killed in between has the end left to do.
            work.store.remove()
            output.finish()
    except OSError as error:
        refuse_own(error)
        raise VolumeError(f"{destination.path} cannot be written: {reason(error)}") from error
    return summary


def cut_tile(work: Work, place: Triple) -> float:
    """Cut a tile and keep it; return the largest probability that was read."""
    highest = 0.0
    with open_volume(work.path, work.dataset, allow_filters=work.allow_filters) as volume:
        if fingerprint(volume, work.path) != work.fingerprint:
            raise VolumeError(f"{volume.name} is another file now than when the job began")

        def read(lower: Triple, upper: Triple) -> NDArray[np.float32]:
            nonlocal highest
            stored = volume.read(lower, upper)[list(work.shown.channels)]
            values = np.asarray(scaled(stored, volume), np.float32)
            highest = max(highest, float(values.max()))
            # After reading: a file that changes meanwhile would give a tile of both.
            volume.verify()
            return boundaries(values, work.shown.kind, work.shown.offsets)

        labels, part = cut(work.tiling, place, read, SURER)
    work.store.write(place, labels, part, highest)
    return highest


def filled(work: Work, region: Region) -> Array:
    """Return the labels of a block, uint64 (1, z, y, x)."""
    lower, upper = region
    labels = np.zeros(np.subtract(upper, lower), np.uint64)
    for place in work.tiling.meeting(lower, upper):
        begin, end = work.tiling.region(place)
        inner = [max(a, b) for a, b in zip(lower, begin, strict=True)]
        outer = [min(a, b) for a, b in zip(upper, end, strict=True)]
        here, there = (
            box(triple(np.subtract(inner, origin)), triple(np.subtract(outer, origin)))
            for origin in (lower, begin)
        )
        labels[here] = work.store.numbers(place)[work.store.labels(place)[there]]
    return labels[None]


def put(work: Work, region: Region) -> int:
    """Fill a block in a worker; return the checksum of what is on the disk."""
    with open_output(work.destination, work.spec, attached=True) as output:
        return output.put(region[0], filled(work, region))


class _Count:
    def __init__(self, show: Show, what: str, total: int, left: int) -> None:
        self._show, self._what, self._total, self._done = show, what, total, total - left

    def next(self) -> None:
        self._done += 1
        self._show(self._what, self._done, self._total)


def _cut_tiles(work: Work, settings: Settings) -> None:
    places = work.tiling.places
    left = [place for place in places if not work.store.has(place)]
    count = _Count(settings.show, "tiles cut", len(places), len(left))
    each(left, partial(cut_tile, work), lambda *_: count.next(), settings.client)


def _settle(work: Work, volume: Volume, method: Method, least: int, settings: Settings) -> Summary:
    """Find the objects of all fragments, unless that is done."""
    store, places = work.store, work.tiling.places
    if not store.settled:
        doubt(volume, max(map(store.highest, places)))
        graph = graph_of(work.tiling, store.part)
        refuse_graph(volume, graph, settings)
        standing = resolved(method.join)(graph, work.tiling.level, least)
        numbers, sizes = objects_of(graph, standing, least)
        tables = [numbers[graph.numbers(store.part(place).ids)] for place in places]
        largest = int(sizes.argmax()) + 1 if len(sizes) else 0
        most = int(sizes.max()) if len(sizes) else 0
        store.settle(tables, places, Summary(len(sizes), int(sizes.sum()), largest, most))
    found = store.summary()
    if found.objects:
        remark_on_largest(volume, work.shown, found.largest, found.voxels)
    return found


def _fill(work: Work, output: BlockOutput, left: Sequence[Region], settings: Settings) -> None:
    """Write the blocks that are left."""

    def write(region: Region) -> int:
        return output.put(region[0], filled(work, region))

    there = write if settings.client is None else partial(put, work)
    count = _Count(settings.show, "blocks written", len(work.spec.blocks()), len(left))

    def acknowledge(region: Region, checksum: int) -> None:
        output.acknowledge(region, checksum)
        count.next()

    each(left, there, acknowledge, settings.client)
