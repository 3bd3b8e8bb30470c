"""Writes files so that a crash leaves either the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from znnpy.errors import RunError, reason

PARTIAL = ".partial"


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside, fsync, rename over `path`, fsync the directory.

    `write` gets the open temporary file. On any failure the temporary file is removed and an older
    `path` stays as it was; a failing disk raises RunError that names the file.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise RunError(explain(path, error)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically; RunError when the disk fails."""
    write_atomically(path, lambda file: file.write(text.encode()))


def sync_directory(path: Path) -> None:
    """Make renames and removals inside a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explain(path: Path, error: OSError) -> str:
    """Why a file cannot be written, and what is left of it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = "the disk is full; free some space and go on with the same command"
    else:
        why = reason(error)
    kept = "; the file that was there before is unharmed" if path.exists() else ""
    return f"cannot write {path}: {why}{kept}"
