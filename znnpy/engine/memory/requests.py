"""`Requests`: what tasks have asked an arena for, in order, without the buffers, so that others can ask again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from znnpy.engine.memory.regions import Filled, Name

RequestKind = Literal["shared", "workspace", "scratch", "own", "mailbox", "theirs"]
"""A buffer that shares memory with others, the number of the workspace, the workers' scratch, a buffer with its own;
addresses outside the arena: where messages are posted, and another rank's buffer.
"""


class Request(NamedTuple):
    """One buffer; `floats` and `filled` of those with memory of their own.

    `peer`, `number`: of another rank's buffer, the rank, and the number of the same buffer here.
    """

    kind: RequestKind
    name: Name | None = None
    floats: int = 0
    filled: Filled = Filled.STEP
    peer: int = 0
    number: int = 0


@dataclass(frozen=True)
class Requests:
    """All of an arena that tells buffers apart, whose numbers are their places in here.

    `reserved`: of those that a `Build` asks for itself, whether they share memory; `later`: those of tasks.
    """

    reserved: tuple[bool, ...]
    later: tuple[Request, ...]


class Outside(NamedTuple):
    """Addresses outside the arena: the mailbox, and by rank how many bytes behind our buffers the same of others lie.

    0 where there is no mailbox, as graphs are never run.
    """

    mailbox: int = 0
    shifts: Mapping[int, int] = {}
