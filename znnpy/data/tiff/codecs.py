"""Refuses TIFF compressions that need a package that is not installed, and says which."""

from __future__ import annotations

from typing import Any

import tifffile

from znnpy.errors import VolumeError

_PACKAGE = "imagecodecs"
_WAY = 'pip install "znnpy[tiff]", or write it with zlib or none'


def refuse_codec(page: Any, name: str) -> None:
    """Raise VolumeError if a page's compression, or the predictor before it, cannot be undone here."""
    needed = (
        ("compression", tifffile.TIFF.DECOMPRESSORS, page.compression),
        ("predictor", tifffile.TIFF.UNPREDICTORS, page.predictor),
    )
    for title, known, code in needed:
        try:
            known[code]
        except KeyError as error:
            what = f"{title} {getattr(code, 'name', code)}"
            why = (
                f"needs the package {_PACKAGE}: {_WAY}"
                if _PACKAGE in str(error)
                else "nobody knows"
            )
            raise VolumeError(f"{name} is stored with {what}, which {why}") from error


def explained(error: BaseException) -> str:
    """Return why a page could not be read, and what to install where a decoder is missing."""
    missing = isinstance(error, ImportError) or _PACKAGE in str(error)
    return f"needs the package {_PACKAGE}: {_WAY}" if missing else str(error)
