"""Ends processes that cannot end by themselves: this one, or all of a run by their launcher."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import NoReturn

# Long enough for rank 0 to notice and to begin a line; then it has until others leave, as the launcher may kill it for
# their exit.
GRACE = 1.0  # seconds in which rank 0 begins to say why all end


def leave(status: int) -> NoReturn:
    """End the process as it stands: every file is written atomically."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Not `sys.exit`: threads in MPI or in kernels cannot be ended otherwise.
    os._exit(status)


def kill_all(status: int) -> None:
    """Abort by the launcher what cannot be told, or does not listen; returns where MPI has not begun."""
    with suppress(Exception):
        from znnpy.distributed.mpi import MPI

        if MPI.Is_initialized():
            # A launcher that ends all may not pass on what was said just before.
            time.sleep(GRACE / 2)
            MPI.COMM_WORLD.Abort(status)
