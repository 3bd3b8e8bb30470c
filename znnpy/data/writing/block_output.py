"""Outputs written block by block: the spec of an output, the methods of every format, and opening one by its suffix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from znnpy.data.volume import Array, Shape4, Triple
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.data.writing.journal import Region, read_head
from znnpy.data.writing.output_format import output_format
from znnpy.errors import VolumeError
from znnpy.registry import resolved

# Blocks, and voxels of one, beyond and below which an output is nothing but syncs.
MANY, TINY = 20_000, 4096


class Finished(VolumeError):  # noqa: N818
    """The output had been written completely by a process that was killed last; it is in its place now."""


@dataclass(frozen=True)
class OutputSpec:
    """Shape, dtype, blocks and attributes of an output.

    `shape` (C, Z, Y, X); `block` (z, y, x): blocks lie on a grid that begins `phase` voxels before voxel
    0; those at both ends of an axis are cut. `job` is JSON-able: all that the values depend on, by names
    that people understand. An output that was begun is resumed only with an equal spec; only attributes
    may differ, and those that it was begun with stay. Without `channels` the array is (Z, Y, X), and C is 1.

    Raises VolumeError for many tiny blocks: each is brought to the disk by itself, which takes a millisecond or more.
    """

    shape: Shape4
    dtype: np.dtype[Any]
    block: Triple
    attributes: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    phase: Triple = (0, 0, 0)
    channels: bool = True

    def __post_init__(self) -> None:
        lengths = zip(self.shape[1:], self.phase, self.block, strict=True)
        count = math.prod(-(-(size + before % step) // step) for size, before, step in lengths)
        if count > MANY and math.prod(self.block) < TINY:
            raise VolumeError(
                f"--block: blocks of {self.block} voxels (z, y, x) cut {self.shape[1:]} into {count:,}, each of which "
                f"is brought to the disk by itself; take blocks of {TINY:,} voxels or more, such as 16,16,16"
            )

    @property
    def nbytes(self) -> int:
        """The bytes of all values, uncompressed."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def blocks(self) -> list[Region]:
        """Return all blocks, z slowest."""
        axes = [
            [(max(low, 0), min(low + step, size)) for low in range(-(before % step), size, step)]
            for size, step, before in zip(self.shape[1:], self.block, self.phase, strict=True)
        ]
        return [((z[0], y[0], x[0]), (z[1], y[1], x[1])) for z, y, x in itertools.product(*axes)]

    def head(self, dataset: str) -> dict[str, Any]:
        """Return the head of the journal."""
        return {
            "dataset": dataset,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "block": list(self.block),
            "phase": list(self.phase),
            **self.job,
        }


class BlockOutput(Protocol):
    """A file being written. Until `finish`, its final path holds nothing, or what was there before.

    Opening it starts a file or resumes one; VolumeError when a finished file is in the way, the
    begun one is of another spec (the message names what differs), or another process writes to it;
    `Finished` when only the move to the final path was left to do.
    A write or sync that fails raises OSError; blocks that are `done` stay so.
    """

    @property
    def done(self) -> AbstractSet[Region]:
        """The blocks whose values are on the disk, checked against their checksums when opened."""

    def write(self, lower: Triple, block: Array) -> None:
        """Write the block (C, z, y, x) whose first voxel is `lower`; it is on the disk on return.

        Several threads may write different blocks at once.
        """

    def put(self, lower: Triple, block: Array) -> int:
        """Write a block without recording that it is done; return the checksum to acknowledge it with.

        It is all that an output may do that is attached to another process's.
        """

    def acknowledge(self, region: Region, checksum: int) -> None:
        """Record a block that was put, here or in a process that is attached."""

    def finish(self) -> None:
        """Move the file to its place and close; VolumeError while blocks are missing."""

    def close(self) -> None:
        """Close; what is done stays done, so that writing can be resumed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


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
