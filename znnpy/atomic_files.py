"""Atomic file writes: a new file is written beside its place, synced to disk, then renamed into place."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from znnpy.errors import ZnnpyError, reason


def beside(path: Path) -> Path:
    """Return the temporary path, in the same folder, at which a new file or folder lies until it is complete."""
    # One name for all processes: the next try takes over what a killed one left on the disk.
    return path.with_name(f".{path.name}.tmp")


def final_name(name: str) -> str:
    """Return the name that a temporary file of `beside` will get; any other name unchanged."""
    return name[1:-4] if name.startswith(".") and name.endswith(".tmp") else name


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a new file to; at the end sync it and rename it to `path`.

    On any error the temporary file is removed, and what stood at `path` stays. Raises OSError if the disk fails.
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
    """Write a file atomically, as `replacing` does; `write` gets the new file, open for bytes."""
    with replacing(path) as new, new.open("wb") as file:
        write(file)


def write_text(path: Path, text: str, kind: type[ZnnpyError] = ZnnpyError) -> None:
    """Write a UTF-8 text file atomically; raises `kind` if the disk fails, as `explained` does.

    Bytes of file names that are no text become backslash escapes.
    """
    write_texts({path: text}, kind)


def write_texts(texts: Mapping[Path, str], kind: type[ZnnpyError] = ZnnpyError) -> None:
    """Write several UTF-8 text files as `write_text` does one: none takes its place before all are on the disk."""
    with ExitStack() as stack:
        for path, text in texts.items():
            stack.enter_context(explained(path, kind))
            new = stack.enter_context(replacing(path))
            new.write_bytes(text.encode(errors="backslashreplace"))
            sync(new)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk (fsync)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def explained(path: Path, kind: type[ZnnpyError] = ZnnpyError) -> Iterator[None]:
    """Raise an OSError within as `kind`, with the reason and whether the old file is still there."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = "the disk is full; free some space and go on with the same command"
        else:
            why = reason(error)
        kept = "; the file that was there before is unharmed" if path.exists() else ""
        raise kind(f"cannot write {path}: {why}{kept}") from error
