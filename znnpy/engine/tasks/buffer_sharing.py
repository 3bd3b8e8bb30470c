"""Places buffers that are never needed at the same time in the same memory, and adds the gates that keep them apart.

A buffer lives from the first task that touches it to the last, in the order of declaration; a rematerialised one
has several such spans. Before each span stands a gate, a task without work between all uses of what lies in the
same memory: so the order of tasks still follows from declared regions. With slack, memory is not reused at once:
what workers have begun when a buffer's life ends can finish before anybody waits for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.arena import Sharing
from znnpy.engine.memory.regions import Buffer, Key, Name
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import GATE

Places = NDArray[np.int64]
"""Sizes or offsets of buffers, in bytes, by the buffer's number."""
ALWAYS = 1 << 62  # a moment after every task, and a size above every total
# Rounds of placing: for the net CTMCTMCTCT they gain up to 15 %, and rounds beyond these 3 % at most.
ROUNDS = 10


class Span(NamedTuple):
    """The first and the last task, by number, that touch a buffer before it is filled anew."""

    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Return whether the spans overlap."""
        return self.first <= other.last and other.first <= self.last


class Life(NamedTuple):
    """The spans of tasks during which a buffer is needed."""

    spans: tuple[Span, ...]

    @property
    def length(self) -> int:
        """The number of tasks in all spans."""
        return sum(span.last - span.first for span in self.spans)

    def meets(self, other: Life) -> bool:
        """Return whether both are needed at the same moment."""
        return any(span.meets(its) for span in self.spans for its in other.spans)

    def at(self, moment: int) -> bool:
        """Return whether the buffer is needed at a moment."""
        return any(span.first <= moment <= span.last for span in self.spans)


def share(
    sizes: Mapping[Name, int],
    tasks: Sequence[Declared],
    slack: float = 0.0,
    room: int | None = None,
) -> Sharing:
    """Return places for buffers of these sizes, in bytes, by their lifetimes in a step.

    Memory is reused once tasks of `slack` estimated seconds have been declared after its last use; of less, down to
    none, if more than `room` bytes would be needed. A buffer that no task touches shares memory with none.
    """
    used = lifetimes(tasks, sizes)
    # Buffers without tasks, such as those of another graph, may be needed at any time.
    always = dict.fromkeys(sizes, Life((Span(0, ALWAYS),)))
    # Halving: each try places all buffers anew, so there are few.
    for given in (slack, slack / 2, slack / 4, slack / 8, 0.0) if slack > 0 else (0.0,):
        offsets = _offsets(sizes, always | _stretched(used, tasks, given))
        total = max((offset + sizes[name] for name, offset in offsets.items()), default=0)
        if room is None or total <= room:
            break
    return Sharing(offsets, total, _neighbours(sizes, offsets), busiest(sizes, always | used))


def lifetimes(tasks: Sequence[Declared], names: Iterable[Name]) -> dict[Name, Life]:
    """Return the lives of the named buffers; those that no task touches are left out."""
    known, spans = set(names), defaultdict[Buffer, list[Span]](list)
    ended = set[Buffer]()
    for moment, task in enumerate(tasks):
        # Before the task's own accesses: the task that drops a buffer's content is the first to
        # fill it anew.
        ended.update(task.anew)
        for buffer in touched(task):
            if (own := spans[buffer]) and buffer not in ended:
                own[-1] = Span(own[-1].first, moment)
            else:
                own.append(Span(moment, moment))
                # A new span has begun; later accesses extend it.
                ended.discard(buffer)
    return {buffer.name: Life(tuple(own)) for buffer, own in spans.items() if buffer.name in known}


def gated(tasks: Sequence[Declared], sharing: Sharing) -> list[Declared]:
    """Return the tasks of a step with a gate wherever memory passes from one buffer to another."""
    # There are many tasks of few buffers: whom a buffer lies beside is asked once, and of those that lie alone
    # nothing is kept.
    beside, keys = dict[Buffer, list[Name]](), defaultdict[Buffer, dict[Key, None]](dict)
    crowded = list[list[Buffer]]()
    for task in tasks:
        own = list[Buffer]()
        for key in _keys(task):
            others = beside.get(buffer := key[0])
            if others is None:
                others = beside[buffer] = sharing.beside(buffer.name)
            if others:
                keys[buffer][key] = None
                own.append(buffer)
        crowded.append(own)
    named = {buffer.name: own_keys for buffer, own_keys in keys.items()}
    # `owners`: buffers that hold their memory now. A gate stands where ownership passes on.
    made, owners = list[Declared](), set[Name]()
    for task, own in zip(tasks, crowded, strict=True):
        for buffer in own:
            if buffer.name in owners:
                continue
            # The gate comes after all uses of the others and before those of this buffer, also in
            # the next step, where the others come again.
            others = beside[buffer]
            together = [*keys[buffer], *(key for name in others for key in named.get(name, ()))]
            made.append(gate(together, task.stage))
            # Who comes back later needs a gate of its own.
            owners.difference_update(others)
            owners.add(buffer.name)
        made.append(task)
    return made


def gate(keys: Iterable[Key], stage: int) -> Declared:
    """Return a task without work that comes after all earlier uses of some keys and before all later ones.

    `stage`: of the task that comes next, so that a barrier between stages makes no cycle with it.
    """
    nothing = zero_flat.arguments(target=0, length=0)
    # 1e-7: estimated seconds of a task that does nothing.
    return Declared(zero_flat, nothing, GATE, 1e-7, (), (), stage=stage, between=tuple(keys))


def join(step: Step, buffer: Buffer) -> None:
    """Declare one gate between earlier and later uses of a buffer, in place of an edge from each to each."""
    step.tasks.append(gate([buffer.region().key], step.stage))


def _keys(task: Declared) -> Iterator[Key]:
    for regions in (task.reads, task.writes):
        for buffer, _, _, section, _ in regions:
            yield buffer, section
    yield from task.between


def touched(task: Declared) -> list[Buffer]:
    """Return the buffers that a task touches, each once."""
    found = dict.fromkeys([region[0] for region in task.reads])
    found.update(dict.fromkeys([region[0] for region in task.writes]))
    if task.between:
        found.update(dict.fromkeys([buffer for buffer, _ in task.between]))
    return list(found)


def _stretched(
    lives: Mapping[Name, Life], tasks: Sequence[Declared], slack: float
) -> dict[Name, Life]:
    """Return lives that end `slack` estimated seconds of tasks later."""
    if slack <= 0:
        return dict(lives)
    done = list(accumulate(task.cost for task in tasks))

    def later(span: Span) -> Span:
        # The last task that ends within `slack` seconds of declared work after the span.
        return span._replace(last=max(span.last, bisect_right(done, done[span.last] + slack) - 1))

    return {name: Life(tuple(map(later, life.spans))) for name, life in lives.items()}


def _offsets(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> dict[Name, int]:
    """Return the offset of each buffer: the best placement found from three orders.

    Largest first, longest-lived first, and largest product of both first; each refined by `_attempts`.
    """
    names = list(sizes)
    own = [lives[name] for name in names]
    lengths, bytes_ = [life.length for life in own], np.array(list(sizes.values()), np.int64)
    # No order is the best for all networks: large buffers fit into few gaps, long-lived ones stand
    # in the way of many.
    keys = [
        list(sizes.values()),
        lengths,
        [size * (length + 1) for size, length in zip(sizes.values(), lengths, strict=True)],
    ]
    orders = (sorted(range(len(names)), key=key.__getitem__, reverse=True) for key in keys)
    # No placement needs less than what is alive at the peak: reaching that ends the search.
    least, meetings = sum(sizes[name] for name in busiest(sizes, lives)), _Meetings(own)
    best, total = np.zeros(len(names), np.int64), ALWAYS
    for offsets in (it for order in orders for it in _attempts(order, bytes_, meetings)):
        if (top := _total(offsets, bytes_)) < total:
            best, total = offsets, top
        if total <= least:
            break
    return dict(zip(names, best.tolist(), strict=True))


class _Meetings:
    """Answers which lives overlap a given one, by number."""

    def __init__(self, lives: Sequence[Life]) -> None:
        spans = [span for life in lives for span in life.spans]
        self._firsts, self._lasts = np.array(spans, np.int64).reshape(-1, 2).T
        counts = [len(life.spans) for life in lives]
        self._starts = np.cumsum([0, *counts[:-1]])
        self._lives = lives
        self._single = len(spans) == len(lives)

    def of(self, number: int) -> NDArray[np.bool_]:
        """Return by number whether each life overlaps this one."""
        met = np.zeros(len(self._firsts), bool)
        for first, last in self._lives[number].spans:
            met |= (self._firsts <= last) & (self._lasts >= first)
        if self._single:
            return met
        # Spans of one life lie together, and each life has at least one.
        return np.logical_or.reduceat(met, self._starts)


def _attempts(order: Sequence[int], sizes: Places, meetings: _Meetings) -> Iterator[Places]:
    """Yield offsets of repeated placements; buffers that ended at the top are placed first the next time."""
    for _ in range(ROUNDS):
        offsets = _place(order, sizes, meetings)
        yield offsets
        top = _total(offsets, sizes)
        # Sorting is stable: what reached the top comes first, the rest keeps its order.
        order = sorted(order, key=lambda number: offsets[number] + sizes[number] < top)


def _place(order: Iterable[int], sizes: Places, meetings: _Meetings) -> Places:
    """Return offsets: buffers in order, each in the tightest gap between those that live at the same time."""
    offsets = np.zeros_like(sizes)
    # Of what is placed, in the order of offsets: numbers, starts and ends. There may be thousands, so rows are moved up
    # for each rather than made anew.
    placed, lows, highs = rows = np.zeros((3, len(sizes)), np.int64)
    for count, number in enumerate(order):
        beside = meetings.of(number)[placed[:count]]
        at = _tightest(lows[:count][beside], highs[:count][beside], sizes[number])
        offsets[number] = at
        where = int(lows[:count].searchsorted(at))
        rows[:, where + 1 : count + 1] = rows[:, where:count]
        rows[:, where] = number, at, at + sizes[number]
    return offsets


def _tightest(lows: Places, highs: Places, size: int) -> int:
    """Return the start of the smallest gap of at least `size` bytes between ordered ranges, else the end of all."""
    # Ranges may overlap one another, as buffers that both live now need not live together; the
    # running maximum skips what is covered.
    ends = np.zeros(len(highs) + 1, np.int64)
    np.maximum.accumulate(highs, out=ends[1:])
    gaps = lows - ends[:-1]
    fitting = (gaps >= size).nonzero()[0]
    return int(ends[fitting[gaps[fitting].argmin()]] if len(fitting) else ends[-1])


def _total(offsets: Places, sizes: Places) -> int:
    return int((offsets + sizes).max(initial=0))


def _neighbours(
    sizes: Mapping[Name, int], offsets: Mapping[Name, int]
) -> dict[Name, Sequence[Name]]:
    """Return by buffer those that overlap it in memory."""
    names = list(sizes)
    lows = np.array([offsets[name] for name in names], np.int64)
    highs, found = lows + np.array(list(sizes.values()), np.int64), dict[Name, Sequence[Name]]()
    for number, name in enumerate(names):
        over = np.flatnonzero((lows < highs[number]) & (highs > lows[number]))
        found[name] = [names[other] for other in over if other != number]
    return found


def busiest(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> list[Name]:
    """Return the buffers that are needed at the moment of peak memory."""
    at = busiest_moment(sizes, lives)
    return [name for name, life in lives.items() if life.at(at)]


def busiest_moment(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> int:
    """Return the first moment of peak memory: one at which some buffer's life begins."""
    changes = Counter[int]()
    for name, life in lives.items():
        for first, last in life.spans:
            changes[first] += sizes[name]
            # A buffer still lies there while its last task runs.
            changes[last + 1] -= sizes[name]
    moments = sorted(changes)
    needed = list(accumulate(changes[moment] for moment in moments))
    return moments[needed.index(max(needed))] if moments else 0
