"""Reads folders of chunks over the network: http and https by Python's own library, s3 and gs by fsspec's packages.

Nothing says of chunks whether they change; metadata are compared when they are read again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any, Protocol
from urllib import request
from urllib.error import HTTPError
from urllib.parse import quote

from znnpy.data.extras import required
from znnpy.data.process_memory import readable
from znnpy.errors import ChangedError, VolumeError, reason, refuse_own

TRIES = 4
PAUSE = 0.25  # seconds before the second try; twice as long before each further one
WITHOUT_RANGES = 256 << 20  # bytes of a file of which a part is wanted, and all is sent
TIMEOUT = 60  # seconds in which a server must say something
SAFE = "/%:@+,;=~!$&'()*"  # what an address keeps as it is
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
        return HttpTransfer()
    package, extra = PACKAGES[scheme]
    required(package, package, extra, f"{scheme}://")
    fsspec = required("fsspec", "fsspec", extra, f"{scheme}://")
    return FsspecTransfer(fsspec.filesystem(scheme, use_listings_cache=False))


class HttpTransfer:
    """Files of a web server. What a server does not answer is asked again a few times."""

    def __init__(self) -> None:
        # Neither files nor ftp, to which a server might redirect.
        self._opener = request.OpenerDirector()
        for handler in (
            request.ProxyHandler,
            request.HTTPHandler,
            request.HTTPSHandler,
            request.HTTPDefaultErrorHandler,
            request.HTTPRedirectHandler,
            request.HTTPErrorProcessor,
            request.UnknownHandler,
        ):
            self._opener.add_handler(handler())

    def get(self, url: str, start: int, size: int | None, most: int) -> bytes | None:
        """Return at most `most` bytes; errors are VolumeErrors, 404 is None."""
        asked = request.Request(quote(url, SAFE))
        if start or size is not None:
            asked.add_header("Range", _range(start, max(1, most) if size is not None else None))
        for again in range(TRIES):
            try:
                with self._opener.open(asked, timeout=TIMEOUT) as answer:
                    return _part(answer, start, most)
            except HTTPError as error:
                if error.code in (404, 410):
                    return None
                if error.code == 416:  # nothing is there from `start` on
                    return b""
                problem: Exception = error
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, HTTPException) as error:
                problem = error
            if again < TRIES - 1:
                time.sleep(PAUSE * 2**again)
        raise VolumeError(f"{url} cannot be read: {reason(problem)}") from problem

    def folders(self, url: str) -> list[str]:
        """Return nothing: pages that list files have no format."""
        return []


def _range(start: int, size: int | None) -> str:
    if start < 0:
        return f"bytes={start}"
    return f"bytes={start}-" if size is None else f"bytes={start}-{start + size - 1}"


def _part(answer: Any, start: int, most: int) -> bytes:
    """Return what was asked for; of a server that knows no ranges, and sends all, what lies before is passed over."""
    length = answer.length  # None where the server does not say
    if answer.status == 206 or start == 0:
        return _exactly(answer, most if length is None else min(most, length), length)
    if length is None or length > WITHOUT_RANGES:
        raise VolumeError(
            f"{answer.url} cannot be read in part: its server knows no ranges, and sends more than "
            f"{readable(WITHOUT_RANGES)}"
        )
    return _exactly(answer, length, length)[start:][:most]


def _exactly(answer: Any, count: int, length: int | None) -> bytes:
    """Return so many bytes; where the server has said how many there are, fewer are an error."""
    data: bytes = answer.read(count)
    if length is not None and len(data) < count:
        raise HTTPException(f"the connection broke after {len(data)} of {count} bytes")
    return data


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
        return data[:most]

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
