"""Buffers that are never needed at once share memory: who lies where, and what waits for whom.

A buffer lives from the first task that touches it to the last, in the order of declaration; what is made
again (`again.py`) has several such spans. A gate before each stands between all uses of what lies in the
same memory, so that the order of tasks, within a step and between steps, follows from declared regions as
ever. With slack, memory is not used again at once: what the workers have begun when a buffer is done with
can end before anybody waits for it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.arena import Sharing
from znnpy.engine.memory.regions import Buffer, Key, Name
from znnpy.engine.tasks.declared import Declared
from znnpy.engine.tasks.identity import GATE
from znnpy.engine.tasks.step import Step

ALWAYS = 1 << 62
ROUNDS = 10  # of placing once more; CTMCTMCTCT gains up to 15 %, and later rounds 3 % at most


class Span(NamedTuple):
    """Numbers of the first and the last task that touch a buffer, before it is filled anew."""

    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether both are under way at some moment."""
        return self.first <= other.last and other.first <= self.last


class Life(NamedTuple):
    """When a buffer is needed."""

    spans: tuple[Span, ...]

    @property
    def length(self) -> int:
        """Tasks from the first to the last of each span."""
        return sum(span.last - span.first for span in self.spans)

    def meets(self, other: Life) -> bool:
        """Whether both are needed at some moment."""
        return any(span.meets(its) for span in self.spans for its in other.spans)

    def at(self, moment: int) -> bool:
        """Whether it is needed at a moment."""
        return any(span.first <= moment <= span.last for span in self.spans)


def share(sizes: Mapping[Name, int], tasks: Sequence[Declared], slack: float = 0.0) -> Sharing:
    """Places for buffers of these sizes in bytes, by their lifetimes in a step.

    Memory is used again when tasks of `slack` estimated seconds have been declared after its last
    use. What no task touches shares memory with nobody.
    """
    used = lifetimes(tasks, sizes)
    kept = _stretched(used, tasks, slack) if slack > 0 else used
    always = dict.fromkeys(sizes, Life((Span(0, ALWAYS),)))
    offsets = _offsets(sizes, always | kept)
    neighbours = {name: list(_overlapping(name, offsets, sizes)) for name in sizes}
    return Sharing(offsets, _total(offsets, sizes), neighbours, busiest(sizes, always | used))


def lifetimes(tasks: Sequence[Declared], names: Iterable[Name]) -> dict[Name, Life]:
    """When each of the named buffers is used; those that no task touches are left out."""
    known, spans = set(names), defaultdict[Buffer, list[Span]](list)
    ended = set[Buffer]()
    for moment, task in enumerate(tasks):
        ended.update(task.anew)
        for buffer in touched(task):
            if (own := spans[buffer]) and buffer not in ended:
                own[-1] = Span(own[-1].first, moment)
            else:
                own.append(Span(moment, moment))
                ended.discard(buffer)
    return {buffer.name: Life(tuple(own)) for buffer, own in spans.items() if buffer.name in known}


def gated(tasks: Sequence[Declared], sharing: Sharing) -> list[Declared]:
    """The tasks of a step, with a gate before each use of a buffer's memory that others had since its last."""
    keys = defaultdict[Buffer, dict[Key, None]](dict)
    for task in tasks:
        for key in _keys(task):
            keys[key[0]][key] = None
    named = {buffer.name: own for buffer, own in keys.items()}
    made, owners = list[Declared](), set[Name]()
    for task in tasks:
        for buffer in touched(task):
            if buffer.name in owners:
                continue
            if others := sharing.beside(buffer.name):
                together = [*keys[buffer], *(key for name in others for key in named.get(name, ()))]
                made.append(gate(together, task.stage))
            owners.difference_update(others)
            owners.add(buffer.name)
        made.append(task)
    return made


def gate(keys: Iterable[Key], stage: int) -> Declared:
    """A task without work that comes after all earlier uses of some keys and before all later ones.

    `stage`: that of what comes next, so that a barrier between stages makes no cycle with it.
    """
    nothing = zero_flat.arguments(target=0, length=0)
    return Declared(zero_flat, nothing, GATE, 1e-7, (), (), stage=stage, between=tuple(keys))


