"""The progress of a prediction over blocks on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from znnpy.errors import is_terminal
from znnpy.infer.block_writer import Done

if TYPE_CHECKING:
    from rich.progress import Progress

INTERVAL = 5.0  # seconds between plain lines


class BlocksBar:
    """Context manager whose `show(done)` is called after each block; a `quiet` one shows nothing."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what, self._last = what, time.monotonic()
        seen = is_terminal(sys.stderr)
        self._bar = _bar(what) if seen and not quiet else None
        self._plain = not (quiet or seen)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def prepare(self, what: str, done: int, total: int) -> None:
        """Show the progress of preparations before the first block."""
        words = f"{what}: {done} of {total}"
        if self._bar:
            self._bar.update(self._bar.task_ids[0], words=words)
        self._say(words)

    def show(self, done: Done) -> None:
        """Show the progress of the prediction."""
        words = f"{done.voxels_per_s:,.0f} voxels/s, {_left(done.remaining)} left"
        if self._bar:
            self._bar.update(
                self._bar.task_ids[0], completed=done.blocks, total=done.total, words=words
            )
        self._say(f"{self._what}: block {done.blocks} of {done.total}, {words}")

    def count(self, done: int, total: int) -> None:
        """Show how many windows of a scan are done."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        self._say(f"{self._what}: window {done} of {total}")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if self._plain and now - self._last >= INTERVAL:
            self._last = now
            print(text, file=sys.stderr, flush=True)


def _bar(what: str) -> Progress:
    """Return a bar with one task on the terminal."""
    # With rich, which takes as long to import as a small prediction: logs do without.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    made = Progress(
        TextColumn(what),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        console=Console(stderr=True),
    )
    made.add_task(what, total=None, words="")
    return made


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
