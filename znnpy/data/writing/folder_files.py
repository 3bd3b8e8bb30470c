"""Where the files of a folder of chunks are put: on this machine, or in a store such as s3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from znnpy.atomic_files import sync, write_whole
from znnpy.data.remote_chunks import system_of
from znnpy.data.writing.chunk_folders import read_bytes
from znnpy.errors import VolumeError, reason, refuse_own

NEVER = object()


class FolderFiles(Protocol):
    """Files of a folder by their paths in it; each is there whole, and lasts, once it is put. Any thread may call."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, replacing what is there."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""

    def get(self, name: str) -> bytes:
        """Return a file's content, empty if there is none."""


class LocalFiles:
    """Files of a folder of this machine, synced with the folders that they lie in. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lasting: set[Path] = set()  # folders that this process found synced in theirs

    def put(self, name: str, data: bytes) -> None:
        """Write a file beside its place, sync and move it."""
        place = self._path / name
        self._make(place.parent)
        write_whole(place, lambda file: file.write(data))

    def remove(self, name: str) -> None:
        """Remove a file if it is there, durably."""
        place = self._path / name
        if place.exists():
            place.unlink()
            sync(place.parent)

    def get(self, name: str) -> bytes:
        """Return a file's content, empty if there is none."""
        return read_bytes(self._path / name)

    def _make(self, folder: Path) -> None:
        """Create a folder durably, whoever made it, with those above it up to the output's own."""
        if folder in self._lasting or folder == self._path:
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
        self._lasting.add(folder)


class RemoteFiles:
    """Files below an address (s3, gs), by fsspec's packages, with their own settings, credentials and repetitions.

    A file that is put is there whole or not at all, for all who look from then on. Raises VolumeError.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._system = system_of(url)

    def put(self, name: str, data: bytes) -> None:
        """Write a file, replacing what is there."""
        place = f"{self.url}/{name}"
        self._tried(place, "written", lambda: self._system.pipe_file(place, data), NEVER)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        place = f"{self.url}/{name}"
        self._tried(place, "removed", lambda: self._system.rm_file(place))

    def get(self, name: str) -> bytes:
        """Return a file's content, empty if there is none."""
        place = f"{self.url}/{name}"
        return bytes(self._tried(place, "read", lambda: self._system.cat_file(place), b""))

    def has(self, names: Iterable[str]) -> bool:
        """Return whether any of some files is there."""
        places = [f"{self.url}/{name}" for name in names]
        return bool(
            self._tried(self.url, "read", lambda: any(map(self._system.exists, places)), False)
        )

    def clear(self) -> None:
        """Remove all files below the address."""
        self._tried(self.url, "removed", lambda: self._system.rm(self.url, recursive=True))

    def _tried(self, place: str, what: str, call: Callable[[], Any], missing: Any = None) -> Any:
        try:
            return call()
        except FileNotFoundError as error:
            if missing is NEVER:
                # Folders need not be there. Of the error some stores' libraries make the address alone.
                bucket = self.url.split("/")[2]
                raise VolumeError(
                    f"{place} cannot be {what}: there is no bucket {bucket!r}"
                ) from error
            return missing
        except Exception as error:  # those of each store's own library
            refuse_own(error)
            raise VolumeError(f"{place} cannot be {what}: {reason(error)}") from error


@contextmanager
def fetched(remote: RemoteFiles, names: Sequence[str], path: Path) -> Iterator[None]:
    """Have some files of a store in a folder here, too."""
    here = LocalFiles(path)
    try:
        for name in names:
            if data := remote.get(name):
                here.put(name, data)
        yield
    finally:
        for name in names:
            here.remove(name)
