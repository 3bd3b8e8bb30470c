"""Run in the kernel of each tutorial before its cells: a folder like the repository's, commands that must not fail."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib_inline.backend_inline as inline

# What notebooks tell the libraries that they load themselves.
FOR_NOTEBOOKS = {"MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"}


def _run(line: str) -> None:
    """A line of the shell; CalledProcessError, behind what it said, if it fails."""
    line = get_ipython().var_expand(line, depth=2)  # noqa: F821
    here = {key: value for key, value in os.environ.items() if key not in FOR_NOTEBOOKS}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], env=here, text=True, **pipes)
    print(done.stdout.replace(f"{Path.cwd()}/", ""), end="")
    done.check_returncode()


def _write(name: str, text: str) -> None:
    """A file, without a word; one of a config with no more updates than the environment says."""
    most = int(os.environ.get("ZNNPY_TUTORIAL_UPDATES", sys.maxsize))
    fewer = re.sub(r"(?<=iterations: )\d+", lambda said: str(min(int(said[0]), most)), text)
    Path(name).write_text(fewer)


get_ipython().system = _run  # noqa: F821
get_ipython().register_magic_function(_write, "cell", "writefile")  # noqa: F821
inline.set_matplotlib_formats("png")
shutil.copytree(
    os.environ["ZNNPY_TUTORIAL_VOLUMES"], Path("volumes"), ignore=shutil.ignore_patterns("runs")
)
