"""The error that executors raise."""

from znnpy.errors import ZnnpyError


class SchedulerError(ZnnpyError):
    """An executor was used wrongly, or its graph can make no progress."""
