"""Tasks as emitters declare them, before anything is known of their order."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.memory.regions import Buffer, Key, Region
from znnpy.engine.tasks.task_identity import Identity


@dataclass(frozen=True)
class Declared:
    """One task as the emitters describe it."""

    kernel: Kernel
    arguments: list[int]
    what: Identity
    cost: float
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    group: int = -1
    stage: int = 0
    phase: int = -1
    """Of what waits for a message: the phase that its completion releases."""
    between: tuple[Key, ...] = ()
    """Of a gate: whose uses before and after it are kept apart; it touches nothing itself."""
    urgent: bool = False
    """Whether others than the graph's tasks wait for it: another rank."""
    anew: tuple[Buffer, ...] = ()
    """Buffers that hold nothing any more: this task and those behind it fill them once more."""
