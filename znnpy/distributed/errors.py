"""Errors of ranks: failures that end a run, and those that all ranks find by themselves."""

from __future__ import annotations

import traceback

from znnpy.errors import ZnnpyError


class DistributedError(ZnnpyError):
    """Ranks cannot work together, or one of them has failed."""


class KnownToAllError(DistributedError):
    """An error that every rank finds by itself, so that they need not meet for rank 0 to report it."""


def traced(error: BaseException, rank: int) -> str:
    """Return an error's traceback, each line with the number of its rank."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(f"rank {rank}: {line}" for line in lines)
