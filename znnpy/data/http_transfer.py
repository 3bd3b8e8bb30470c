"""Gets files of web servers by Python's own library, whole or in part."""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import Any
from urllib import request
from urllib.error import HTTPError
from urllib.parse import quote

from znnpy.data.process_memory import readable
from znnpy.errors import VolumeError, reason

TRIES = 4
PAUSE = 0.25  # seconds before the second try; twice as long before each further one
TIMEOUT = 60  # seconds in which a server must say something
WITHOUT_RANGES = 256 << 20  # bytes of a file of which a part is wanted, and all is sent
SAFE = "/%:@+,;=~!$&'()*"  # what an address keeps as it is


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
