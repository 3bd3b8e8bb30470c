"""Writes a page again and again in a thread of its own, beside the training, for at most a hundredth of its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from znnpy.atomic_files import write_text
from znnpy.closing import Closing
from znnpy.errors import RunError, ZnnpyError, reason

INTERVAL = 3.0  # seconds between two pages, at least
SHARE = 0.005  # of the time that pages may take


class PageWriter(Closing):
    """Writes what `render` returns to a file, at most every few seconds, once there is something new.

    `changed` and `problem` are called by the training thread, `render` by the writer's: it must not read what training
    writes. The last page is the caller's to write, after `close`. A page that cannot be made or written stops nothing:
    `problem` says so, once.
    """

    def __init__(self, path: Path, render: Callable[[], str]) -> None:
        self._path, self._render = path, render
        self._new, self._ending = threading.Event(), threading.Event()
        self._problem, self._told = "", False
        self._thread: threading.Thread | None = None

    def changed(self) -> None:
        """Note that there is something new to show."""
        self._new.set()
        if self._thread is None:
            # A daemon: a second Ctrl-C does not wait for it, and what is half written is no page.
            self._thread = threading.Thread(target=self._run, name="znnpy-page", daemon=True)
            self._thread.start()

    def problem(self) -> str:
        """Return a line on why there is no newer page, the first time that there is a reason; else ""."""
        if not self._problem or self._told:
            return ""
        self._told = True
        return f"{self._problem}; training goes on without"

    def write(self) -> float:
        """Write a page now; return the seconds that it took."""
        began = time.monotonic()
        try:
            write_text(self._path, self._render(), RunError)
        except ZnnpyError as error:
            self._problem = self._problem or str(error)
        except Exception as error:  # a picture is never worth a run
            self._problem = (
                self._problem
                or f"{self._path} cannot be drawn: {type(error).__name__}: {reason(error)}"
            )
        return time.monotonic() - began

    def close(self) -> None:
        """Wait for the page that is being written, and write no more."""
        self._ending.set()
        self._new.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # Not at once: runs of a moment have their last page alone.
        wait = INTERVAL
        while not self._ending.wait(wait):
            self._new.wait()
            self._new.clear()
            if self._ending.is_set():
                return
            wait = max(INTERVAL, self.write() / SHARE)
