"""What the forward pass leaves is dropped, and made again before the backward pass needs it: memory for time.

The tasks that filled a buffer are repeated with the same kernels and words, so bits are the same. What they
read must be there still, or is made again before; what else they write is then made again as well. So nobody
needs to know what a task does: order and lives follow from declared regions as ever.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from znnpy.engine.memory.regions import Buffer, Filled, Name
from znnpy.engine.tasks.declared import Declared
from znnpy.engine.tasks.identity import Pass
from znnpy.engine.tasks.sharing import touched


@dataclass(frozen=True)
class Again:
    """How a buffer is made again: by which tasks of the forward pass, before which of the backward pass.

    `after`: the last task of the forward pass that touches it. `buffers`: all that the tasks fill anew; `reads`:
    what they read beside.
    """

    tasks: Sequence[int]
    after: int
    before: int
    buffers: Sequence[Buffer]
    reads: Sequence[Buffer]
    seconds: float


class History:
    """What touches and what writes each buffer of a microbatch; its backward pass begins at task `turn`."""

    def __init__(self, tasks: Sequence[Declared]) -> None:
        self.tasks = tasks
        losses = (n for n, task in enumerate(tasks) if task.what.serves is Pass.LOSS)
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
        """Buffers that the forward pass leaves to the backward pass."""
        for buffer, numbers in self.touches.items():
            if buffer.filled is Filled.STEP and numbers[0] < self.turn <= numbers[-1]:
                yield buffer

    def again(self, buffer: Buffer) -> Again | None:
        """How a buffer is made again; None where it cannot be."""
        if buffer not in self._found:
            self._found[buffer] = self._again(buffer)
        return self._found[buffer]

    def _again(self, buffer: Buffer) -> Again | None:
        after, before = self._hole(buffer)
        numbers, reads = set[int](), dict[Buffer, None]()
        pending, anew = [buffer], {buffer: None}
        while pending:
            for number in self.writers[pending.pop()]:
                if number >= before or number in numbers:
                    continue
                task = self.tasks[number]
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
            sum(self.tasks[number].cost for number in numbers),
        )  # fmt: skip

    def _hole(self, buffer: Buffer) -> tuple[int, int]:
        """The last task of the forward pass and the first one of the backward pass that touch a buffer."""
        touches = self.touches[buffer]
        first = bisect_left(touches, self.turn)
        return touches[first - 1], touches[first]

    def _is_there(self, buffer: Buffer, read: int, before: int) -> bool:
        """Whether what a task has read is there still, and not for the sake of another one alone."""
        writers = self.writers[buffer]
        later = bisect_right(writers, read)
        changed = later < len(writers) and writers[later] < before
        return not changed and self.touches[buffer][-1] >= before


def _read(task: Declared) -> Iterable[Buffer]:
    """What a task reads that tasks of the step have made."""
    read = (region.buffer for region in task.reads if region.buffer.filled is Filled.STEP)
    return dict.fromkeys(read)


class CircleError(Exception):
    """Of what is made again, each needs the other first."""


def repeated(tasks: Sequence[Declared], names: Collection[Name]) -> Sequence[Declared]:
    """The tasks of one microbatch, with those that make the named buffers again before they are needed.

    CircleError where that cannot be. What has no backward pass stays as it is.
    """
    if not names:
        return tasks
    due, made = in_order(History(tasks), names), list[Declared]()
    for number, task in enumerate(tasks):
        for again in due.get(number, ()):
            anew = tuple(again.buffers)
            for repeat in again.tasks:
                made.append(replace(tasks[repeat], stage=task.stage, anew=anew))
                anew = ()
        made.append(task)
    return made


def in_order(history: History, names: Collection[Name]) -> dict[int, list[Again]]:
    """What is made again before which tasks of the backward pass; CircleError where that cannot be."""
    found = {
        buffer: again
        for buffer in history.left()
        if buffer.name in names and (again := history.again(buffer))
    }
    due, done = defaultdict[int, list[Again]](list), dict[Buffer, bool]()
    for buffer in sorted(found, key=lambda it: found[it].before):
        _add(found, buffer, due[found[buffer].before], done)
    return due


def _add(
    found: Mapping[Buffer, Again], buffer: Buffer, due: list[Again], done: dict[Buffer, bool]
) -> None:
    """Unless it has been made again, make a buffer after what it is made of."""
    if done.get(buffer):
        return
    if buffer in done:
        raise CircleError(str(buffer.name))
    done[buffer] = False
    again = found[buffer]
    for source in again.reads:
        if source in found:
            _add(found, source, due, done)
    if not done[buffer]:  # nor with one of those
        done |= {made: True for made in again.buffers if made in found}
        due.append(again)
