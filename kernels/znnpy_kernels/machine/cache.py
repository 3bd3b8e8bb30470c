"""The disk cache of compiled functions: a private directory for each function and version of its source.

numba stamps only the file that holds a cached function, not the functions that it calls, so the directory's name
carries a hash over all of this package that the function reaches (`source_hash`). Finding that out takes a second,
so the hashes are kept too, for each version of the package as a whole. numba's index is a pickle: files that others
own or could have written are refused (`private_files`). A cache that this user can only read (of root, in an image)
serves what it has; what would have to be compiled is an error then.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba

from znnpy_kernels.machine import private_files, source_hash

Compiled = TypeVar("Compiled")


class CacheError(OSError):
    """The directory for compiled kernels cannot be used; the message says what to do."""


def cached(function: Callable[..., Any], compiled: Callable[[Path], Compiled]) -> Compiled:
    """Return `compiled(directory)`, with the directory of the function's cache.

    Files that were cut short (full disk, crash) make numba raise while it loads them: they are removed and made
    anew. numba replaces files as a whole, so other processes may do the same at once.
    """
    folder = directory(function)
    if read_only() and not files(function, "nbi"):
        raise lacking([function.__name__])
    try:
        try:
            return compiled(folder)
        # Any exception: what numba raises for damaged files depends on where they were cut.
        except Exception:
            damaged = files(function)
            for path in damaged:
                path.unlink(missing_ok=True)
            # Nothing was removed, so a second attempt would only repeat the first.
            if not damaged:
                raise  # nothing was loaded: the function itself cannot be compiled
            return compiled(folder)
    except CacheError:
        raise
    except OSError as error:
        raise _unusable(f"cannot be used: {error.strerror or error}") from error


def files(function: Callable[..., Any], ending: str = "nb?") -> list[Path]:
    """Return numba's files of a function on disk: its index (nbi), and code for each CPU (nbc)."""
    return sorted(directory(function).glob(f"*.{ending}"))


@cache
def directory(function: Callable[..., Any]) -> Path:
    """Return the private cache directory of one function, created on first use but where the cache is read-only."""
    path = made() / label(function)
    if read_only():
        # All of it is looked at once more below; what is missing is told where it is needed.
        if not os.path.lexists(path):
            return path
        if why := private_files.why_not(path):
            raise _unusable(f"is not yours alone: {why}")
    else:
        _make(path)
    if found := private_files.foreign(path):
        raise _unusable(f"holds what is not yours alone: remove {found}")
    # Refused here once: numba would warn for each function that it cannot keep.
    if not os.access(path, os.X_OK if read_only() else os.W_OK | os.X_OK):
        raise _unusable("cannot be read" if read_only() else "cannot be written to")
    return path


def read_only() -> bool:
    """Return whether the cache is there to be read alone."""
    return private_files.read_only(root())


def lacking(names: Sequence[str]) -> CacheError:
    """Return what to raise where a read-only cache lacks functions, of these names."""
    others = f" and {len(names) - 1} more" if names[1:] else ""
    return _unusable(f"is read-only and has no {names[0]}{others} of this version for this CPU")


def label(function: Callable[..., Any]) -> str:
    """Return the name of a function's cache directory: room, module, its own name, and a hash.

    The hash covers its source, and the constants that it closes over; of a function from outside this package, its
    whole file, and all of this package. Raises TypeError if it closes over what has no hash.
    """
    source = Path(function.__code__.co_filename)
    inside = source.is_relative_to(source_hash.FOLDER)
    module = source_hash.module_name(source) if inside else source.stem
    name = "".join(letter if letter.isalnum() else "_" for letter in function.__qualname__)
    return f"{module}.{name}-{_hash(_made_of(function).encode())}"


def _made_of(function: Callable[..., Any]) -> str:
    source, closed = Path(function.__code__.co_filename), function.__closure__ or ()
    # None for a function from outside of this package: its file and all of this package stand in.
    digest = None
    if source.is_relative_to(source_hash.FOLDER):
        # Its own `__qualname__` is what a family calls it, the code's where it is defined.
        definition = function.__code__.co_qualname.partition(".")[0]
        digest = hashes().get(f"{source_hash.module_name(source)}:{definition}")
    versions = f"{numba.__version__} {llvmlite.__version__}"
    # Both compilers count, as either may make other code of the same source.
    whole = digest or _hash(package_hash().encode() + source.read_bytes())
    return " ".join(
        [versions, whole, *(_constant(function, cell.cell_contents) for cell in closed)]
    )


