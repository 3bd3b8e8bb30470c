"""Cells of tutorials: where they run, and how lines that start a command are shown.

A line `!znnpy check config.yaml` of a cell is a command of the shell; one that fails ends the build.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def prepare(app: Any) -> None:
    """IPython starts with `startup.py`, in a profile of its own."""
    profile = Path(app.doctreedir).parent / "ipython"
    startup = profile / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "startup.py", startup / "00-tutorial.py")
    os.environ["IPYTHONDIR"] = str(profile)
    os.environ["ZNNPY_TUTORIAL_VOLUMES"] = str(ROOT / "volumes")
    # What commands say is shown as it is: no colours, no bars, lines of the page's width.
    os.environ.update(NO_COLOR="1", TERM="dumb", COLUMNS="88")


def show_prompts(app: Any, doctree: Any) -> None:
    """Show cells of commands as a terminal does."""
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().splitlines()
        if lines and all(
            line.startswith(("!", "#")) or after(lines, i) for i, line in enumerate(lines)
        ):
            text = "\n".join(f"$ {line[1:]}" if line[:1] == "!" else line for line in lines)
            block["language"] = "console"
            block.rawsource = text
            block.children = [nodes.Text(text)]


def after(lines: list[str], i: int) -> bool:
    """Whether a line goes on with a command."""
    return i > 0 and lines[i - 1].endswith("\\")
