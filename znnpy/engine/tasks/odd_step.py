"""Makes the odd step of an update from the even one: the same tasks on the other set of staged data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.staging import Move
from znnpy.engine.tasks.declaration import Declared


def odd_step(even: Sequence[Declared], move: Move, groups: Mapping[int, int]) -> list[Declared]:
    """Return the tasks of the odd step; those that touch nothing staged are those of the even one.

    `groups`: what somebody waits for in the odd step, by the even step's. Declaring a large network takes seconds,
    this hardly any time.
    """

    def moved(regions: Sequence[Region]) -> tuple[Region, ...]:
        return tuple(it._replace(buffer=move.buffers.get(it.buffer, it.buffer)) for it in regions)

    def words(block: Sequence[int]) -> list[int]:
        return [move.address(word) for word in block]

    def of(task: Declared) -> Declared:
        if not any(it.buffer in move.buffers for it in (*task.reads, *task.writes)):
            return task
        return replace(
            task,
            arguments=words(task.arguments),
            reads=moved(task.reads),
            writes=moved(task.writes),
            group=groups.get(task.group, task.group),
            more=tuple((kernel, words(block)) for kernel, block in task.more),
        )

    return [of(task) for task in even]
