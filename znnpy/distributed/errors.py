"""What goes wrong among ranks."""

from __future__ import annotations

from znnpy.errors import ZnnpyError


class DistributedError(ZnnpyError):
    """Ranks cannot work together, or one of them has failed."""
