"""Makes the odd step of an update from the even one: the same tasks on the other set of staged data.

Of messages between ranks it has others, numbered behind those of the even step, with phases of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from znnpy_kernels.scheduling.mailbox import POST

from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.memory.staging import Move
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Part

TICKETS = Use("messages that are under way", SMALL)
"""Of buffers without memory, one for each message: they order who waits for it behind who posts it."""


def odd_step(even: Sequence[Declared], move: Move, groups: Mapping[int, int]) -> list[Declared]:
    """Return the tasks of the odd step; those that touch nothing staged are those of the even one.

    `groups`: what somebody waits for in the odd step, by the even step's. Declaring a large network takes seconds,
    this hardly any time.
    """

    posts = [task for task in even if task.what.part is Part.POST]
    buffers = move.buffers | _tickets(posts)

    def moved(regions: Sequence[Region]) -> tuple[Region, ...]:
        return tuple(it._replace(buffer=buffers.get(it.buffer, it.buffer)) for it in regions)

    def words(block: Sequence[int]) -> list[int]:
        return [move.address(word) for word in block]

    def of(task: Declared) -> Declared:
        number = len(posts) if task.what.part is Part.POST else 0
        touches = any(it.buffer in buffers for it in (*task.reads, *task.writes))
        if not (touches or number or task.phase >= 0):
            return task
        arguments = words(task.arguments)
        if number and arguments:
            arguments[POST.number] += number
        return replace(
            task,
            arguments=arguments,
            phase=task.phase if task.phase < 0 else task.phase + len(posts),
            reads=moved(task.reads),
            writes=moved(task.writes),
            group=groups.get(task.group, task.group),
            more=tuple((kernel, words(block)) for kernel, block in task.more),
        )

    return [of(task) for task in even]


def _tickets(posts: Sequence[Declared]) -> dict[Buffer, Buffer]:
    """Return those of the odd step by those of the even one, whose messages are posted in the order of numbers."""
    return {
        it.buffer: Buffer(Name(TICKETS, which=(len(posts) + number,)))
        for number, task in enumerate(posts)
        for it in task.writes
        if it.buffer.name.use is TICKETS
    }
