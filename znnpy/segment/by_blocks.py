"""Labels whose voxels depend on no others: written block by block, so that a stopped process goes on."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from znnpy.data.class_labels import MOST
from znnpy.data.process_memory import available_memory
from znnpy.data.volume import SLAB, Array, Shape4, Triple, Volume, place_attributes
from znnpy.data.writing.block_output import Finished, OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.preflight import refuse_loss, refuse_output
from znnpy.errors import VolumeError, reason, refuse_own
from znnpy.registry import resolved
from znnpy.scheduler.core_count import available_cores
from znnpy.segment.job import Request, method_of, refuse_channels
from znnpy.segment.processes import each
from znnpy.segment.source import Source
from znnpy.segment.tile_work import Settings


@dataclass(frozen=True)
class _Work:
    """What a process needs to know to label a block."""

    source: Source
    request: Request
    channels: tuple[int, ...]
    destination: Destination
    spec: OutputSpec


def write_by_blocks(
    destination: Destination, volume: Volume, request: Request, settings: Settings | None = None
) -> OutputSpec:
    """Write the labels of a prediction; blocks that an earlier process wrote are kept. Return what was written.

    Blocks are small beside the `memory` of the settings, or of 64 MiB of the prediction. Raises VolumeError for
    predictions that are no probabilities, options that the method does not take, outputs in the way and disks that
    fail.
    """
    settings = settings or Settings()
    channels = _channels(volume, request)
    refuse_output(destination)
    refuse_loss(destination, [volume])
    work = _work(destination, volume, request, channels, settings, _size(settings))
    blocks = work.spec.blocks()
    try:
        with suppress(Finished), open_output(destination, work.spec) as output:
            left = [region for region in blocks if region not in output.done]
            done = count(len(blocks) - len(left) + 1)

            def write(region: Region) -> int:
                return output.put(region[0], _labels(work, volume, region))

            def acknowledge(region: Region, checksum: int) -> None:
                output.acknowledge(region, checksum)
                settings.show("blocks written", next(done), len(blocks))

            there = write if settings.client is None else partial(_put, work)
            each(left, there, acknowledge, settings.client, _threads(settings))
            output.finish()
    except OSError as error:
        refuse_own(error)
        raise VolumeError(f"{destination.path} cannot be written: {reason(error)}") from error
    return work.spec


def _size(settings: Settings) -> int:
    """Return the bytes of a block, of which each thread has one."""
    if settings.memory is None:
        return SLAB
    of_each = settings.memory // (PARTS * _threads(settings))
    return min(SLAB, settings.memory // PARTS, max(SMALL, of_each))


def _threads(settings: Settings) -> int:
    """Return how many blocks are labelled at once."""
    free = available_memory() if settings.memory is None else settings.memory
    return settings.threads or max(1, min(available_cores(), free // (PARTS * SLAB)))


def _put(work: _Work, region: Region) -> int:
    """Label a block in a worker; return the checksum of what is on the disk."""
    with (
        work.source.opened() as volume,
        open_output(work.destination, work.spec, attached=True) as output,
    ):
        return output.put(region[0], _labels(work, volume, region))


def _labels(work: _Work, volume: Volume, region: Region) -> Array:
    values, request = volume.read(*region), work.request
    # After reading: a file that changes meanwhile would give a block of both.
    volume.verify()
    chosen = values[list(work.channels)] if request.channels else values
    assert request.method is not None
    found: Array = resolved(method_of(request.method).blocks)(chosen, request.numbering)
    if request.numbering.first > 0 and len(values) > 1:
        # A mask of `znnpy predict` leaves voxels at which all classes are 0; those chosen may be 0 elsewhere, too.
        found[~values.any(axis=0)] = 0
    return found[None]


def _channels(volume: Volume, request: Request) -> tuple[int, ...]:
    options = {
        "--threshold": request.threshold is not None,
        "--min-size": request.min_size > 0,
        "--kind": request.kind is not None,
    }
    given = [name for name, is_there in options.items() if is_there]
    if given:
        raise VolumeError(f"--method {request.method} takes no {' or '.join(given)}")
    if volume.dtype.kind not in "uf" or (volume.dtype.kind == "u" and volume.dtype.itemsize > 2):
        raise VolumeError(
            f"{volume.name} holds {volume.dtype}; expected probabilities or logits as floats, uint8 or uint16"
        )
    refuse_channels(volume, request.channels)
    channels = request.channels or tuple(range(volume.channels))
    first, regions = request.numbering.first, request.numbering.regions
    if regions is not None and len(regions) != len(channels):
        raise VolumeError(
            f"{volume.name}: --regions names {len(regions)} labels, for {len(channels)} channel(s)"
        )
    if max(regions or [first + len(channels) - 1]) >= MOST:
        what = (
            f"{len(channels)} classes from {first} on" if regions is None else f"regions {regions}"
        )
        raise VolumeError(f"{volume.name}: {what} do not fit into uint16")
    return channels


def _work(
    destination: Destination,
    volume: Volume,
    request: Request,
    channels: tuple[int, ...],
    settings: Settings,
    size: int,
) -> _Work:
    source = Source.of(volume, settings.allow_filters)
    spec = _spec(volume, request, channels, size, source.fingerprint)
    place = replace(destination, path=destination.path.resolve())
    return _Work(source, request, channels, place, spec)


def _spec(
    volume: Volume, request: Request, channels: tuple[int, ...], size: int, prediction: str
) -> OutputSpec:
    z, y, x = volume.extent
    shape: Shape4 = (1, z, y, x)
    job = {
        "prediction": prediction,
        "method": request.method,
        "channels": list(channels),
        "first": request.numbering.first,
        "regions": request.numbering.regions,  # None is what a job without them has, too
    }
    attributes = {
        **place_attributes(volume),
        "prediction": volume.name,
        "method": request.method,
    }
    kind = request.numbering.type(len(channels))
    block = block_of(volume, size)
    return OutputSpec(shape, kind, block, attributes, job, channels=False)


def block_of(volume: Volume, size: int) -> Triple:
    """Return blocks of whole planes, of parts of planes where these are large, of about `size` bytes of all channels.

    As deep as the storage units of the volume if that fits.
    """
    depth, height, width = volume.extent
    voxel = volume.channels * volume.dtype.itemsize
    z, y, x = min(depth, volume.chunk[0]), height, width
    while z * y * x * voxel > size and max(y, z, x) > 1:
        # Along x last, as rows of a file are contiguous.
        if y > LEAST or (z == 1 and x == 1):
            y = math.ceil(y / 2)
        elif z > 1:
            z = math.ceil(z / 2)
        else:
            x = math.ceil(x / 2)
    deeper = max(1, size // (z * y * x * voxel))
    return (min(depth, z * deeper), y, x)


PARTS = 8  # of the memory, one of which a block takes: it is copied once or twice, and the process has its own
SMALL = 1 << 20  # bytes of a block, fewer of which are not worth a thread of its own
LEAST = 64  # rows of a block, unless a plane of so few is too large
