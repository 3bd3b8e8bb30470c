"""What goes wrong among ranks."""

from __future__ import annotations

import traceback

from znnpy.errors import ZnnpyError


class DistributedError(ZnnpyError):
    """Ranks cannot work together, or one of them has failed."""


class KnownToAllError(DistributedError):
    """What every rank finds by itself without the others, so that they need not meet for rank 0 to say it."""


def traced(error: BaseException, rank: int) -> str:
    """An error with where it comes from, each line with the number of the rank that has it."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(f"rank {rank}: {line}" for line in lines)
