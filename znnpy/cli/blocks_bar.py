"""Progress over blocks: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

INTERVAL = 5.0  # seconds between plain lines


class BlocksBar:
    """Context manager whose `show(done, total)` is called after each block."""

    def __init__(self, what: str) -> None:
        console = Console(stderr=True)
        self._what, self._last = what, time.monotonic()
        self._bar = Progress(
            TextColumn(what),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._plain = not console.is_terminal
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """`done` of `total` blocks are finished."""
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if self._plain and now - self._last >= INTERVAL:
            self._last = now
            print(f"{self._what}: block {done} of {total}", file=sys.stderr, flush=True)
