"""`Requests`: what tasks have asked an arena for, in order, without the buffers, so that others can ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from znnpy.engine.memory.regions import Filled, Name

RequestKind = Literal["shared", "workspace", "scratch", "own"]
"""A buffer that shares memory with others, the number of the workspace, the workers' scratch, a buffer with its own."""


class Request(NamedTuple):
    """One buffer; `floats` and `filled` of those with memory of their own."""

    kind: RequestKind
    name: Name | None = None
    floats: int = 0
    filled: Filled = Filled.STEP


@dataclass(frozen=True)
class Requests:
    """All of an arena that tells buffers apart, whose numbers are their places in here.

    `reserved`: of those that a `Build` asks for itself, whether they share memory; `later`: those of tasks.
    """

    reserved: tuple[bool, ...]
    later: tuple[Request, ...]
