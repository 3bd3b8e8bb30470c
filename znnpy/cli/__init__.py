"""The `znnpy` command."""

from znnpy.cli.app import main

__all__ = ["main"]
