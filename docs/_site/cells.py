"""Cells of tutorials: where they run, and how lines that start a command are shown.

A line `!znnpy check config.yaml` of a cell is a command of the shell; one that fails ends the build. Shown are the
command and what it says; of a cell that begins with `%%writefile NAME`, the file.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WRITTEN = "%%writefile "


def prepare(app: Any) -> None:
    """IPython starts with `startup.py`, in a profile of its own."""
    profile = Path(app.doctreedir).parent / "ipython"
    startup = profile / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "startup.py", startup / "00-tutorial.py")
    quiet = "c.IPKernelApp.log_level = 'ERROR'\n"
    (startup.parent / "ipython_kernel_config.py").write_text(quiet)
    os.environ["IPYTHONDIR"] = str(profile)
    os.environ["ZNNPY_TUTORIAL_VOLUMES"] = str(ROOT / "volumes")
    # What commands say is shown as it is: no colours, no bars, lines of the page's width.
    os.environ.update(NO_COLOR="1", TERM="dumb", COLUMNS="88")


def spread(app: Any, environment: Any, names: list[str]) -> None:
    """Put neighbours apart: pages are read in batches, and a process with all tutorials would run them one by one."""
    names[:] = [name for first in range(8) for name in names[first::8]]


def show_prompts(app: Any, doctree: Any) -> None:
    """Show cells of commands as a terminal does, and files that cells write as files."""
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().splitlines()
        if lines and lines[0].startswith(WRITTEN):
            name = lines[0].removeprefix(WRITTEN)
            _show(block, Path(name).suffix[1:], [f"# {name}", *lines[1:]])
        elif lines and all(map(_is_command, ["", *lines], lines)):
            _show(block, "console", [re.sub("^!", "$ ", line) for line in lines])


def _show(block: Any, language: str, lines: list[str]) -> None:
    block["language"] = language
    block.rawsource = "\n".join(lines)
    block.children = [nodes.Text(block.rawsource)]


def _is_command(before: str, line: str) -> bool:
    """Whether a line is one, or goes on with the one before."""
    return line.startswith(("!", "# ")) or before.endswith("\\")
