"""Which buffers to make again, so that a step needs fewer bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from znnpy.engine.memory.regions import Buffer, Name
from znnpy.engine.tasks.again import Again, CircleError, History, in_order
from znnpy.engine.tasks.declared import Declared
from znnpy.engine.tasks.sharing import Life, Span, busiest_moment, lifetimes

LEAST = 1e-3  # of the bytes at the peak: smaller buffers are not worth looking at
MOST_AIMS = 4  # at fewer bytes than there are, where buffers do not fit without gaps; the last at the fewest


@dataclass(frozen=True)
class Saved:
    """Buffers that are made again, and the estimated seconds that this takes."""

    names: Sequence[Name] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class _Peak:
    """The moment that needs most bytes."""

    moment: int
    bytes: int


class Sparing:
    """What to make again in a step so that it needs less memory, and less again.

    `sizes`: bytes of the buffers that share memory. `tasks`: of a step, of which the first `end` are those of a
    microbatch. At the moment that needs most, what saves most bytes for the seconds that it costs goes first.
    Repeats count as of the task behind them.
    """

    def __init__(self, sizes: Mapping[Name, int], tasks: Sequence[Declared], end: int) -> None:
        self.sizes, self.history = sizes, History(tasks[:end])
        self._base = lifetimes(tasks, sizes)
        left = (it for it in self.history.left() if it.name in sizes)
        self.options = {it.name: again for it in left if (again := self.history.again(it))}
        self._untried, self._names = dict(self.options), list[Name]()
        self._peak = self.peak([])

    def to(self, room: int) -> Saved:
        """What to make again so that the buffers need at most `room` bytes, or as few as it gets.

        Where it was asked for more room before, it goes on from there.
        """
        while self._peak.bytes > room and (name := self.best(self._untried, self._peak)):
            del self._untried[name]
            with suppress(CircleError):
                found = self.peak([*self._names, name])
                if found.bytes <= self._peak.bytes:
                    self._names, self._peak = [*self._names, name], found
        return self.needed(self._names, max(room, self._peak.bytes))

    def peak(self, names: Collection[Name]) -> _Peak:
        """When most bytes are needed, if some buffers are made again."""
        lives = {name: Life(tuple(spans)) for name, spans in self._spans(names).items()}
        moment = busiest_moment(self.sizes, lives)
        return _Peak(moment, sum(self.sizes[name] for name in lives if lives[name].at(moment)))

    def best(self, options: Mapping[Name, Again], peak: _Peak) -> Name | None:
        """Of what waits at the peak for the backward pass, what costs the fewest seconds for its bytes."""
        waiting = [
            name
            for name, again in options.items()
            if self.sizes[name] > LEAST * peak.bytes and again.after < peak.moment < again.before
        ]
        return min(waiting, key=lambda it: options[it].seconds / self.sizes[it], default=None)

    def needed(self, names: Sequence[Name], room: int) -> Saved:
        """Those of the buffers without which the others would not fit, the dearest left out first."""
        for name in sorted(names, key=lambda it: self.options[it].seconds, reverse=True):
            fewer = [other for other in names if other != name]
            if self.peak(fewer).bytes <= room:
                names = fewer
        due = in_order(self.history, names)
        return Saved(names, sum(again.seconds for made in due.values() for again in made))

    def _spans(self, names: Collection[Name]) -> dict[Name, list[Span]]:
        """When each buffer is needed."""
        due = in_order(self.history, names)
        spans = {name: list(life.spans) for name, life in self._base.items()}
        read = dict[Buffer, int]()  # for the sake of others, last
        for before in sorted(due):
            for again in due[before]:
                for buffer in again.reads:
                    if own := spans.get(buffer.name):
                        own[-1] = Span(own[-1].first, max(own[-1].last, before))
                        read[buffer] = before
                for buffer in again.buffers:
                    if own := spans.get(buffer.name):
                        first, last = own[-1]
                        ended = max(first, self._before(buffer, before), read.get(buffer, first))
                        own[-1:] = [Span(first, ended), Span(before, max(last, before))]
        return spans

    def _before(self, buffer: Buffer, number: int) -> int:
        """The last task before another one that touches a buffer."""
        touches = self.history.touches[buffer]
        return touches[bisect_left(touches, number) - 1]
