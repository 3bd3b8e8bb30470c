"""Names of volumes, FILE or FILE:DATASET, and of the datasets that are looked for without one."""

from __future__ import annotations

from pathlib import Path

from znnpy.errors import VolumeError

RAW_NAMES = ("volumes/raw", "raw", "main")
LABEL_NAMES = ("volumes/labels/neuron_ids", "volumes/labels", "labels", "main")


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """Cut "path:dataset" at its last colon; a file of the whole name comes first."""
    whole = Path(source)
    text = str(source)
    if isinstance(source, Path) or ":" not in text or whole.exists():
        return whole, None
    path, _, dataset = text.rpartition(":")
    if not dataset.strip("/"):
        raise VolumeError(f"{source}: no dataset is named after the colon")
    return Path(path), dataset


def joined(path: Path, dataset: str) -> str:
    """The name by which a dataset is found; "" is a Zarr folder's own image."""
    return f"{path}:{dataset}" if dataset else str(path)
