"""The error that building a task graph raises."""

from znnpy.errors import ZnnpyError


class GraphError(ZnnpyError):
    """A task graph cannot run: a cycle without a token, or a task that nothing would ever start."""
