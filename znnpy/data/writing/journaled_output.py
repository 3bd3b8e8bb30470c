"""Base of outputs written block by block: journal, resuming, refusals, the final move.

A block is acknowledged once its bytes and then its journal record are on the disk. The output lies
beside its place as `.partial` until all are written; the journal is removed when it has moved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from znnpy.atomic_files import sync
from znnpy.closing import Closing
from znnpy.data.volume import Array, Triple
from znnpy.data.writing.block_output import Finished, OutputSpec
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.data.writing.journal import Journal, Region, read_head, refuse_other
from znnpy.data.writing.preflight import refuse_place
from znnpy.errors import PredictionError, ShapeError, VolumeError, reason


class JournaledOutput(Closing, ABC):
    """An output (C, Z, Y, X), filled by `write` in any order; fulfils `block_output.BlockOutput`.

    A format implements how its partial output is created, reopened, filled and moved. The same spec and
    attributes give the same bytes, whatever happened between. `attached` gives one that can only `put`,
    for processes that help the one which has the journal. What was begun, and has no block when a `with` block ends by
    a VolumeError, is removed.
    """

    KEEPS_MEANING = False
    """Whether a file says what its channels mean: neighbours of affinities, the number of the first class."""

    def __init__(
        self, destination: Destination, spec: OutputSpec, *, attached: bool = False
    ) -> None:
        self.destination, self.path, self.spec = destination, destination.path, spec
        self._partial = partial_of(self.path)
        self._done: set[Region] = set()
        self.attached = attached
        if attached:
            self._attach()
            return
        refuse_place(self.path)
        self._journal = Journal(journal_of(self.path))
        try:
            self._finish_moving()
            self._refuse()
            if self._journal.head:
                self._resume(self._journal.head)
            else:
                self._begin()
            self._recover()
        except BaseException:
            self.close()
            if self._journal.head is None and not self._journal.completed:
                self._journal.path.unlink(missing_ok=True)
            raise

    @abstractmethod
    def _create(self) -> Mapping[str, Any]:
        """Create the partial output anew, synced; return what the journal records of it beside the spec."""

    @abstractmethod
    def _reopen(self, head: Mapping[str, Any]) -> None:
        """Open the partial output for writing; VolumeError if it is not what the journal says."""

    @abstractmethod
    def _scrap(self) -> None:
        """Remove the partial output, if there is one."""

    @abstractmethod
    def _put(self, region: Region, data: Array) -> int:
        """Write a block, synced; return the checksum of what is stored."""

    @abstractmethod
    def _checksum(self, region: Region) -> int:
        """Return the checksum of what is stored of a block."""

    def _settle(self) -> None:
        """Sync what is not yet synced; nothing is written any more."""

    @abstractmethod
    def _replace(self) -> None:
        """Move the partial output to its place, replacing what is there."""

    @property
    def done(self) -> AbstractSet[Region]:
        """The blocks that are on the disk."""
        return self._done

    def write(self, lower: Triple, block: Array) -> None:
        """Write a block (C, z, y, x) with its first voxel at `lower`; it is on the disk on return."""
        self.acknowledge((lower, self._upper(lower, block.shape)), self.put(lower, block))

    def put(self, lower: Triple, block: Array) -> int:
        """Write a block without recording that it is done; return the checksum to acknowledge it with."""
        region = (lower, self._upper(lower, block.shape))
        return self._put(region, np.ascontiguousarray(block, self.spec.dtype))

    def acknowledge(self, region: Region, checksum: int) -> None:
        """Record a block that `put` wrote, here or in a process that is attached."""
        self._journal.add(region, checksum)
        self._done.add(region)

    def finish(self) -> None:
        """Move the complete output to its place, remove the journal, close."""
        wanted = self.spec.blocks()
        missing = [region for region in wanted if region not in self._done]
        if missing:
            raise VolumeError(
                f"{self.path}: {len(missing)} of {len(wanted)} blocks were not written"
            )
        self._settle()
        self._journal.complete()
        self._move()
        self.close()

    def discard(self) -> None:
        """Close and remove what was written; what was in its place before stays."""
        self.close()
        # First: an output without a journal is begun anew, a journal without its output would be in the way.
        self._journal.path.unlink(missing_ok=True)
        self._scrap()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What no block could be made of is refused input: nothing is lost, and nothing in the way of a better one
        # or of better weights.
        if isinstance(error, VolumeError | PredictionError) and not (self._done or self.attached):
            with suppress(VolumeError, OSError):  # of a store that fails, which has been said
                self.discard()
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can be resumed."""
        if not self.attached:
            self._journal.close()

    def _attach(self) -> None:
        """Open for `put` alone: another process, maybe elsewhere, has the journal and acknowledges."""
        head = read_head(journal_of(self.path))
        if head is None:
            raise VolumeError(f"{self.path}: no process is writing this output")
        self._refuse_other(self._partial, head)
        self._reopen(head)

    def _refuse_offsets(self) -> None:
        """Raise VolumeError for affinities that nobody could read again; those to the nearest three are the usual."""
        offsets = self.spec.attributes.get("offsets")
        if offsets is None or self.KEEPS_MEANING or np.array_equal(offsets, -np.eye(3)):
            return
        raise VolumeError(
            f"{self.path}: {self.destination.format.title} files cannot say which neighbours these affinities stand "
            "for; name a file .h5 or a folder .zarr"
        )

    def _move(self) -> None:
        try:
            self._replace()
            sync(self.path.parent)
            self._journal.remove()
            sync(self.path.parent)
        except OSError as error:
            if self._partial.exists():
                raise
            raise VolumeError(
                f"{self.path} is written whole, but the disk failed when that was made to last: "
                f"{reason(error)}; look at the disk before you rely on it"
            ) from error

    def _finish_moving(self) -> None:
        """Finish for a process that was killed after all was written, while the journal was still there."""
        head = self._journal.head
        if not self._journal.completed or head is None:
            return
        if self._partial.exists():
            self._move()
        else:
            self._journal.remove()
        self._refuse_other(self.path, head)
        raise Finished(f"{self.path} was finished by an earlier process")

    def _refuse(self) -> None:
        self.destination.refuse_standing()
        head, overwrite = self._journal.head, self.destination.overwrite
        if head is None:
            return
        if overwrite and not self._partial.exists():
            self._journal.head = None
            return
        try:
            self._refuse_other(self._partial, head)
        except VolumeError:
            if not overwrite:
                raise
            self._journal.head = None

    def _refuse_other(self, path: Path, head: Mapping[str, Any]) -> None:
        refuse_other(path, head, self._head())

    def _head(self) -> dict[str, Any]:
        return self.spec.head(self.destination.dataset)

    def _begin(self) -> None:
        """Create the output, then the journal's head: a head means that the output exists, complete."""
        self._journal.forget()
        more = self._create()
        sync(self.path.parent)
        self._journal.begin({**self._head(), **more})
        self._reopen(more)

    def _resume(self, head: Mapping[str, Any]) -> None:
        if not self._partial.exists():
            raise VolumeError(
                f"{self._partial} is gone, only {self._journal.path} is left; remove it to start anew"
            )
        self._reopen(head)

    def _changed(self) -> VolumeError:
        return VolumeError(
            f"{self._partial} was cut or changed outside its blocks; remove it and "
            f"{self._journal.path} to start anew"
        )

    def _recover(self) -> None:
        """Take blocks as done when they are of the grid and their bytes match."""
        grid = set(self.spec.blocks()) if self._journal.done else set()
        for region, checksum in self._journal.done.items():
            if region in grid and self._checksum(region) == checksum:
                self._done.add(region)

    def _upper(self, lower: Triple, shape: tuple[int, ...]) -> Triple:
        whole = self.spec.shape
        fits = len(shape) == 4 and shape[0] == whole[0] and min(shape) > 0
        upper = tuple(a + n for a, n in zip(lower, shape[1:], strict=True)) if fits else ()
        if not fits or min(lower) < 0 or any(b > n for b, n in zip(upper, whole[1:], strict=True)):
            raise ShapeError(f"{self.path}: block {shape} at {lower} does not fit into {whole}")
        return (upper[0], upper[1], upper[2])
