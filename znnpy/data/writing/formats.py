"""Opens outputs of any format by the suffix of their names; a new format is an entry in `output_format.OUTPUTS`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from znnpy.data.volume import Triple
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.data.writing.journal import read_head
from znnpy.data.writing.output_format import output_format
from znnpy.data.writing.protocol import BlockOutput, OutputSpec
from znnpy.registry import resolved


def open_output(
    destination: Destination, spec: OutputSpec, *, attached: bool = False
) -> BlockOutput:
    """Start an output, or resume one that was begun.

    `attached`: another process has it open with this spec; here blocks can only be `put`.
    """
    opened: BlockOutput = resolved(destination.format.blocks)(destination, spec, attached=attached)
    return opened


def aligned_phase(path: Path, lower: Triple, block: Triple) -> Triple:
    """Return the phase with which blocks lie on one grid of the whole volume when voxel 0 is its `lower`.

    Formats whose storage units begin at voxel 0 have none.
    """
    if output_format(path).from_voxel_0:
        return (0, 0, 0)
    z, y, x = (a % step for a, step in zip(lower, block, strict=True))
    return (z, y, x)


def begun(path: Path) -> dict[str, Any] | None:
    """Return the head of an output that was begun at `path` and not finished; None when there is none."""
    return read_head(journal_of(path))
