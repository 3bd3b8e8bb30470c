"""Reads files of an untrusted folder of chunks (Zarr, N5, precomputed) without leaving it.

A key is a path below the folder. Links that lead out, files that are no plain files, and files larger
than what they may hold are refused before anything is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from znnpy.data.file_changes import Watch
from znnpy.data.process_memory import readable
from znnpy.errors import VolumeError

DIRECTORIES = 100_000  # that are looked through for arrays
FILES = 50_000  # chunks whose state is noted when a volume is opened


class LocalChunks:
    """A folder of this machine that holds arrays in chunks; any number of threads may read.

    `title`: its format, for errors; `marks`: names of the files that hold metadata, not chunks. With `external`, links
    may lead out of it. Files, and the folders of chunks, must stay as they were when they were first seen, else
    ChangedError is raised. `see_chunks` notes those of an array.
    """

    def __init__(
        self, path: Path, title: str, marks: tuple[str, ...], external: bool = False
    ) -> None:
        self.path, self._title, self._marks = path, title, marks
        self._root = os.path.realpath(path)
        self._external, self._watch = external, Watch()

    def read(self, key: str, limit: int, start: int = 0, size: int | None = None) -> bytes | None:
        """Return bytes of a file from `start` (from its end if negative); None where there is none.

        Raises VolumeError for what leaves the folder, is no plain file, or is larger than `limit`.
        """
        place = self._inside(key)
        if key.rpartition("/")[2] not in self._marks:
            self._see_folder(place.rpartition("/")[0])
        try:
            # Not blocking: a pipe would be waited for.
            file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            self._watch.see(place, None)
            return None
        except OSError as error:
            raise VolumeError(f"{place} cannot be read: {error.strerror}") from error
        try:
            self._watch.see(place, os.fstat(file))
            data = _part(file, place, limit, start, size)
            self._watch.see(place, os.fstat(file))
            return data
        finally:
            os.close(file)

    def stored(self, path: str, enough: float) -> int:
        """Return the bytes of the files below a path, counted until they are `enough`."""
        total, waiting = 0, [self._inside(path) if path else self._root]
        while waiting and total < enough:
            for entry in _scanned(waiting.pop()):
                if entry.is_dir(follow_symlinks=self._external):
                    waiting.append(entry.path)
                elif entry.name not in self._marks and entry.is_file():
                    total += entry.stat().st_size
        return total

    def see_chunks(self, path: str, levels: int) -> None:
        """Note the files of an array's chunks and their folders, which are nested `levels` deep.

        A chunk that is absent is an empty one: only its folder's time says that it was there. Of more than
        `FILES` chunks the others must not be newer than all that is noted, and than now, when they are read.
        """
        here, folders, files = [self._root if not path else self._inside(path)], 0, 0
        for level in range(levels + 1):
            inner: list[str] = []
            for place in here:
                self._see_folder(place)
                if level < levels:
                    inner += _folders_in(place)
                else:
                    files += self._see_files(place, FILES - files)
            folders += len(here)
            if folders > DIRECTORIES:
                break
            here = inner
        if files >= FILES or folders > DIRECTORIES:
            self._watch.expect_old()

    def _see_files(self, place: str, most: int) -> int:
        """Note up to so many files of a folder and return their number; errors are left to the reading of chunks."""
        count = 0
        with suppress(VolumeError):
            for entry in islice((e for e in _scanned(place) if e.is_file()), most):
                with suppress(FileNotFoundError):
                    self._watch.see(_real(entry), entry.stat())
                count += 1
        return count

    def verify(self, keys: Iterable[str]) -> None:
        """Check some files again: metadata, which are read once."""
        for key in keys:
            self._watch.look(self._inside(key))

    def _see_folder(self, place: str) -> None:
        try:
            status = Path(place).stat()
        except OSError:
            status = None
        self._watch.see(place, status)

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in one, in order."""
        entries = _scanned(str(self.path / path))
        return sorted(
            entry.name for entry in entries if entry.is_dir(follow_symlinks=self._external)
        )

    def _inside(self, key: str) -> str:
        parts = key.split("/")
        if "\0" in key or any(part in ("", ".", "..") for part in parts):
            raise VolumeError(f"{self.path}: {key!r} is no path inside the {self._title} folder")
        place = os.path.realpath(f"{self._root}/{key}")
        if not self._external and not place.startswith(self._root.rstrip("/") + "/"):
            raise VolumeError(
                f"{self.path / key} is a link that leads out of the {self._title} folder; refused. Set "
                "data.allow_external_links if you trust it"
            )
        return place


def _scanned(place: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; VolumeError where it cannot be read."""
    try:
        with os.scandir(place) as entries:
            yield from entries
    except OSError as error:
        raise VolumeError(f"{place} cannot be read: {error.strerror}") from error


def _folders_in(place: str) -> list[str]:
    try:
        return [_real(entry) for entry in _scanned(place) if entry.is_dir()]
    except VolumeError:  # said when a chunk is read
        return []


def _real(entry: os.DirEntry[str]) -> str:
    """Return the real path of an entry of a real folder."""
    return os.path.realpath(entry.path) if entry.is_symlink() else entry.path


def _part(file: int, place: str, limit: int, start: int, size: int | None) -> bytes:
    status = os.fstat(file)
    if stat.S_ISDIR(status.st_mode):
        raise VolumeError(f"{place} is a folder where a file was expected")
    if not stat.S_ISREG(status.st_mode):
        raise VolumeError(f"{place} is no plain file; refused")
    first = max(0, status.st_size + start) if start < 0 else min(start, status.st_size)
    wanted = status.st_size - first if size is None else min(max(0, size), status.st_size - first)
    if wanted > limit:
        raise VolumeError(
            f"{place} holds {readable(wanted)} where at most {readable(limit)} are expected; refused"
        )
    pieces = []
    while wanted > 0:
        piece = os.pread(file, min(wanted, 1 << 30), first)
        if not piece:
            break
        pieces.append(piece)
        first, wanted = first + len(piece), wanted - len(piece)
    return b"".join(pieces)
