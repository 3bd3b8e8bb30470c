"""Where compiled kernels are kept: a private directory per version of the source they are made from.

numba stamps only the file that holds a cached function, not the modules that it calls, so the
directory's name carries a hash over a kernel's module and all it imports from this package. numba's
index is a pickle: what others own or could have written is refused (`private`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba

from znnpy_kernels.machine import private

PACKAGE = "znnpy_kernels"
FOLDER = Path(__file__).parents[1]
IMPORT = re.compile(rf"^\s*from\s+{PACKAGE}(?:\.([\w.]+))?\s+import\s+(\([^)]*\)|.*)", re.MULTILINE)
"""What follows `from` and `import` where something of this package is imported."""
Compiled = TypeVar("Compiled")


class CacheError(OSError):
    """The directory for compiled kernels cannot be used; the message says what to do."""


def cached(function: Callable[..., Any], compiled: Callable[[], Compiled]) -> Compiled:
    """What `compiled` makes of a function, with numba's cache in the function's private directory.

    Files that were cut short (full disk, crash) make numba raise while it loads them: they are
    removed and made anew. numba replaces files as a whole, so other processes may do the same.
    """
    source = Path(function.__code__.co_filename)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(directory(source))
    try:
        try:
            return compiled()
        except Exception:
            damaged = files(function)
            for path in damaged:
                path.unlink(missing_ok=True)
            if not damaged:
                raise  # nothing was loaded: the function itself cannot be compiled
            return compiled()
    except CacheError:
        raise
    except OSError as error:
        raise _unusable(f"cannot be used: {error.strerror or error}") from error
    finally:
        numba.config.CACHE_DIR = before


def files(function: Callable[..., Any], ending: str = "nb?") -> list[Path]:
    """What numba keeps on disk of a function: its index (nbi), and code for each CPU (nbc)."""
    source, line = Path(function.__code__.co_filename), function.__code__.co_firstlineno
    name = f"{source.stem}.{function.__qualname__}-{line}"
    return sorted(directory(source).glob(f"*/{name}.*.{ending}"))


@cache
def directory(source: Path) -> Path:
    """The private cache directory for one source file, created on first use."""
    path = made() / label(source)
    _make(path)
    if found := private.foreign(path):
        raise _unusable(f"holds what is not yours alone: remove {found}")
    # numba would fall back to the folder of the source, which is not ours to write into.
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unusable("cannot be written to")
    return path


def label(source: Path) -> str:
    """Name of a source file's cache directory: the room and module, and the hash."""
    inside = source.relative_to(FOLDER) if source.is_relative_to(FOLDER) else Path(source.name)
    return f"{'.'.join(inside.with_suffix('').parts)}-{source_hash(source)}"


def sources() -> list[Path]:
    """All modules of this package, in a fixed order."""
    return sorted(FOLDER.rglob("*.py"))


def made() -> Path:
    """`root()`, created if it is not there; CacheError if it cannot be, or others could write there."""
    _make(root())
    return root()


def _make(path: Path) -> None:
    try:
        private.make(path)
        why = private.why_not(path)
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
    """Parent of all caches of this user and machine: `$ZNNPY_CACHE`, else `~/.cache/znnpy`.

    Within a folder that is shared with others, one of this user's own. What is there already is
    looked at: CacheError if others could have written it.
    """
    path = _named()
    try:
        if path.exists():
            path = path.resolve()
            if private.shared(path):
                path /= f"znnpy-{os.getuid()}"
        why = private.why_not(path) if os.path.lexists(path) else ""
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
    return path if chosen else path / "znnpy"


@cache
def package_hash() -> str:
    """Hash over all kernels, and the compiler's versions: what measured times depend on."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sources():
        digest.update(str(path.relative_to(FOLDER)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def source_hash(source: Path) -> str:
    """Hash over a file, what it imports from this package, and the compiler's versions."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(_imported(source)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _imported(source: Path) -> set[Path]:
    """The file and every module of this package that it imports, directly or not."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path)
    return found


@cache
def _imports(source: Path) -> list[Path]:
    """Modules of this package that a file imports itself.

    Found by their words: to parse all kernels takes as long as to load them. What a string only
    seems to import does no harm.
    """
    found = []
    for module, names in IMPORT.findall(source.read_text()):
        folder = FOLDER.joinpath(*module.split("."))  # or a module, whose functions `names` are
        found += [
            folder.with_suffix(".py"),
            *(folder / f"{n}.py" for n in re.findall(r"\w+", names)),
        ]
    return [path for path in found if path.exists()]
