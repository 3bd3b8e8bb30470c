"""A command that is started, disturbed and watched, and how it may end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST = 900.0  # seconds without an end, compilation of all kernels included, that count as a hang
FOREIGN = ("Traceback", "Exception ignored", "Segmentation fault")


class WrongError(Exception):
    """Something that must never happen; the message says what."""


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code (-n: killed by signal n) and all that it said."""

    code: int
    said: str

    def require(self, codes: set[int], words: str = "") -> None:
        """WrongErrorError if the code is none of these, or a failure is not one line with one of the words."""
        if any(word in self.said for word in FOREIGN):
            raise WrongError("a traceback")
        if self.code not in codes:
            raise WrongError(f"exit code {self.code} where one of {sorted(codes)} was due")
        if self.code == 1:
            errors = [line for line in self.said.splitlines() if line.startswith("znnpy: ")]
            if len(errors) != 1 or not re.search(words, errors[0]):
                raise WrongError(f"no single error about {words!r}: {errors}")


class Process:
    """A znnpy command; its output goes through a pipe, for disks may be full."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        line = [sys.executable, "-c", "from znnpy.cli import main; main()", *words]
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
        )
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it said so far."""
        return "".join(self._said)

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it came."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ending(self) -> Ending:
        """Wait for the end; WrongError if none comes."""
        if not self.wait(LONGEST):
            raise WrongError(f"no end within {LONGEST:.0f} s")
        self._reader.join(10)
        return Ending(self._process.returncode, self.said)

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.running:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._said.append(line)
