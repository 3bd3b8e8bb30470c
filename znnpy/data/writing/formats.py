"""Outputs of all formats, by the suffix of their names.

A new format is a `journaled.JournaledOutput`, a line in `open_output`, and what its names mean to
`destination` and `preflight`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from znnpy.data.volume import Triple
from znnpy.data.writing.destination import Destination, is_zarr_name, journal_of
from znnpy.data.writing.hdf5_output import Hdf5Output
from znnpy.data.writing.journal import read_head
from znnpy.data.writing.protocol import BlockOutput, OutputSpec


def open_output(
    destination: Destination, spec: OutputSpec, *, attached: bool = False
) -> BlockOutput:
    """Begin an output, or go on with one that was begun.

    `attached`: another process has it open with this spec; here blocks can only be `put`.
    """
    if destination.is_zarr:
        # Takes a third of a second to import, so only those who write Zarr wait for it.
        from znnpy.data.writing.zarr_output import ZarrOutput

        return ZarrOutput(destination, spec, attached=attached)
    return Hdf5Output(destination, spec, attached=attached)


def aligned_phase(path: Path, lower: Triple, block: Triple) -> Triple:
    """The phase with which blocks lie on one grid of the whole volume when voxel 0 is its `lower`.

    Files whose storage units begin at voxel 0 have none.
    """
    if is_zarr_name(path):
        return (0, 0, 0)
    z, y, x = (a % step for a, step in zip(lower, block, strict=True))
    return (z, y, x)


def begun(path: Path) -> dict[str, Any] | None:
    """The head of an output that was begun at `path` and not finished; None when there is none."""
    return read_head(journal_of(path))
