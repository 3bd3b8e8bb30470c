"""Handles Ctrl-C, SIGTERM and SIGHUP: the first one stops after the current step and saves, a second one at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol, Self

from znnpy.errors import is_terminal

# Longer: a process that hangs in a library keeps the terminal. Shorter: temporary files stay
# behind.
GRACE = 1.0  # seconds to clean up in where nothing needs to be saved
AGAIN = 0.01  # seconds after which a signal is sent again that came where nothing can be raised
CALLING_BACK = (
    "llvmlite.binding.executionengine"  # the module whose functions compiled code is loaded by
)
# The terminal's own sequence: a progress bar has hidden the cursor, and cannot clean up any more.
_SHOW_CURSOR = b"\x1b[?25h"
_LEFT = b"znnpy: stopped at once; run the same command again to go on\n"


class Stopped(BaseException):
    """A signal arrived where nothing needs to be saved; `signal` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = number


class Stop(Protocol):
    """How a loop asks whether to stop."""

    requested: int | None
    """The signal that this process has received, or None."""

    def agreed(self) -> int | None:
        """Return the signal after which no update may begin; called once before each update."""

    def deferred(self) -> contextlib.AbstractContextManager[None]:
        """Note the first signal instead of raising it."""

    def timings(self) -> dict[str, Any]:
        """Return values for timings.jsonl, such as those of messages between ranks."""


class StopSignals:
    """Context manager that catches SIGINT, SIGTERM and SIGHUP; outside the main thread it does nothing.

    A SIGHUP that was ignored (`nohup`) stays ignored.

    Outside `deferred()` the first signal raises Stopped where the main thread is, and ends the process if
    that has not left the context a second later. Inside, it is only noted in `requested` (the signal's number),
    for the loop there to look at. A second signal ends the process at once: every file is written atomically, so
    none is harmed. A SIGHUP does not count as second: a terminal that closes sends it twice, from its shell
    and from the kernel.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self._deferring = False
        self._before: dict[int, object] = {}
        self._watch: threading.Timer | None = None

    def __enter__(self) -> Self:
        # Python only lets the main thread set handlers.
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
        """Return the signal of this process; there is no other to ask."""
        return self.requested

    def timings(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A second one: whoever asks twice does not want to wait for the step.
        if self.requested is not None:
            if number == signal.SIGHUP:
                return
            # 128 + number is what a shell reports for a process that a signal has ended.
            leave_at_once(128 + number)
        if not self._deferring and _in_callback(frame):
            again = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self.requested = number
        if not self._deferring:
            self._watch = threading.Timer(GRACE, leave_at_once, (128 + number,))
            # It must not keep a process alive that has left in time.
            self._watch.daemon = True
            self._watch.start()
            raise Stopped(number)


def _in_callback(frame: FrameType | None) -> bool:
    """Return whether the main thread may be in a callback of LLVM's, where ctypes swallows what is raised."""
    while frame is not None:
        if frame.f_globals.get("__name__") == CALLING_BACK:
            return True
        frame = frame.f_back
    return False


def leave_at_once(code: int) -> None:
    """End the process without cleaning up, with a message, and show the cursor that a progress bar hid."""
    with contextlib.suppress(OSError):
        # By file number: a handler may have interrupted a write of sys.stderr, whose lock is then
        # taken. Without that stream the number may be that of a file of the run.
        if sys.stderr is not None:
            os.write(2, (_SHOW_CURSOR if is_terminal(sys.stderr) else b"") + _LEFT)
    os._exit(code)
