"""The progress of a prediction over blocks on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from znnpy.infer.block_writer import Done

INTERVAL = 5.0  # seconds between plain lines


class BlocksBar:
    """Context manager whose `show(done)` is called after each block; a `quiet` one shows nothing."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._what, self._last = what, time.monotonic()
        self._bar = Progress(
            TextColumn(what),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._plain = not (quiet or console.is_terminal)
        self._task = self._bar.add_task(what, total=None, words="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def prepare(self, what: str, done: int, total: int) -> None:
        """Show the progress of preparations before the first block."""
        words = f"{what}: {done} of {total}"
        self._bar.update(self._task, words=words)
        self._say(words)

    def show(self, done: Done) -> None:
        """Show the progress of the prediction."""
        words = f"{done.voxels_per_s:,.0f} voxels/s, {_left(done.remaining)} left"
        self._bar.update(self._task, completed=done.blocks, total=done.total, words=words)
        self._say(f"{self._what}: block {done.blocks} of {done.total}, {words}")

    def count(self, done: int, total: int) -> None:
        """Show how many windows of a scan are done."""
        self._bar.update(self._task, completed=done, total=total)
        self._say(f"{self._what}: window {done} of {total}")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if self._plain and now - self._last >= INTERVAL:
            self._last = now
            print(text, file=sys.stderr, flush=True)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
