"""Ends a process of tests in which one hangs, after it has said where."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import threading
import time
from collections.abc import Iterator

import psutil

LIMIT = 1200.0  # seconds of one test, far above what any takes on a busy machine that compiles, too
POLL = 10.0


class Guard(threading.Thread):
    """Watches the test at hand from beside it; pytest's own watch does not survive a fork."""

    def __init__(self, out: int, limit: float = LIMIT, poll: float = POLL) -> None:
        super().__init__(name="guard", daemon=True)
        self._out, self._limit, self._poll = out, limit, poll
        self._test, self._until = "", math.inf

    @contextlib.contextmanager
    def watching(self, test: str) -> Iterator[None]:
        """While this one runs."""
        self._test, self._until = test, time.monotonic() + self._limit
        if not self.is_alive():
            self.start()
        try:
            yield
        finally:
            self._until = math.inf

    def run(self) -> None:
        """For as long as the process lives."""
        while time.monotonic() < self._until:
            time.sleep(self._poll)
        os.write(self._out, f"\n{self._test} hangs: no end in {self._limit:g} s\n".encode())
        faulthandler.dump_traceback(self._out)
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        os._exit(1)
