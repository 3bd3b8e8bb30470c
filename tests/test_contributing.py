"""What CONTRIBUTING.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")]


def test_the_table_names_files_that_are_there() -> None:
    """Kernels count from their own package; other paths of the table from znnpy/."""
    named = [
        (ROOT / ("kernels/znnpy_kernels" if kernels else "znnpy")) / path
        for row in ROWS
        for kernels, path in re.findall(r"(kernels )?`([\w/]+(?:/|\.py))`", row)
    ]
    assert len(named) > 15
    assert [path for path in named if not path.exists()] == []


def test_other_paths_are_there() -> None:
    prose = "\n".join(line for line in TEXT.splitlines() if line not in ROWS)
    paths = re.findall(r"\b((?:tests|scripts|znnpy|docs)/[\w/.]*\w)", prose)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
