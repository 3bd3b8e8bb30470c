"""The place of an output: file and dataset, and the names of its partial file and journal until it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from numpy.typing import NDArray

from znnpy.data.formats import FORMATS
from znnpy.data.remote_chunks import PACKAGES
from znnpy.data.writing.folder_files import RemoteFiles
from znnpy.data.writing.output_format import OUTPUTS, OutputFormat, by_suffix, output_format
from znnpy.dataset_path import address, joined, split_source
from znnpy.errors import VolumeError, WriteError, reason, refuse_own
from znnpy.registry import resolved


@dataclass(frozen=True)
class Destination:
    """A dataset in a new HDF5 file, or in a new Zarr folder (.zarr), where "" is the folder's own image.

    `overwrite`: what exists there is replaced, once the new one is complete. `url`: the address (s3, gs) of a folder of
    chunks; what is kept until it is complete then lies beside `path`, in the current folder. Raises VolumeError for a
    dataset's name that leads out of groups.
    """

    path: Path
    dataset: str
    overwrite: bool = False
    url: str = ""

    def __post_init__(self) -> None:
        parts = self.dataset.strip("/").split("/") if self.dataset else []
        if any(part in ("", ".", "..") for part in parts):
            raise VolumeError(f"{self.path}: {self.dataset!r} is no path inside a file or folder")

    @classmethod
    def named(cls, source: str, usual: str, overwrite: bool = False) -> Self:
        """Return the destination FILE[:DATASET]; without a dataset, HDF5 files get the `usual` one.

        Raises VolumeError for names of other formats, and addresses at which nothing can be written.
        """
        path, dataset = split_source(source)
        if url := address(path):
            return cls(_kept(url), dataset or "", overwrite, url)
        if dataset is None and ":" in path.name and by_suffix(path) is None:
            file, _, rest = path.name.partition(":")
            if written := by_suffix(Path(file)):
                raise VolumeError(
                    f"{source}: {written.title} files hold one image, which has no name: name {path.with_name(file)}"
                )
            raise VolumeError(
                f"{source}: where does the name of the file end? That of an HDF5 file ends in .h5, as "
                f"{path.with_name(file).with_suffix('.h5')}:{rest}, that of a Zarr folder in .zarr"
            )
        return cls(path, dataset or (usual if output_format(path).has_datasets else ""), overwrite)

    @property
    def name(self) -> str:
        """The name by which `opening.open_volume` finds what was written."""
        return joined(self.url or self.path, self.dataset)

    @property
    def format(self) -> OutputFormat:
        """The format of the output, by its suffix."""
        return output_format(self.path)

    @property
    def place(self) -> Path | str:
        """The path or the address."""
        return self.url or self.path

    def stands(self) -> bool:
        """Return whether something exists there."""
        if not self.url:
            return self.path.exists()
        return RemoteFiles(self.url).has(mark for it in FORMATS.values() for mark in it.marks)

    def refuse_standing(self) -> None:
        """Raise VolumeError if something exists there that may not be replaced."""
        if not self.overwrite and self.stands():
            raise VolumeError(f"{self.place} exists already; name another file, or add --overwrite")

    def write(self, values: NDArray[Any], attributes: Mapping[str, Any]) -> None:
        """Write a whole image (z, y, x) or (c, z, y, x), atomically; WriteError where it cannot be written."""
        try:
            resolved(self.format.whole)(self, values, attributes)
        except OSError as error:
            refuse_own(error)
            raise WriteError(f"{self.path} cannot be written: {reason(error)}") from error


def _kept(url: str) -> Path:
    """Return the path here that stands for an address; VolumeError where nothing can be written."""
    name, scheme = Path(url).name, url.partition(":")[0]
    if scheme not in PACKAGES:
        raise VolumeError(f"{url} is read, not written: name a file here, and copy it there")
    written = by_suffix(Path(name))
    if written is None or not written.folder:
        suffixes = ", ".join(
            suffix for it in OUTPUTS.values() if it.folder for suffix in it.suffixes
        )
        raise VolumeError(
            f"{url}: over the network folders of chunks are written ({suffixes}): name one, or name a file here, and "
            "copy it there"
        )
    if not url.partition("://")[2].strip("/").count("/"):
        raise VolumeError(f"{url} is a whole bucket: name a folder in it, such as {url}/out.zarr")
    # The same from command to command, and another one for each address.
    return Path.cwd() / f"{Path(name).stem}-{crc32(url.encode()):08x}{Path(name).suffix}"


def partial_of(path: Path) -> Path:
    """Return where an output lies until it is finished."""
    return path.with_name(f"{path.name}.partial")


def journal_of(path: Path) -> Path:
    """Return where an output's journal lies."""
    return path.with_name(f"{path.name}.partial.journal")
