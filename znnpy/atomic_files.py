"""New files appear whole or not at all: written beside their place, synced, then moved there for good."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from znnpy.errors import ZnnpyError, reason


def beside(path: Path) -> Path:
    """Where a new file or folder lies, in the folder of its place, until it is whole."""
    # One name for all processes: the next try takes over what a killed one left on the disk.
    return path.with_name(f".{path.name}.tmp")


def final_name(name: str) -> str:
    """The name that what lies `beside` will have; of any other name, itself."""
    return name[1:-4] if name.startswith(".") and name.endswith(".tmp") else name


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a new file to; at the end it is synced and takes its place.

    On any error the new file is removed, and what stood at `path` stays. A disk that fails raises
    OSError.
    """
    new = beside(path)
    try:
        yield new
        sync(new)
        new.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):  # of a disk that fails, which has been said
            new.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """As `replacing`; `write` gets the new file, open."""
    with replacing(path) as new, new.open("wb") as file:
        write(file)


def write_text(path: Path, text: str, kind: type[ZnnpyError] = ZnnpyError) -> None:
    """Write a UTF-8 text file whole; a disk that fails raises `kind`, as `explained`."""
    with explained(path, kind):
        write_whole(path, lambda file: file.write(text.encode()))


def sync(path: Path) -> None:
    """Make what was written to a file, or made, moved or removed in a folder, last."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def explained(path: Path, kind: type[ZnnpyError] = ZnnpyError) -> Iterator[None]:
    """OSError within is raised as `kind`: why a file cannot be written, and what is left of it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = "the disk is full; free some space and go on with the same command"
        else:
            why = reason(error)
        kept = "; the file that was there before is unharmed" if path.exists() else ""
        raise kind(f"cannot write {path}: {why}{kept}") from error
