"""The `znnpy` command, called in the process of the test."""

from __future__ import annotations

from znnpy.cli import main


def status_of(*words: object) -> int:
    """The exit status of a command line."""
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0
