"""Sums over ranks (all-reduce): by a tree of fixed shape, hop after hop, or by the message-passing library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from znnpy_kernels.simd.rows import copy_flat

from znnpy.distributed.buckets import size_of
from znnpy.distributed.reduction_tree import Hop, Ranks
from znnpy.engine.communication.outbox import Bundle, Outbox
from znnpy.engine.layers.gradient_accumulation import Total, add_total
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE

RECEIVED = Use("sums of other ranks")
BUCKETS = Use("gradients that are sent together", RECEIVED.what)


def add_up(step: Step, build: Build, outbox: Outbox, hops: Sequence[Hop], bundle: Bundle) -> None:
    """Declare the sum of a bundle over ranks, by hops (into, from) of the tree; the root ends with it."""
    for into, source in hops:
        # On every rank, whether it takes part in the hop or not: numbers must stay the same
        # everywhere.
        tag = outbox.tag()
        if outbox.rank == source:
            _give(step, outbox, into, tag, bundle)
        elif outbox.rank == into:
            seen = outbox.theirs(source, bundle)
            room = seen or _room(build, outbox, RECEIVED, bundle)
            phase = outbox.receive(step, source, tag, room, empty=bool(seen))
            for own, more in zip(bundle, room, strict=True):
                add_total(step, own, more, Part.RANKS, phase)
            if seen:
                outbox.answer(step, source, tag, bundle)


def hand_down(step: Step, outbox: Outbox, hops: Sequence[Hop], bundle: Bundle) -> None:
    """Declare the broadcast of the root's bundle to all ranks, by the same hops in reverse."""
    # From the root to the leaves: who hands on has received before.
    for into, source in reversed(hops):
        tag = outbox.tag()
        if outbox.rank == into:
            _give(step, outbox, source, tag, bundle)
        elif outbox.rank == source:
            _take(step, outbox, into, tag, bundle)


def all_reduce(
    step: Step, build: Build, outbox: Outbox, ranks: Ranks, color: int | None, bundle: Bundle
) -> None:
    """Declare the sum of a bundle for all ranks: by a tree of this color, or, for None, by recursive doubling."""
    if color is None and (rounds := ranks.rounds()):
        add_everywhere(step, build, outbox, rounds, bundle)
        return
    hops = ranks.hops(color or 0)
    add_up(step, build, outbox, hops, bundle)
    hand_down(step, outbox, hops, bundle)


def add_everywhere(
    step: Step, build: Build, outbox: Outbox, rounds: Sequence[Sequence[Hop]], bundle: Bundle
) -> None:
    """Declare the sum of a bundle over ranks by recursive doubling; every rank ends with it.

    Bundles are small, so that messages carry them between ranks of one host, too: to read them there takes an offer
    and an answer, and neither side could add before both have read.
    """
    for hops in rounds:
        come: tuple[Bundle, int] | None = None
        # All messages of a round before its additions: each carries what its sender had before.
        for into, source in hops:
            tag = outbox.tag()
            if outbox.rank == source:
                outbox.send(step, into, tag, bundle)
            elif outbox.rank == into:
                room = _room(build, outbox, RECEIVED, bundle)
                come = room, outbox.receive(step, source, tag, room)
        if come:
            room, phase = come
            for own, more in zip(bundle, room, strict=True):
                add_total(step, own, more, Part.RANKS, phase)


def _give(step: Step, outbox: Outbox, peer: int, tag: int, bundle: Bundle) -> None:
    give = outbox.offer if outbox.theirs(peer, bundle) else outbox.send
    give(step, peer, tag, bundle)


def _take(step: Step, outbox: Outbox, peer: int, tag: int, bundle: Bundle) -> None:
    seen = outbox.theirs(peer, bundle)
    if not seen:
        outbox.take(step, peer, tag, bundle)
        return
    phase = outbox.receive(step, peer, tag, seen, empty=True)
    for own, theirs in zip(bundle, seen, strict=True):
        _copy(step, theirs, own, phase)
    outbox.answer(step, peer, tag, bundle)


def add_by_library(step: Step, build: Build, outbox: Outbox, bundle: Bundle) -> None:
    """Declare the all-reduce of a bundle by the library, in its order; what lies apart is copied together first."""
    # Contiguous as it is.
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
    """Return a bundle of the same sizes in one contiguous buffer, its pieces numbered through."""
    name = Name(use, bundle[0].owner, (outbox.room(),))
    buffer = build.common(name, size_of(bundle) // 4)
    found, pieces, numbers = list[Total](), 0, 0
    for total in bundle:
        found.append(replace(total, buffer=buffer, before=(pieces, numbers)))
        pieces, numbers = pieces + total.pieces, numbers + total.ends[-1]
    return tuple(found)


def _together(bucket: Bundle) -> Total:
    """Return all sums of a bucket as one."""
    ends = [total.before[1] + end for total in bucket for end in total.ends]
    return replace(bucket[0], ends=tuple(ends), before=(0, 0))


def _copy(step: Step, source: Total, target: Total, phase: int) -> None:
    # Twice the bytes: they are read and written.
    for low, high in ranges(source.pieces, 2 * source.size / MEMORY_RATE):
        size = source.cut(low, high).size
        step.add(
            copy_flat,
            {"source": source.at(low), "target": target.at(low), "length": size // 4},
            what=Identity(source.owner, Pass.UPDATE, Part.COPIED),
            cost=2 * size / MEMORY_RATE,
            reads=[source.region(low, high)],
            writes=[target.region(low, high)],
            phase=phase,
        )
