"""Filters that lie in files and are read in each pass, just before their layer, into memory that serves others, too.

Of a U-Net that predicts: filters of its lower levels are most of the parameters, and its largest images, which need the
most memory, are made while nothing reads them.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Use
from znnpy.errors import RunError, reason
from znnpy.file_arrays import FileArray, fill
from znnpy.geometry import voxels
from znnpy.network.parameters import parameter_shapes
from znnpy.plan.types import AlgorithmName

LEAST = 1 << 20  # bytes of a layer's filters: of smaller ones there are few
WORTH = 32 << 20  # bytes of all of them: less is not worth a file
PRODUCTS = 1000
"""Of a pass for each value that it reads: with fewer, as of flat windows, reading takes more than a tenth of it."""
READ_RATE = 4e9  # bytes a second, from the system's cache of files, and packed
WITHIN: tuple[AlgorithmName, ...] = ("direct", "winograd")
"""Algorithms that take filters as they are within the pass: others make something of them beforehand."""
ON_DISK = "/var/tmp"  # /tmp may be memory
FILE = Use("file of filters")
PLACE = 3
"""Words of a layer for the tasks that read its filters: where they lie, as `read_filters` takes it."""
COPIED = 16 << 20  # bytes at once


def filed(layout: Layout) -> frozenset[str]:
    """Return the convolutions whose filters lie in a file: large ones, where memory counts for more than time.

    None where they are few, or a pass makes few products of each. Depends on network, sizes and plan alone.
    """
    if not layout.lean or layout.training:
        return frozenset()
    shapes = parameter_shapes(layout.network)
    products = 0
    for edge in layout.network.edges:
        if edge.kind == "conv":
            products += prod(shapes[edge.name]) * voxels(layout.geometry.nodes[edge.target].shape)
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
    read = sum(found.values())
    worth = read >= WORTH and products >= PRODUCTS * read // 4
    return frozenset(found) if worth else frozenset()


def words_of(layers: int) -> int:
    """Return the int64 words of a `FilterFile` of so many layers."""
    return 1 + PLACE * layers


class FilterFile:
    """Where the filters of some layers, of these shapes, lie: in files of those who set them (`FileArray`), or its own.

    Its own has no name, is of this process alone, made when it is needed, and goes when it is closed. It lies where
    TMPDIR says, else in /var/tmp, which is on a disk, or where temporary files are if that cannot be written. Reading
    threads know where filters lie by `words`, `words_of` them, of the caller's: the first becomes 1 where one could not
    read, then come the places. The processes of a fork share its own file until one of them writes. Raises RunError
    where that cannot be made or written.
    """

    def __init__(self, words: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> None:
        self._folder = os.environ.get("TMPDIR") or ON_DISK
        self._shapes = shapes
        *self._offsets, self._size = accumulate((4 * prod(shape) for shape in shapes), initial=0)
        self._file: Any = None
        self._others: dict[int, FileArray] = {}  # by layer
        self._forked = False  # since there is this file
        self._words, self._places = words, words[1:].reshape(-1, PLACE)
        words[0], self._places[:] = 0, (-1, 0, 0)
        _open.add(self)

    @property
    def number(self) -> int:
        """The descriptor of its own file, once there is one."""
        return int(self._file.fileno())

    def set(self, layer: int, filters: Floats | FileArray) -> None:
        """Let a layer have these filters from now on: written down, or where they lie in a file."""
        if isinstance(filters, FileArray):
            self._others[layer] = filters
            self._places[layer] = filters.file.number, filters.offset, filters.stride
            return
        try:
            if self._file is None:
                self._file = self._made()
            elif self._forked:
                self._part()
            plain = np.ascontiguousarray(filters).reshape(-1).view(np.uint8)
            _write(self.number, self._offsets[layer], plain.data)
        except OSError as error:
            raise RunError(self._told("written", error)) from error
        self._others.pop(layer, None)
        self._places[layer] = self.number, self._offsets[layer], filters.nbytes // len(filters)

    def read(self, layer: int) -> Floats:
        """Return a copy of a layer's filters; RunError where they are not there."""
        self.check()
        if layer in self._others:
            return np.asarray(self._others[layer])
        found = np.empty(self._shapes[layer], np.float32)
        try:
            fill(found.reshape(-1).view(np.uint8), self.number, self._offsets[layer])
        except EOFError:
            raise self._cut() from None
        except OSError as error:
            raise RunError(self._told("read", error)) from error
        return found

    def check(self) -> None:
        """Raise RunError where a task could not read, or a file that is not its own was written since."""
        others = {filters.file for filters in self._others.values()}
        for file in others:
            file.verify()
        if self._words[0]:
            self._words[0] = 0
            raise self._cut()

    def _cut(self) -> RunError:
        names = [f"the temporary file of filters in {self._folder}"] if self._file else []
        names += sorted({str(filters.file.path) for filters in self._others.values()})
        return RunError(f"{' or '.join(names)} could not be read")

    def close(self) -> None:
        """Give the file's room back."""
        self._others.clear()
        if self._file is not None:
            self._file.close()

    def note_fork(self) -> None:
        """Note that another process is about to have this file, too: memory would be its own."""
        self._forked = self._file is not None

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
