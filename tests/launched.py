"""Scripts that several ranks run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ranked import SECONDS

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def launched(ranks: int, script: str, *arguments: object) -> list[str]:
    """Lines that the ranks of a script printed, sorted; AssertionError with what they said if one fails."""
    assert MPIEXEC, "no mpiexec: pip install mpi4py mpich"
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-c", script, *map(str, arguments)]
    here = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=here)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())
