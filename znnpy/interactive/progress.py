"""Progress that draws itself in a notebook: a bar of HTML, drawn again at most a few times a second."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, Self

from markupsafe import Markup

from znnpy.infer.block_writer import Done
from znnpy.infer.blocks_bar import BlocksBar
from znnpy.train.progress import Reporter, Smooth, Status, choose_reporter, clock, shown

INTERVAL = 0.3  # seconds between two drawings


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML."""
    shell = sys.modules.get("IPython")
    found = shell and shell.get_ipython()
    return found is not None and type(found).__name__ == "ZMQInteractiveShell"


def reporter_here(*, quiet: bool) -> Reporter:
    """Return what shows the progress of training: in a notebook, on a terminal, in a log."""
    return NotebookBar() if in_notebook() and not quiet else choose_reporter(quiet=quiet)


class Blocks(Protocol):
    """Shows the progress of a prediction."""

    def prepare(self, what: str, done: int, total: int) -> None:
        """Show the progress of preparations."""

    def show(self, done: Done) -> None:
        """Show how many blocks are done."""


def blocks_here(*, quiet: bool) -> AbstractContextManager[Blocks]:
    """Return what shows the progress of a prediction: in a notebook, on a terminal, in a log."""
    if in_notebook() and not quiet:
        return nullcontext(NotebookBlocks())
    return BlocksBar("predicting", quiet=quiet)


class Drawn:
    """A place in a notebook's output whose HTML is replaced, at most every INTERVAL seconds."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = float("-inf")

    def draw(self, share: float, words: str, *, now: bool = False) -> None:
        """Draw a bar and words beside it; `now`: however short the time since the last one."""
        if not now and time.monotonic() - self._last < INTERVAL:
            return
        from IPython.display import HTML, display

        self._last = time.monotonic()
        text = HTML(str(bar(share, words)))
        if self._handle is None:
            self._handle = display(text, display_id=True)
        else:
            self._handle.update(text)


def bar(share: float, words: str) -> Markup:
    """Return a bar, filled by `share` from 0 to 1, and words."""
    filled = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return Markup(
        '<div style="font-size: 90%"><progress style="width: 16em; vertical-align: middle" max="100" value="{}">'
        "</progress> {}</div>"
    ).format(filled, words)


class NotebookBar:
    """Training's progress in a notebook; notes go to stderr, as everywhere."""

    def __init__(self) -> None:
        self._preparing, self._training = Drawn(), Drawn()
        self._smooth, self._total = Smooth(), 1
        self._at: tuple[float, str] | None = None

    def preparing(self, what: str, done: int, total: int) -> None:
        """Draw how much is ready."""
        self._preparing.draw(done / max(total, 1), f"{what}: {done} of {total}", now=done == total)

    def start(self, total: int, done: int) -> None:
        """Draw the bar."""
        self._total = max(total, 1)
        self._at = done / self._total, f"{done} of {total}"
        self._training.draw(*self._at, now=True)

    def update(self, status: Status) -> None:
        """Move the bar."""
        loss, error = self._smooth.add(status)
        left = (self._total - status.iteration) / max(status.updates_per_s, 1e-9)
        words = (
            f"{status.iteration} of {self._total}, {shown(loss, error, self._smooth.losses)}, "
            f"{status.updates_per_s:.1f} updates/s, {clock(left)} left"
        )
        self._at = status.iteration / self._total, words
        self._training.draw(*self._at)

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Draw the bar as it stands."""
        if self._at:
            self._training.draw(*self._at, now=True)


class NotebookBlocks:
    """A prediction's progress in a notebook."""

    def __init__(self) -> None:
        self._drawn = Drawn()

    def prepare(self, what: str, done: int, total: int) -> None:
        """Draw the progress of preparations."""
        self._drawn.draw(done / max(total, 1), f"{what}: {done} of {total}")

    def show(self, done: Done) -> None:
        """Draw how many blocks are done."""
        words = f"{done.blocks} of {done.total} blocks, {done.voxels_per_s:,.0f} voxels/s"
        self._drawn.draw(done.blocks / done.total, words, now=done.blocks == done.total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return
