"""Rematerialisation (activation checkpointing): drops values of the forward pass and recomputes them, to save memory.

The tasks that filled a buffer are repeated before the backward pass needs it, with the same kernels and arguments, so
that bits are the same. What they read must still be there, or is recomputed before; what else they write is
recomputed as well. Nothing here depends on what a task does: order and lives follow from declared regions.
`repeated` inserts the tasks, `Sparing` chooses the buffers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from znnpy.engine.memory.regions import Buffer, Filled, Name
from znnpy.engine.tasks.buffer_sharing import Life, Span, busiest_moment, lifetimes, touched
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Pass

LEAST = 1e-3  # share of the bytes at the peak: smaller buffers save too little to be tried
# Tries of placing: each aims at fewer bytes than there are, by as many as gaps took; the last aims at the fewest.
MOST_AIMS = 4


@dataclass(frozen=True)
class Again:
    """How a buffer is recomputed: by which tasks of the forward pass, before which task of the backward pass.

    `after`: the last task of the forward pass that touches it. `buffers`: all that the tasks fill; `reads`: what else
    they read. `seconds`: estimated.
    """

    tasks: Sequence[int]
    after: int
    before: int
    buffers: Sequence[Buffer]
    reads: Sequence[Buffer]
    seconds: float


class History:
    """The tasks that touch and write each buffer of a microbatch, whose backward pass begins at task `turn`."""

    def __init__(self, tasks: Sequence[Declared]) -> None:
        self.tasks = tasks
        losses = (n for n, task in enumerate(tasks) if task.what.serves is Pass.LOSS)
        # The first task of the loss: everything before it is the forward pass.
        self.turn = next(losses, len(tasks))
        self.touches = defaultdict[Buffer, list[int]](list)
        self.writers = defaultdict[Buffer, list[int]](list)
        self._found: dict[Buffer, Again | None] = {}
        for number, task in enumerate(tasks):
            for buffer in touched(task):
                self.touches[buffer].append(number)
            for buffer in dict.fromkeys(region.buffer for region in task.writes):
                self.writers[buffer].append(number)

    def left(self) -> Iterator[Buffer]:
        """Yield the buffers that the forward pass leaves to the backward pass."""
        for buffer, numbers in self.touches.items():
            # Touched on both sides of the turn, so that it waits in between.
            if buffer.filled is Filled.STEP and numbers[0] < self.turn <= numbers[-1]:
                yield buffer

    def again(self, buffer: Buffer) -> Again | None:
        """Return how a buffer is recomputed; None if it cannot be."""
        if buffer not in self._found:
            self._found[buffer] = self._again(buffer)
        return self._found[buffer]

    def _again(self, buffer: Buffer) -> Again | None:
        after, before = self._hole(buffer)
        numbers, reads = set[int](), dict[Buffer, None]()
        # A closure: what repeated tasks read and is gone, and what they write besides, is filled
        # anew with them.
        pending, anew = [buffer], {buffer: None}
        while pending:
            for number in self.writers[pending.pop()]:
                if number >= before or number in numbers:
                    continue
                task = self.tasks[number]
                # Tasks of the backward pass, and those that somebody waits for, run once.
                if number >= self.turn or task.group >= 0:
                    return None
                numbers.add(number)
                reads |= dict.fromkeys(region.buffer for region in task.reads)
                more = {region.buffer: None for region in task.writes}
                more |= {it: None for it in _read(task) if not self._is_there(it, number, before)}
                pending += [it for it in more if it not in anew]
                anew |= more
        return Again(
            sorted(numbers), after, before, tuple(anew), tuple(it for it in reads if it not in anew),
            sum(self.tasks[number].seconds for number in numbers),
        )  # fmt: skip

    def _hole(self, buffer: Buffer) -> tuple[int, int]:
        """Return the last task of the forward pass and the first one of the backward pass that touch a buffer."""
        touches = self.touches[buffer]
        first = bisect_left(touches, self.turn)
        return touches[first - 1], touches[first]

    def _is_there(self, buffer: Buffer, read: int, before: int) -> bool:
        """Return whether what task `read` has read is unchanged and still alive at task `before`."""
        writers = self.writers[buffer]
        later = bisect_right(writers, read)
        changed = later < len(writers) and writers[later] < before
        # Alive: some task at or after `before` touches it anyway, so that its memory is not given
        # away.
        return not changed and self.touches[buffer][-1] >= before


def _read(task: Declared) -> Iterable[Buffer]:
    """Return the buffers that a task reads and that tasks of the step fill."""
    read = (region.buffer for region in task.reads if region.buffer.filled is Filled.STEP)
    return dict.fromkeys(read)


class CircleError(Exception):
    """Raised if two recomputed buffers each need the other first."""


def repeated(tasks: Sequence[Declared], names: Collection[Name]) -> Sequence[Declared]:
    """Return the tasks of one microbatch with those that recompute the named buffers before they are needed.

    Raises CircleError where that is not possible. A step without a backward pass stays as it is.
    """
    if not names:
        return tasks
    due, made = in_order(History(tasks), names), list[Declared]()
    for number, task in enumerate(tasks):
        for again in due.get(number, ()):
            anew = tuple(again.buffers)
            for repeat in again.tasks:
                # In the stage of the task that needs it: stages never go back.
                made.append(replace(tasks[repeat], stage=task.stage, anew=anew))
                # The first repeated task alone drops the old content; the following ones add to
                # what is there.
                anew = ()
        made.append(task)
    return made


def in_order(history: History, names: Collection[Name]) -> dict[int, list[Again]]:
    """Return what is recomputed before which task of the backward pass; CircleError if there is no order."""
    found = {
        buffer: again
        for buffer in history.left()
        if buffer.name in names and (again := history.again(buffer))
    }
    due, done = defaultdict[int, list[Again]](list), dict[Buffer, bool]()
    # In the order in which they are needed, so that what an earlier one has filled serves later
    # ones.
    for buffer in sorted(found, key=lambda it: found[it].before):
        _add(found, buffer, due[found[buffer].before], done)
    return due


def _add(
    found: Mapping[Buffer, Again], buffer: Buffer, due: list[Again], done: dict[Buffer, bool]
) -> None:
    """Append how a buffer is recomputed, after what it is computed from; nothing if it is there already."""
    if done.get(buffer):
        return
    if buffer in done:
        raise CircleError(str(buffer.name))
    # Entered, not finished: meeting it again before it is done is a circle.
    done[buffer] = False
    again = found[buffer]
    for source in again.reads:
        if source in found:
            _add(found, source, due, done)
    if not done[buffer]:  # else the tasks of a source fill it, too
        done |= {made: True for made in again.buffers if made in found}
        due.append(again)


@dataclass(frozen=True)
class Saved:
    """Buffers that are recomputed, and the estimated seconds that this takes."""

    names: Sequence[Name] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class _Peak:
    """The moment of peak memory, and its bytes."""

    moment: int
    bytes: int


class Sparing:
    """Chooses what to recompute in a step so that it needs less and less memory.

    `sizes`: bytes of the buffers that share memory. `tasks`: of a step, of which the first `end` are a microbatch's.
    Greedy: at the moment of peak memory, the buffer that saves most bytes for its seconds goes first. Repeated tasks
    count as happening at the task that follows them.
    """

    def __init__(self, sizes: Mapping[Name, int], tasks: Sequence[Declared], end: int) -> None:
        self.sizes, self.history = sizes, History(tasks[:end])
        self._base = lifetimes(tasks, sizes)
        left = (it for it in self.history.left() if it.name in sizes)
        self.options = {it.name: again for it in left if (again := self.history.again(it))}
        self._untried, self._names = dict(self.options), list[Name]()
        self._peak = self.peak([])

    def to(self, room: int) -> Saved:
        """Return what to recompute so that the buffers need at most `room` bytes, or as few as possible.

        A later call with less room continues from the choice of the one before.
        """
        while self._peak.bytes > room and (name := self.best(self._untried, self._peak)):
            del self._untried[name]
            with suppress(CircleError):
                found = self.peak([*self._names, name])
                # Equal bytes are accepted: with several moments of peak memory, each must be
                # lowered before the peak falls.
                if found.bytes <= self._peak.bytes:
                    self._names, self._peak = [*self._names, name], found
        return self.needed(self._names, max(room, self._peak.bytes))

    def peak(self, names: Collection[Name]) -> _Peak:
        """Return the moment of peak memory if some buffers are recomputed."""
        lives = {name: Life(tuple(spans)) for name, spans in self._spans(names).items()}
        moment = busiest_moment(self.sizes, lives)
        return _Peak(moment, sum(self.sizes[name] for name in lives if lives[name].at(moment)))

    def best(self, options: Mapping[Name, Again], peak: _Peak) -> Name | None:
        """Return the buffer that waits at the peak for the backward pass and costs the fewest seconds for its bytes."""
        waiting = [
            name
            for name, again in options.items()
            # Only a buffer that merely waits at the peak saves anything there.
            if self.sizes[name] > LEAST * peak.bytes and again.after < peak.moment < again.before
        ]
        return min(waiting, key=lambda it: options[it].seconds / self.sizes[it], default=None)

    def needed(self, names: Sequence[Name], room: int) -> Saved:
        """Return those of the buffers that must be recomputed to fit; the most expensive are spared first."""
        for name in sorted(names, key=lambda it: self.options[it].seconds, reverse=True):
            fewer = [other for other in names if other != name]
            if self.peak(fewer).bytes <= room:
                names = fewer
        due = in_order(self.history, names)
        return Saved(names, sum(again.seconds for made in due.values() for again in made))

    def _spans(self, names: Collection[Name]) -> dict[Name, list[Span]]:
        """Return the spans of each buffer's life if some are recomputed."""
        due = in_order(self.history, names)
        spans = {name: list(life.spans) for name, life in self._base.items()}
        read = dict[Buffer, int]()  # the last moment at which a recomputed buffer reads it
        for before in sorted(due):
            for again in due[before]:
                for buffer in again.reads:
                    if own := spans.get(buffer.name):
                        own[-1] = Span(own[-1].first, max(own[-1].last, before))
                        read[buffer] = before
                for buffer in again.buffers:
                    if own := spans.get(buffer.name):
                        first, last = own[-1]
                        # The old span ends with the last task before that touches it, or with a
                        # recomputation that read it.
                        ended = max(first, self._before(buffer, before), read.get(buffer, first))
                        own[-1:] = [Span(first, ended), Span(before, max(last, before))]
        return spans

    def _before(self, buffer: Buffer, number: int) -> int:
        """Return the last task before task `number` that touches a buffer."""
        touches = self.history.touches[buffer]
        return touches[bisect_left(touches, number) - 1]
