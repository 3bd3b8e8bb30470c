"""Objects of volumes beyond memory: fragments tile by tile, one graph of all, labels block by block; restartable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from znnpy.data.volume import Triple, Volume
from znnpy.data.writing.block_output import BlockOutput, Finished, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.preflight import refuse_loss, refuse_output
from znnpy.errors import VolumeError, reason, refuse_own
from znnpy.registry import resolved
from znnpy.segment.job import Request, settled
from znnpy.segment.method import Method
from znnpy.segment.probabilities import doubt
from znnpy.segment.processes import each
from znnpy.segment.region_graph import graph_of, objects_of
from znnpy.segment.remarks import remark
from znnpy.segment.summary import Summary
from znnpy.segment.tile_passes import cut_tile, filled, grow_tile, meet_tile, put
from znnpy.segment.tile_work import (
    Settings,
    Show,
    Work,
    refuse_graph,
    settled_threads,
    work_of,
)


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
    threads = settled_threads(volume, method, work, settings)
    settings = replace(settings, threads=threads)
    if method.ready is not None:
        resolved(method.ready)(work.wanted)
    summary = None
    try:
        with suppress(Finished), open_output(destination, work.spec) as output:
            left = [region for region in work.spec.blocks() if region not in output.done]
            if left:
                work.store.begin(work.spec.head(destination.dataset))
                with _kept_tiles(work):
                    summary = _objects(work, volume, method, settings)
                _fill(work, output, left, settings)
            # Before the end, so that whoever is killed in between has the end left to do.
            work.store.remove()
            output.finish()
    except OSError as error:
        refuse_own(error)
        raise VolumeError(f"{destination.path} cannot be written: {reason(error)}") from error
    return summary


@contextmanager
def _kept_tiles(work: Work) -> Iterator[None]:
    """Remove the folder of tiles where a prediction is refused before any is done, as the output then is."""
    try:
        yield
    except VolumeError:
        if not any(map(work.store.has, work.tiling.places)):
            work.store.remove()
        raise


class _Count:
    def __init__(self, show: Show, what: str, total: int, left: int) -> None:
        self._show, self._what, self._total, self._done = show, what, total, total - left

    def next(self) -> None:
        self._done += 1
        self._show(self._what, self._done, self._total)


def _pass(
    what: str,
    work: Work,
    settings: Settings,
    make: Callable[[Work, Triple], object],
    has: Callable[[Triple], bool],
) -> None:
    """Do one thing to all tiles to which it was not done."""
    places = work.tiling.places
    left = [place for place in places if not has(place)]
    count = _Count(settings.show, what, len(places), len(left))
    each(left, partial(make, work), lambda *_: count.next(), settings.client, settings.threads)


def _objects(work: Work, volume: Volume, method: Method, settings: Settings) -> Summary:
    """Find the objects of all fragments, unless that is done; return what came out."""
    store = work.store
    _pass("tiles cut", work, settings, cut_tile, store.has)
    if method.meet is not None:
        _pass("tiles met", work, settings, meet_tile, store.has_bonds)
    if not store.settled:
        _settle(work, volume, method, settings)
    found = store.summary()
    if method.grow is not None:
        _pass("tiles grown", work, settings, grow_tile, store.has_grown)
        found = store.grown_summary(found.objects, work.tiling.places)
    remark(volume, method, work.wanted, found)
    return found


def _settle(work: Work, volume: Volume, method: Method, settings: Settings) -> None:
    store, places, least = work.store, work.tiling.places, work.wanted.min_size
    doubt(volume, max(map(store.highest, places)))
    graph = graph_of(work.tiling, store.part, store.bonds if method.meet is not None else None)
    refuse_graph(volume, graph, settings)
    standing = resolved(method.join)(graph, work.wanted)
    numbers, sizes = objects_of(graph, standing, least)
    tables = [numbers[graph.numbers(store.ids(place))] for place in places]
    store.settle(tables, places, Summary.of(sizes))


def _fill(work: Work, output: BlockOutput, left: Sequence[Region], settings: Settings) -> None:
    """Write the blocks that are left."""

    def write(region: Region) -> int:
        return output.put(region[0], filled(work, region))

    there = write if settings.client is None else partial(put, work)
    count = _Count(settings.show, "blocks written", len(work.spec.blocks()), len(left))

    def acknowledge(region: Region, checksum: int) -> None:
        output.acknowledge(region, checksum)
        count.next()

    each(left, there, acknowledge, settings.client, settings.threads)
