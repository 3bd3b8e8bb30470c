"""Names of volumes as paths, and of the datasets that are looked for without a name."""

from __future__ import annotations

from pathlib import Path

from znnpy import sources
from znnpy.errors import VolumeError

RAW_NAMES = ("volumes/raw", "raw", "main")
LABEL_NAMES = ("volumes/labels/neuron_ids", "volumes/labels", "labels", "main")


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """File and dataset of "path:dataset", as `sources.split`; a Path is a file as a whole."""
    path, dataset = (source, None) if isinstance(source, Path) else sources.split(source)
    try:
        return Path(path).expanduser(), dataset
    except RuntimeError as error:
        raise VolumeError(f"{source} names a home that is not known") from error
