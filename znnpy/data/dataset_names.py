"""Splits typed names of volumes into path and dataset, and lists the datasets that are tried without a name."""

from __future__ import annotations

from pathlib import Path

from znnpy import dataset_path
from znnpy.errors import VolumeError

RAW_NAMES = ("volumes/raw", "raw", "main")
"""Dataset names that are tried for raw images, in order."""
LABEL_NAMES = ("volumes/labels/neuron_ids", "volumes/labels", "labels", "main")
"""Dataset names that are tried for labels, in order."""


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """Return file and dataset of "path:dataset", as `dataset_path.split`; a Path is a file as a whole."""
    if isinstance(source, Path):
        return _expanded(source), None
    path, dataset = dataset_path.split(source)
    return _expanded(Path(path)), dataset


def local_path(text: str) -> Path:
    """Return a typed path with ~ expanded; raise VolumeError for what is not a path of this machine."""
    dataset_path.refuse_elsewhere(text)
    return _expanded(Path(text))


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise VolumeError(f"{path} names a home that is not known") from error
