"""Lets test modules import the helpers that stand beside this file, and says how many run at once."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_xdist_auto_num_workers() -> int:
    """Cores that this process may use; no process but this one where there is only one."""
    cores = len(os.sched_getaffinity(0))
    return cores if cores > 1 else 0
