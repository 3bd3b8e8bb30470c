"""What can go wrong while a task graph runs."""

from znnpy.errors import ZnnpyError


class SchedulerError(ZnnpyError):
    """An executor was used wrongly, or the graph it runs can make no progress."""
