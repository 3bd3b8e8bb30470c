"""Names of volumes as paths, and of the datasets that are looked for without a name."""

from __future__ import annotations

from pathlib import Path

from znnpy import dataset_path
from znnpy.errors import VolumeError

RAW_NAMES = ("volumes/raw", "raw", "main")
LABEL_NAMES = ("volumes/labels/neuron_ids", "volumes/labels", "labels", "main")


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """File and dataset of "path:dataset", as `sources.split`; a Path is a file as a whole."""
    if isinstance(source, Path):
        return _expanded(source), None
    path, dataset = dataset_path.split(source)
    return _expanded(Path(path)), dataset


def local_path(text: str) -> Path:
    """A path as it is typed; VolumeError for what is none of this machine."""
    dataset_path.refuse_elsewhere(text)
    return _expanded(Path(text))


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise VolumeError(f"{path} names a home that is not known") from error
