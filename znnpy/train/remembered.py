"""Patches of predictions, remembered in the run directory: the same stack gets the same values again.

Nothing here is needed: a file that is damaged, or a directory that cannot be written, costs a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from znnpy.errors import RunError
from znnpy.locks import alone
from znnpy.train.rundir import PATCHES, read_object, write_json

Note = Callable[[str], None]


def remembered(run: Path, note: Note) -> dict[str, Any]:
    """Records by what they depend on; none, and a note, when the file is damaged."""
    try:
        return read_object(run / PATCHES) or {}
    except RunError as error:
        note(f"{error}; patches are chosen anew")
        return {}


def remember(run: Path, records: Mapping[str, Any], note: Note) -> None:
    """Add records, those before of the same name replaced; a note when they cannot be kept."""
    try:
        with alone(run, "notes patches of predictions"):
            known = remembered(run, lambda _: None)
            write_json(run / PATCHES, known | dict(records))
    except (RunError, OSError) as error:
        note(f"the patch is not remembered: {error}")
