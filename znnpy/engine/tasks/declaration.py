"""`Declared`: one task as an emitter declares it, before its order among others is known."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.scheduling.run import run_in_turn

from znnpy.engine.memory.regions import Buffer, Key, Region
from znnpy.engine.tasks.task_identity import ELEMENTWISE, Identity
from znnpy.plan.cost import ELEMENTWISE_RATE, MEMORY_RATE


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector of cyclic garbage: declarations of a large network are millions of objects without cycles.

    It would look at all of them again and again, a third of the time that it takes to declare them.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@dataclass(frozen=True)
class Declared:
    """One task: its kernel with arguments, what it is, and the regions that it reads and writes.

    `cost`: estimated seconds, by which passes are cut and tasks ordered. `group`: tasks that somebody waits for
    together; -1: none. `stage`: layer and pass, which the policy `layers` alone regards.
    """

    kernel: Kernel
    arguments: Sequence[int]
    what: Identity
    cost: float
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    group: int = -1
    stage: int = 0
    phase: int = -1
    """The phase that releases this task, when a message is complete; -1: none."""
    between: tuple[Key, ...] = ()
    """Of a gate: the keys whose uses before and after it are kept apart; a gate touches nothing itself."""
    urgent: bool = False
    """Whether another rank waits for it, which the graph does not show."""
    light: bool = False
    """Whether the thread whose release makes it ready may run it: short, and with no memory of a worker's own."""
    anew: tuple[Buffer, ...] = ()
    """Buffers whose content is dropped here: this task and later ones fill them again."""
    divides: bool = False
    """Whether tasks like it that wait for the same regions share what they read of these: each touches a part."""
    follows: bool = False
    """Whether it is done by the worker that has done the task declared before it, at once: both are one task."""
    more: tuple[tuple[Kernel, Sequence[int]], ...] = ()
    """Calls that follow the first one within the task: kernels with their arguments."""

    @property
    def seconds(self) -> float:
        """The estimated seconds that it takes: of elementwise work less than its cost, which has it cut finely."""
        return self.cost * (MEMORY_RATE / ELEMENTWISE_RATE if self.what.kind in ELEMENTWISE else 1)

    @property
    def call(self) -> tuple[int, Sequence[int]]:
        """The address of its kernel, compiled by now, and its argument block; of a run, all of its calls."""
        if not self.more:
            return _address(self.kernel), self.arguments
        block = [1 + len(self.more)]
        for kernel, words in ((self.kernel, self.arguments), *self.more):
            block += [_address(kernel), len(words), *words]
        return _address(run_in_turn), block


@cache
def _address(kernel: Kernel) -> int:
    """Return the address of a compiled kernel, which tells it in a microsecond: graphs ask a million times."""
    return kernel.address