def join(step: Step, buffer: Buffer) -> None:
    """Let later uses of a buffer wait for all earlier ones at one gate, instead of each for each."""
    step.tasks.append(gate([buffer.region().key], step.stage))


def _keys(task: Declared) -> Iterator[Key]:
    yield from (region.key for region in (*task.reads, *task.writes))
    yield from task.between


def touched(task: Declared) -> list[Buffer]:
    """The buffers that a task touches."""
    return list(dict.fromkeys(buffer for buffer, _ in _keys(task)))


def _stretched(
    lives: Mapping[Name, Life], tasks: Sequence[Declared], slack: float
) -> dict[Name, Life]:
    """Lives that go on for the tasks of `slack` seconds after the last use."""
    done = list(accumulate(task.cost for task in tasks))

    def later(span: Span) -> Span:
        return span._replace(last=max(span.last, bisect_right(done, done[span.last] + slack) - 1))

    return {name: Life(tuple(map(later, life.spans))) for name, life in lives.items()}


def _offsets(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> dict[Name, int]:
    """The best that a few orders of placing lead to."""
    least = sum(sizes[name] for name in busiest(sizes, lives))
    orders: list[Callable[[Name], int]] = [
        lambda name: sizes[name],
        lambda name: lives[name].length,
        lambda name: sizes[name] * (lives[name].length + 1),
    ]
    best, total = dict[Name, int](), ALWAYS
    for order in orders:
        for offsets in _attempts(sorted(sizes, key=order, reverse=True), sizes, lives):
            if _total(offsets, sizes) < total:
                best, total = offsets, _total(offsets, sizes)
            if total <= least:
                return best
    return best


def _attempts(
    order: Sequence[Name], sizes: Mapping[Name, int], lives: Mapping[Name, Life]
) -> Iterator[dict[Name, int]]:
    """Offsets by placing in an order again and again; what reached the top comes first the next time."""
    for _ in range(ROUNDS):
        offsets = _place(order, sizes, lives)
        yield offsets
        top = _total(offsets, sizes)
        highest = [name for name in order if offsets[name] + sizes[name] == top]
        order = [*highest, *(name for name in order if name not in highest)]


def _place(
    order: Iterable[Name], sizes: Mapping[Name, int], lives: Mapping[Name, Life]
) -> dict[Name, int]:
    """Offsets: one after the other, each in the tightest gap between those that live with it."""
    offsets: dict[Name, int] = {}
    placed: list[tuple[int, int, Life]] = []  # (offset, end, life), sorted
    for name in order:
        taken = [(low, high) for low, high, life in placed if life.meets(lives[name])]
        offsets[name] = _tightest(taken, sizes[name])
        insort(placed, (offsets[name], offsets[name] + sizes[name], lives[name]))
    return offsets


def _tightest(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size` bytes, else the end of all."""
    best, least, end = -1, ALWAYS, 0
    for low, high in taken:
        if size <= low - end < least:
            best, least = end, low - end
        end = max(end, high)
    return best if best >= 0 else end


def _total(offsets: Mapping[Name, int], sizes: Mapping[Name, int]) -> int:
    return max((offset + sizes[name] for name, offset in offsets.items()), default=0)


def _overlapping(
    name: Name, offsets: Mapping[Name, int], sizes: Mapping[Name, int]
) -> Iterable[Name]:
    low, high = offsets[name], offsets[name] + sizes[name]
    for other, offset in offsets.items():
        if other != name and offset < high and low < offset + sizes[other]:
            yield other


def busiest(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> list[Name]:
    """The buffers of the moment that needs most bytes."""
    at = busiest_moment(sizes, lives)
    return [name for name, life in lives.items() if life.at(at)]


def busiest_moment(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> int:
    """The first moment that needs most bytes: one at which something begins to be needed."""
    changes = Counter[int]()
    for name, life in lives.items():
        for first, last in life.spans:
            changes[first] += sizes[name]
            changes[last + 1] -= sizes[name]
    moments = sorted(changes)
    needed = list(accumulate(changes[moment] for moment in moments))
    return moments[needed.index(max(needed))] if moments else 0
