"""Reads folders of chunks over the network: http and https by Python's own library, s3 and gs by fsspec's packages.

Nothing says of chunks whether they change; metadata are compared when they are read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

from znnpy.data.extras import required
from znnpy.data.process_memory import readable
from znnpy.errors import ChangedError, VolumeError, reason, refuse_own

PACKAGES = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gs")}
"""By scheme: the package that reads it, and the extra that brings it."""


class Transfer(Protocol):
    """Gets files by their addresses."""

    def get(self, url: str, start: int, size: int | None, most: int) -> bytes | None:
        """Return at most `most` bytes of a file from `start`, from its end if negative; None where there is none."""

    def folders(self, url: str) -> list[str]:
        """Return the names of the folders in one; none where nobody lists them."""


class RemoteChunks:
    """A folder of chunks at an address; any number of threads may read. `marks`: names of the files of metadata."""

    def __init__(self, url: str, marks: tuple[str, ...], transfer: Transfer | None = None) -> None:
        self.url, self._marks = url.rstrip("/"), marks
        self._transfer = transfer or _transfer(url)
        self._seen: dict[str, str] = {}

    def read(self, key: str, limit: int, start: int = 0, size: int | None = None) -> bytes | None:
        """Return bytes of a file from `start` (from its end if negative); None where there is none.

        Raises VolumeError for what leaves the folder, is larger than `limit`, or cannot be read.
        """
        if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
            raise VolumeError(f"{self.url}: {key!r} is no path inside the folder")
        wanted = limit + 1 if size is None else min(size, limit + 1)
        data = self._transfer.get(f"{self.url}/{key}", start, size, wanted)
        if data is not None and len(data) > limit:
            raise VolumeError(
                f"{self.url}/{key} holds more than {readable(limit)}, which is the most expected; refused"
            )
        if size is None and start == 0 and key.rpartition("/")[2] in self._marks:
            self._see(key, data)
        return data

    def _see(self, key: str, data: bytes | None) -> None:
        found = "" if data is None else hashlib.sha256(data).hexdigest()
        if self._seen.setdefault(key, found) != found:
            raise ChangedError(
                f"{self.url}/{key} has changed while it was read. Take a copy that nobody writes to"
            )

    def stored(self, path: str, enough: float) -> float:
        """Return `enough`: what lies there is not counted."""
        return enough

    def see_chunks(self, path: str, levels: int) -> None:
        """Do nothing: servers have no times that all of them keep."""

    def verify(self, keys: Iterable[str]) -> None:
        """Compare metadata with those that were read; ChangedError where they differ."""
        for key in keys:
            if key in self._seen:
                self._see(key, self._transfer.get(f"{self.url}/{key}", 0, None, 1 << 30))

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in one, in order; none where nobody lists them."""
        return sorted(self._transfer.folders(f"{self.url}/{path}".rstrip("/")))


def _transfer(url: str) -> Transfer:
    scheme = url.partition(":")[0]
    if scheme not in PACKAGES:
        # Takes a twentieth of a second to import.
        from znnpy.data.http_transfer import HttpTransfer

        return HttpTransfer()
    return FsspecTransfer(system_of(url))


def system_of(url: str) -> Any:
    """Return fsspec's file system of an address of s3 or gs; VolumeError where its package is missing."""
    scheme = url.partition(":")[0]
    package, extra = PACKAGES[scheme]
    required(package, package, extra, f"{scheme}://")
    fsspec = required("fsspec", "fsspec", extra, f"{scheme}://")
    return fsspec.filesystem(scheme, use_listings_cache=False)


class FsspecTransfer:
    """Files of a store that a file system of fsspec reads, with its own settings and credentials."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def get(self, url: str, start: int, size: int | None, most: int) -> bytes | None:
        """Return at most `most` bytes; errors are VolumeErrors, no file is None."""
        end = start + max(1, most) if start >= 0 else None
        try:
            data = bytes(self._system.cat_file(url, start=start, end=end))
        except FileNotFoundError:
            return None
        except Exception as error:  # those of each store's own library
            refuse_own(error)
            raise VolumeError(f"{url} cannot be read: {reason(error)}") from error
        # Some stores send all where an end is asked for.
        return data[start if start < 0 else 0 :][:most]

    def folders(self, url: str) -> list[str]:
        """Return the names of the folders in one."""
        try:
            entries = self._system.ls(url, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            refuse_own(error)
            raise VolumeError(f"{url} cannot be listed: {reason(error)}") from error
        names = (it["name"] for it in entries if it["type"] == "directory")
        return [name.rstrip("/").rpartition("/")[2] for name in names]
