"""Where compiled kernels are kept: a private directory per version of the source they are made from.

numba stamps only the file that holds a cached function, not the modules that it calls, so the
directory's name carries a hash over a kernel's module and all it imports from this package. numba's
index is a pickle: the directory is made with mode 0700 and refused when somebody else owns it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import llvmlite
import numba

PACKAGE = "znnpy_kernels"


@contextlib.contextmanager
def compiled_in_private_cache(source: str) -> Iterator[None]:
    """Point numba's cache at the directory of kernels made from this file; other code keeps its own."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory(Path(source)))
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@cache
def directory(source: Path) -> Path:
    """The private cache directory for one source file, created on first use."""
    path = root() / f"{source.stem}-{source_hash(source)}"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for private in (root(), path):
        if private.stat().st_uid != os.getuid():
            raise PermissionError(
                f"kernel cache {private} belongs to another user; "
                "set ZNNPY_CACHE to a directory of yours"
            )
        private.chmod(0o700)
    return path


@cache
def root() -> Path:
    """Parent of all caches of this user and machine: `$ZNNPY_CACHE`, else `~/.cache/znnpy`."""
    chosen = os.environ.get("ZNNPY_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "znnpy"


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
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += _files(node.module, [alias.name for alias in node.names])
    return found


def _files(module: str, names: list[str]) -> list[Path]:
    package, _, inner = module.partition(".")
    if package != PACKAGE:
        return []
    stems = [inner] if inner else names
    paths = [Path(__file__).parent / f"{stem.replace('.', '/')}.py" for stem in stems]
    return [path for path in paths if path.exists()]