def _constant(function: Callable[..., Any], value: Any) -> str:
    """Return a text that differs for different constants of compiled code."""
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        parts = ", ".join(_constant(function, part) for part in value)
        return f"{getattr(value, '_fields', '')}({parts})"
    # A helper counts by its own hash: its name alone would keep the kernel when it is edited.
    if callable(made := getattr(value, "py_func", None)):
        return f"{made.__module__}.{made.__qualname__}({_made_of(made)})"
    raise TypeError(
        f"kernel {function.__qualname__} closes over {value!r}: a constant of a kernel is a number, a text, "
        "a helper (`inlined`) or a tuple of these"
    )


@cache
def hashes() -> dict[str, str]:
    """Return `source_hash.hashes`, kept on disk for each version of the package."""
    return kept(f"sources-{package_hash()}.json", source_hash.hashes)


def kept(name: str, find: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return what `find` returns, kept on disk in a file of that name, but where the cache is read-only.

    CacheError if it cannot be kept.
    """
    path = made() / name
    try:
        # As strictly as a pickle: what is read here decides which code is loaded.
        if private_files.own_file(path):
            known = json.loads(path.read_bytes())
            if isinstance(known, dict):
                return {str(key): str(digest) for key, digest in known.items()}
    except (OSError, ValueError):
        pass  # cut short by a full disk: made again below
    found = find()
    if read_only():
        return found
    try:
        _replace(path, json.dumps(found))
    except OSError as error:
        raise _unusable(f"cannot be used: {error.strerror or error}") from error
    return found


def _replace(path: Path, text: str) -> None:
    # A name that no other thread or process uses; the rename is atomic, so readers see the old file or all of
    # the new one.
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def _hash(data: bytes) -> str:
    # 64 bits: enough among the thousands of directories that a cache may hold; names stay short.
    return hashlib.sha256(data).hexdigest()[:16]


def made() -> Path:
    """Return `root()`, created if missing; CacheError if it cannot be, or others could write there."""
    if not read_only():
        _make(root())
    return root()


def _make(path: Path) -> None:
    try:
        private_files.make(path)
        why = private_files.why_not(path)
    except OSError as error:
        raise _unusable(f"cannot be made: {error.strerror}") from error
    if why:
        raise _unusable(f"is not yours alone: {why}")


def _unusable(why: str) -> CacheError:
    return CacheError(
        f"kernel cache {_named()} {why}; set the environment variable ZNNPY_CACHE to a folder that "
        "only you can write to"
    )


@cache
def root() -> Path:
    """Return the parent of all caches of this user and machine: `$ZNNPY_CACHE`, else `~/.cache/znnpy`.

    Within a folder that is shared with others, it is one of this user's own; a folder of root, which others can only
    read, is taken as it is. An existing folder is checked: CacheError if others could have written it.
    """
    path = _named()
    try:
        if path.exists():
            path = path.resolve()
            # In a folder that others use, one of one's own: files beside it are none of ours to judge.
            own = path / f"znnpy-{os.getuid()}"
            readable = private_files.read_only(path) and not os.path.lexists(own)
            if private_files.shared(path) and not readable:
                path = own
        why = private_files.why_not(path) if os.path.lexists(path) else ""
    except OSError as error:
        raise _unusable(f"cannot be used: {error.strerror}") from error
    if why:
        raise _unusable(f"is not yours alone: {why}")
    return path


def _named() -> Path:
    chosen = os.environ.get("ZNNPY_CACHE")
    base = chosen or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        path = Path(base).expanduser().absolute()
    except RuntimeError as error:
        raise CacheError(
            f"there is no home directory for the kernel cache {base}; set the environment variable "
            "ZNNPY_CACHE to a folder that you can write to"
        ) from error
    # What was chosen is taken as it is; in a general folder for caches this program has its own.
    return path if chosen else path / "znnpy"


@cache
def package_hash() -> str:
    """Return a hash over all kernels, to the letter, and the compiler's versions."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in source_hash.sources():
        digest.update(str(path.relative_to(source_hash.FOLDER)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
