"""What goes wrong among ranks."""

from __future__ import annotations

from znnpy.errors import ZnnpyError


class DistributedError(ZnnpyError):
    """Ranks cannot work together, or one of them has failed."""


class KnownToAllError(DistributedError):
    """What every rank finds by itself without the others, so that they need not meet for rank 0 to say it."""
