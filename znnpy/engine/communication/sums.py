"""Additions over ranks: by the tree, hop after hop, or by the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from znnpy_kernels.simd.rows import copy_flat

from znnpy.distributed.ranks import Hop
from znnpy.engine.communication.bundles import Bundle, size_of
from znnpy.engine.communication.outbox import Outbox
from znnpy.engine.layers.totals import Total, add_total
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.plan.cost import MEMORY_RATE

RECEIVED = Use("sums of other ranks")
BUCKETS = Use("gradients that are sent together", RECEIVED.what)


def add_up(step: Step, build: Build, outbox: Outbox, hops: Sequence[Hop], bundle: Bundle) -> None:
    """The sum over ranks, at the last hop's end."""
    for into, source in hops:
        tag = outbox.tag()
        if outbox.rank == source:
            outbox.send(step, into, tag, bundle)
        elif outbox.rank == into:
            room = _room(build, outbox, RECEIVED, bundle)
            phase = outbox.receive(step, source, tag, room)
            for own, more in zip(bundle, room, strict=True):
                add_total(step, own, more, Part.RANKS, phase)


def hand_down(step: Step, outbox: Outbox, hops: Sequence[Hop], bundle: Bundle) -> None:
    """What the last hop's end has, for all ranks, by the same hops."""
    for into, source in reversed(hops):
        tag = outbox.tag()
        if outbox.rank == into:
            outbox.send(step, source, tag, bundle)
        elif outbox.rank == source:
            outbox.take(step, into, tag, bundle)


def add_by_library(step: Step, build: Build, outbox: Outbox, bundle: Bundle) -> None:
    """The sum over ranks, for all of them, in the library's order; what lies apart is brought together."""
    if len(bundle) == 1:
        outbox.sum_in_place(step, bundle)
        return
    bucket = _room(build, outbox, BUCKETS, bundle)
    for own, copy in zip(bundle, bucket, strict=True):
        _copy(step, own, copy, -1)
    phase = outbox.sum(step, (_together(bucket),))
    for own, copy in zip(bundle, bucket, strict=True):
        _copy(step, copy, own, phase)


def _room(build: Build, outbox: Outbox, use: Use, bundle: Bundle) -> Bundle:
    """Memory for another bundle like this, in one place, its pieces counted through."""
    name = Name(use, bundle[0].owner, (outbox.room(),))
    buffer = build.common(name, size_of(bundle) // 4)
    found, pieces, numbers = list[Total](), 0, 0
    for total in bundle:
        found.append(replace(total, buffer=buffer, before=(pieces, numbers)))
        pieces, numbers = pieces + total.pieces, numbers + total.ends[-1]
    return tuple(found)


def _together(bucket: Bundle) -> Total:
    """All totals of a bucket as one."""
    ends = [total.before[1] + end for total in bucket for end in total.ends]
    return replace(bucket[0], ends=tuple(ends), before=(0, 0))


def _copy(step: Step, source: Total, target: Total, phase: int) -> None:
    step.add(
        copy_flat,
        {"source": source.at(0), "target": target.at(0), "length": source.size // 4},
        what=Identity(source.owner, Pass.UPDATE, Part.BUCKET),
        cost=2 * source.size / MEMORY_RATE,
        reads=[source.region()],
        writes=[target.region()],
        phase=phase,
    )
