"""Scripts that several ranks run."""

from __future__ import annotations

import subprocess
import sys

from ranked import SECONDS, mpiexec


def launched(ranks: int, script: str, *arguments: object) -> list[str]:
    """Lines that the ranks of a script printed, sorted; AssertionError with what they said if one fails."""
    command = mpiexec(ranks, sys.executable, "-c", script, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())
