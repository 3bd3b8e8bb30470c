"""The place of an output: file and dataset, and the names of its partial file and journal until it is complete."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from znnpy.data.writing.output_format import OutputFormat, by_suffix, output_format
from znnpy.dataset_path import address, joined, split_source
from znnpy.errors import VolumeError


@dataclass(frozen=True)
class Destination:
    """A dataset in a new HDF5 file, or in a new Zarr folder (.zarr), where "" is the folder's own image.

    `overwrite`: what exists there is replaced, once the new one is complete. Raises VolumeError for a dataset's name
    that leads out of groups.
    """

    path: Path
    dataset: str
    overwrite: bool = False

    def __post_init__(self) -> None:
        parts = self.dataset.strip("/").split("/") if self.dataset else []
        if any(part in ("", ".", "..") for part in parts):
            raise VolumeError(f"{self.path}: {self.dataset!r} is no path inside a file or folder")

    @classmethod
    def named(cls, source: str, usual: str, overwrite: bool = False) -> Self:
        """Return the destination FILE[:DATASET]; without a dataset, HDF5 files get the `usual` one.

        Raises VolumeError for names of other formats.
        """
        path, dataset = split_source(source)
        if url := address(path):
            raise VolumeError(f"{url} is read, not written: name a file here, and copy it there")
        if dataset is None and ":" in path.name and by_suffix(path) is None:
            file, _, rest = path.name.partition(":")
            raise VolumeError(
                f"{source}: where does the name of the file end? That of an HDF5 file ends in .h5, as "
                f"{path.with_name(file).with_suffix('.h5')}:{rest}, that of a Zarr folder in .zarr"
            )
        return cls(path, dataset or (usual if output_format(path).has_datasets else ""), overwrite)

    @property
    def name(self) -> str:
        """The name by which `opening.open_volume` finds what was written."""
        return joined(self.path, self.dataset)

    @property
    def format(self) -> OutputFormat:
        """The format of the output, by its suffix."""
        return output_format(self.path)

    def refuse_standing(self) -> None:
        """Raise VolumeError if something exists there that may not be replaced."""
        if self.path.exists() and not self.overwrite:
            raise VolumeError(f"{self.path} exists already; name another file, or add --overwrite")


def partial_of(path: Path) -> Path:
    """Return where an output lies until it is finished."""
    return path.with_name(f"{path.name}.partial")


def journal_of(path: Path) -> Path:
    """Return where an output's journal lies."""
    return path.with_name(f"{path.name}.partial.journal")
