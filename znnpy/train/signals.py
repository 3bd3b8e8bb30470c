"""Ctrl-C, SIGTERM and a terminal that is closed: asked once, finish the step and save; asked twice, leave at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol, Self

GRACE = 1.0  # seconds to clean up in where nothing needs to be saved
_SHOW_CURSOR = b"\x1b[?25h"
_LEFT = b"znnpy: stopped at once; run the same command again to go on\n"


class Stopped(BaseException):
    """A signal arrived where nothing needs to be saved; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


class Stop(Protocol):
    """How a loop hears that it shall stop."""

    requested: int | None
    """The signal that this process has had."""

    def agreed(self) -> int | None:
        """The signal after which no update begins any more; asked once before each update."""

    def deferred(self) -> contextlib.AbstractContextManager[None]:
        """Note the first signal instead of raising it."""

    def timings(self) -> dict[str, Any]:
        """What the log says of whoever was asked."""


class StopSignals:
    """Context manager that catches SIGINT, SIGTERM and SIGHUP; outside the main thread it does nothing.

    A SIGHUP that was ignored (`nohup`) still is.

    Outside `deferred()` the first signal raises Stopped where the main thread stands, and ends the
    process if that has not left the context a second later. Inside, it is only noted in
    `requested` (the signal's number), and whoever loops there looks at it. A second signal ends the
    process at once: every file is written beside and renamed, so none is harmed. A SIGHUP is no second
    one: a terminal that closes sends it twice, from its shell and from the kernel.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self._deferring = False
        self._before: dict[int, object] = {}
        self._watch: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            caught = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                caught.append(signal.SIGHUP)  # which MPI's libraries swallow
            for number in caught:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()
        if self._watch:
            self._watch.cancel()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Note the first signal instead of raising it."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def agreed(self) -> int | None:
        """The signal this process has had; there is nobody to ask."""
        return self.requested

    def timings(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested is not None:
            if number == signal.SIGHUP:
                return
            leave_at_once(128 + number)
        self.requested = number
        if not self._deferring:
            self._watch = threading.Timer(GRACE, leave_at_once, (128 + number,))
            self._watch.daemon = True
            self._watch.start()
            raise Stopped(number)


def leave_at_once(code: int) -> None:
    """End the process without cleaning up, but say so; a progress bar's hidden cursor comes back."""
    with contextlib.suppress(OSError):
        os.write(2, (_SHOW_CURSOR if sys.stderr.isatty() else b"") + _LEFT)
    os._exit(code)
