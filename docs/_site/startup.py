"""Run in the kernel of each tutorial before its cells: a folder like the repository's, commands that must not fail."""

import os
import shutil
import subprocess
from pathlib import Path

import matplotlib_inline.backend_inline as inline


def _run(line: str) -> None:
    """A line of the shell; CalledProcessError with what it said if it fails."""
    line = get_ipython().var_expand(line, depth=2)  # noqa: F821
    done = subprocess.run(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(done.stdout, end="")
    done.check_returncode()


get_ipython().system = _run  # noqa: F821
inline.set_matplotlib_formats("png")
shutil.copytree(
    os.environ["ZNNPY_TUTORIAL_VOLUMES"], Path("volumes"), ignore=shutil.ignore_patterns("runs")
)
