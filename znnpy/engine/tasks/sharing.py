"""Buffers that are never needed at once share memory: who lies where, and what waits for whom.

A buffer lives from the first task that touches it to the last, in the order of declaration. A gate
before the first use of each buffer stands between all uses of what lies in the same memory, so that the
order of tasks, within a step and between steps, follows from declared regions as ever. With slack,
memory is not used again at once: what the workers have begun when a buffer is done with can end before
anybody waits for it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from znnpy_kernels.simd.rows import zero_flat

from znnpy.engine.memory.arena import Sharing
from znnpy.engine.memory.regions import Buffer, Key, Name
from znnpy.engine.tasks.declared import Declared
from znnpy.engine.tasks.identity import GATE

ALWAYS = 1 << 62
ROUNDS = 10  # of placing once more; CTMCTMCTCT gains up to 15 %, and later rounds 3 % at most


class Life(NamedTuple):
    """Numbers of the first and the last task that touch a buffer."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are needed at some moment."""
        return self.first <= other.last and other.first <= self.last


def share(sizes: Mapping[Name, int], tasks: Sequence[Declared], slack: float = 0.0) -> Sharing:
    """Places for buffers of these sizes in bytes, by their lifetimes in a step.

    Memory is used again when tasks of `slack` estimated seconds have been declared after its last
    use. What no task touches shares memory with nobody.
    """
    used = lifetimes(tasks, sizes)
    kept = _stretched(used, tasks, slack) if slack > 0 else used
    always = dict.fromkeys(sizes, Life(0, ALWAYS))
    offsets = _offsets(sizes, always | kept)
    neighbours = {name: list(_overlapping(name, offsets, sizes)) for name in sizes}
    return Sharing(offsets, _total(offsets, sizes), neighbours, _busiest(sizes, always | used))


def lifetimes(tasks: Sequence[Declared], names: Iterable[Name]) -> dict[Name, Life]:
    """When each of the named buffers is used; those that no task touches are left out."""
    known, lives = set(names), dict[Buffer, Life]()
    for moment, task in enumerate(tasks):
        for buffer in _touched(task):
            lives[buffer] = Life(lives[buffer].first if buffer in lives else moment, moment)
    return {buffer.name: life for buffer, life in lives.items() if buffer.name in known}


def gated(tasks: Sequence[Declared], sharing: Sharing) -> list[Declared]:
    """The tasks of a step, with a gate before each use of a buffer's memory that others had since its last."""
    keys = defaultdict[Buffer, dict[Key, None]](dict)
    for task in tasks:
        for key in _keys(task):
            keys[key[0]][key] = None
    named = {buffer.name: own for buffer, own in keys.items()}
    made, owners = list[Declared](), set[Name]()
    for task in tasks:
        for buffer in _touched(task):
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


def _keys(task: Declared) -> Iterator[Key]:
    yield from (region.key for region in (*task.reads, *task.writes))
    yield from task.between


def _touched(task: Declared) -> list[Buffer]:
    return list(dict.fromkeys(buffer for buffer, _ in _keys(task)))


def _stretched(
    lives: Mapping[Name, Life], tasks: Sequence[Declared], slack: float
) -> dict[Name, Life]:
    """Lives that go on for the tasks of `slack` seconds after the last use."""
    done = list(accumulate(task.cost for task in tasks))
    return {
        name: Life(first, max(last, bisect_right(done, done[last] + slack) - 1))
        for name, (first, last) in lives.items()
    }


def _offsets(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> dict[Name, int]:
    """The best that a few orders of placing lead to."""
    least = sum(sizes[name] for name in _busiest(sizes, lives))
    orders: list[Callable[[Name], int]] = [
        lambda name: sizes[name],
        lambda name: lives[name].last - lives[name].first,
        lambda name: sizes[name] * (lives[name].last - lives[name].first + 1),
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


def _busiest(sizes: Mapping[Name, int], lives: Mapping[Name, Life]) -> list[Name]:
    """The buffers of the moment that needs most bytes: one at which some life begins."""
    moments = {life.first for life in lives.values()}
    alive = ([n for n, life in lives.items() if life.first <= at <= life.last] for at in moments)
    return max(alive, key=lambda names: sum(sizes[name] for name in names), default=[])
