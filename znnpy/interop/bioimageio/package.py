"""A package's folder or zip: its description, and files that it names, of the right digest and within the package."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.process_memory import readable
from znnpy.errors import ModelFileError, reason
from znnpy.interop.described import Described

DESCRIPTIONS = ("rdf.yaml", "bioimageio.yaml", "model.yaml", "rdf.yml")
MOST = 1 << 33  # bytes of a file of a zip; weights have hundreds of MiB
MOST_TESTED = 1 << 30  # bytes of a test tensor
_CHUNK = 1 << 20
_UNSOUND = (OSError, ValueError, EOFError, SyntaxError, TokenError, RecursionError)  # of np.load


@dataclass(frozen=True)
class Package:
    """A package in a folder; `title` is where it came from, `archive` the zip that files are taken out of first."""

    folder: Path
    title: str
    said: Described
    archive: zipfile.ZipFile | None = None

    def file(self, source: Any, digest: Any, where: str) -> Path:
        """Return a file of the package; ModelFileError where it is none, is missing, or has another sha256."""
        if isinstance(source, dict):
            digest, source = source.get("sha256", digest), source.get("source")
        if not isinstance(source, str) or not source:
            raise ModelFileError(
                f"{where}: source must be a file of the package; found {str(source)[:60]}"
            )
        if "://" in source:
            raise ModelFileError(
                f"{where}: lies at {source[:100]}: take the package that holds its files"
            )
        name = PurePosixPath(source)
        if name.is_absolute() or ".." in name.parts or "\\" in source or "\0" in source:
            raise ModelFileError(f"{where}: {source[:100]} lies outside of the package")
        path = self.folder / name
        if self.archive is not None and not path.exists():
            _extract(self.archive, str(name), path, where)
        if not path.is_file():
            raise ModelFileError(f"{where}: there is no file {source[:100]} in {self.title}")
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ModelFileError(f"{where}: {source[:100]} lies outside of the package")
        if digest is not None and _sha256(path) != digest:
            raise ModelFileError(
                f"{where}: {source[:100]} has another sha256 than the package says: it is damaged, or another file"
            )
        return path

    def array(self, source: Any, digest: Any, where: str) -> NDArray[Any]:
        """Return a test tensor (.npy, without pickles)."""
        path = self.file(source, digest, where)
        try:
            if path.stat().st_size > MOST_TESTED:
                raise ModelFileError(
                    f"{where}: test tensors of at most {readable(MOST_TESTED)} are read"
                )
            found = np.load(path, allow_pickle=False, mmap_mode="r")
            if not isinstance(found, np.ndarray) or found.dtype.kind not in "buif":
                raise ValueError("it holds no numbers")
            return np.array(found)
        except _UNSOUND as error:
            raise ModelFileError(
                f"{where}: {path.name} is no sound .npy file: {reason(error)[:100]}"
            ) from error


def is_package(path: Path) -> bool:
    """Return whether a path is a package by the names of its files, or its description."""
    if path.is_dir():
        return any((path / name).is_file() for name in DESCRIPTIONS)
    if path.name in DESCRIPTIONS:
        return path.is_file()
    return path.suffix.lower() == ".zip" and path.is_file()


@contextmanager
def opened(path: Path) -> Iterator[Package]:
    """Yield a package; what is taken out of a zip is removed at the end."""
    if path.suffix.lower() != ".zip":
        folder = path if path.is_dir() else path.parent
        name = (
            path.name if path.is_file() else next(n for n in DESCRIPTIONS if (path / n).is_file())
        )
        yield Package(folder, str(path), _described(folder / name, str(path)))
        return
    with TemporaryDirectory(prefix="znnpy-") as made:
        folder = Path(made)
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                name = next((n for n in DESCRIPTIONS if n in names), "")
                if not name:
                    raise ModelFileError(
                        f"{path} is no package of bioimage.io: it has no {DESCRIPTIONS[0]}"
                    )
                _extract(archive, name, folder / name, str(path))
                yield Package(folder, str(path), _described(folder / name, str(path)), archive)
        except (
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            EOFError,
            RuntimeError,
        ) as error:
            raise ModelFileError(f"{path} is no sound zip: {reason(error)[:100]}") from error


def _described(path: Path, title: str) -> Described:
    found = Described.of_yaml(path)
    return Described(found.values, title if title.endswith(path.name) else f"{title}: {path.name}")


def _extract(archive: zipfile.ZipFile, name: str, path: Path, where: str) -> None:
    """Write one file of an archive; never more bytes than its directory says."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ModelFileError(f"{where}: there is no file {name[:100]} in the zip") from None
    if info.file_size > min(MOST, shutil.disk_usage(path.anchor or "/").free):
        raise ModelFileError(f"{where}: {name[:100]} would have {readable(info.file_size)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, path.open("wb") as file:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise ModelFileError(f"{where}: {name[:100]} has more bytes than the zip says")
            file.write(chunk)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
