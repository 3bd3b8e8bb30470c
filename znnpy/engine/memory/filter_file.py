"""Filters that lie in a file and are read in each pass, just before their layer, into memory that serves others, too.

Of a U-Net that predicts: filters of its lower levels are most of the parameters, and its largest images, which need the
most memory, are made while nothing reads them.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Use
from znnpy.errors import RunError, reason
from znnpy.network.parameters import parameter_shapes
from znnpy.plan.types import AlgorithmName

LEAST = 1 << 20  # bytes of a layer's filters: of smaller ones there are few
WORTH = 32 << 20  # bytes of all of them: less is not worth a file
READ_RATE = 4e9  # bytes a second, from the system's cache of files
WITHIN: tuple[AlgorithmName, ...] = ("direct", "winograd")
"""Algorithms that take filters as they are within the pass: others make something of them beforehand."""
ON_DISK = "/var/tmp"  # /tmp may be memory
FILE = Use("file of filters")
WORDS = 2  # int64, for tasks: the file's descriptor, and 1 where one could not read
COPIED = 16 << 20  # bytes at once


def filed(layout: Layout) -> frozenset[str]:
    """Return the convolutions whose filters lie in a file: large ones, where memory counts for more than time."""
    if not layout.lean or layout.training:
        return frozenset()
    shapes = parameter_shapes(layout.network)
    found = {
        edge.name: size
        for edge in layout.network.edges
        if edge.kind == "conv"
        and edge.groups == 1
        and not edge.weight_standardization
        and layout.plan.layers[edge.name].forward in WITHIN
        and 1 not in (layout.lanes(edge.source), layout.lanes(edge.target))
        and (size := 4 * prod(shapes[edge.name])) >= LEAST
    }
    return frozenset(found) if sum(found.values()) >= WORTH else frozenset()


class FilterFile:
    """A file of `size` bytes without a name, of this process alone, that goes when it is closed.

    It lies where TMPDIR says, else in /var/tmp, which is on a disk, or where temporary files are if that cannot be
    written. Reading threads share it, and know it by `words`, `WORDS` of the caller's; the processes of a fork share it
    until one of them writes. Raises RunError where it cannot be made or written.
    """

    def __init__(self, words: NDArray[Any], size: int) -> None:
        self._folder = os.environ.get("TMPDIR") or ON_DISK
        self._size = size
        self._file: Any = self._made()
        self._forked = self._torn = False  # since there is this file; since a write has failed
        self._words = words
        words[:] = self.number, 0
        _open.add(self)

    @property
    def number(self) -> int:
        """The file's descriptor."""
        return int(self._file.fileno())

    def write(self, offset: int, values: Floats) -> None:
        """Write floats from a byte offset on."""
        try:
            if self._forked:
                self._part()
            _write(self.number, offset, values.view(np.uint8).data)
        except (OSError, RunError) as error:
            # Some filters are those of before, others are not.
            self._torn = True
            if isinstance(error, RunError):
                raise
            raise RunError(self._told("written", error)) from error

    def renew(self) -> None:
        """Note that all that the file holds is about to be written."""
        self._torn = False

    def read(self, offset: int, floats: int) -> Floats:
        """Return a copy of so many floats from a byte offset on; RunError where they are not there."""
        self.check()
        try:
            found = os.pread(self.number, 4 * floats, offset)
        except OSError as error:
            raise RunError(self._told("read", error)) from error
        if len(found) < 4 * floats:
            raise self._cut()
        return np.frombuffer(found, np.float32)

    def check(self) -> None:
        """Raise RunError where a task could not read, and until all is written again once a write has failed."""
        if self._torn:
            raise RunError(
                f"the temporary file of filters in {self._folder} was written in part; set all parameters again"
            )
        if self._words[1]:
            self._words[1] = 0
            raise self._cut()

    def _cut(self) -> RunError:
        return RunError(f"the temporary file of filters in {self._folder} could not be read")

    def close(self) -> None:
        """Give the file's room back."""
        self._file.close()

    def note_fork(self) -> None:
        """Note that another process is about to have this file, too: memory would be its own."""
        self._forked = True

    def _part(self) -> None:
        """Go on with a copy, by the number that tasks have."""
        with self._made() as own:
            at = 0
            while part := os.pread(self.number, COPIED, at):
                _write(own.fileno(), at, memoryview(part))
                at += len(part)
            os.dup2(own.fileno(), self.number, inheritable=False)
        self._forked = False

    def _made(self) -> Any:
        try:
            if self._folder == ON_DISK and not os.access(ON_DISK, os.W_OK | os.X_OK):
                self._folder = tempfile.gettempdir()
            return _with_room(tempfile.TemporaryFile(dir=self._folder, buffering=0), self._size)
        except OSError as error:
            raise RunError(self._told("made", error)) from error

    def _told(self, what: str, error: OSError) -> str:
        return (
            f"a temporary file of filters cannot be {what} in {self._folder}: {reason(error)}; "
            "TMPDIR may name another folder"
        )


def _with_room(file: Any, size: int) -> Any:
    """Return a file with room for so many bytes; OSError where there is none.

    What is written to places that are there already takes half of the time. Where the system or its file system cannot
    do that, they are made as they are written.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            file.close()
            raise
    return file


def _write(number: int, offset: int, left: memoryview) -> None:
    while left:
        count = os.pwrite(number, left, offset)
        left, offset = left[count:], offset + count


_open: weakref.WeakSet[FilterFile] = weakref.WeakSet()


def _note_fork() -> None:
    for file in list(_open):
        file.note_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_fork)
