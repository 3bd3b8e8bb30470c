"""What stands at an output's place, in words for people."""

from __future__ import annotations

from znnpy.data.writing.contract import OutputSpec
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.data.writing.journal import read_done, read_head, refuse_other
from znnpy.errors import VolumeError


def standing(destination: Destination, spec: OutputSpec) -> str:
    """What stands at an output's place, and what writing it would do with that."""
    path, overwrite = destination.path, destination.overwrite
    journal = journal_of(path)
    head = read_head(journal)
    replaced = f"{path} exists and would be replaced" if path.exists() else ""
    if path.exists() and not overwrite and not (head and read_done(journal)[1]):
        return f"{path} exists: would be refused; name another file, or add --overwrite"
    if head is None:
        return replaced or f"{path} does not exist yet"
    done, all_done = read_done(journal)
    try:
        refuse_other(partial_of(path), head, spec.head(destination.dataset))
    except VolumeError as error:
        if overwrite:
            return f"{partial_of(path)} is of another job and would be begun anew"
        return f"would be refused: {error}"
    if all_done:
        return f"{path} was written by an earlier process: would only be moved to its place"
    count = f"{done} of {len(spec.blocks())} blocks are written"
    return f"{partial_of(path)} was begun: would go on, {count}"
