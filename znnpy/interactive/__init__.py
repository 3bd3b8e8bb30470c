"""What Python sessions and notebooks call: the commands as functions, whose results draw themselves there."""

from znnpy.interactive.objects import Objects, score, segment
from znnpy.interactive.run import Run, open_run
from znnpy.interactive.training import train

__all__ = ["Objects", "Run", "open_run", "score", "segment", "train"]
