"""Opens a volume of any format by name (`open_volume`), and loads it into memory when it fits."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

import numpy as np

from znnpy.data.chunk_folder import METADATA_LIMIT
from znnpy.data.formats import FORMATS, Asked, Format, other_format
from znnpy.data.process_memory import available, available_memory, readable, take
from znnpy.data.remote_chunks import RemoteChunks
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import ArrayVolume, Triple64, Volume, slabs
from znnpy.dataset_path import LABEL_NAMES, RAW_NAMES, address, joined, split_source
from znnpy.errors import VolumeError, reason

Role = Literal["raw", "labels"]
Keep = Literal["auto", "memory", "file"]
RUN = "config.yaml", "checkpoints"
"""What is in the folder of a run."""

_PICKLE = tuple(
    bytes([0x80, protocol]) for protocol in range(2, 6)
)  # first bytes of protocols 2 to 5


def open_volume(
    source: str | Path,
    dataset: str | None = None,
    *,
    role: Role = "raw",
    allow_external: bool = False,
    allow_filters: tuple[str, ...] = (),
    max_bytes: int | None = None,
    resolution: Triple64 | None = None,
) -> Volume:
    """Open a volume for reading by region; nothing is loaded.

    "path.h5:dataset" or "path.h5", "stack.tif", "scan.nii.gz", "array.npy", "picture.png", a folder of TIFF, PNG or
    JPEG files with a plane each, "image.zarr" or "image.zarr:array", "volume.n5:array", a precomputed folder, and these
    three at an address (http, https, s3, gs); idx files, "arrays.npz:name" and CIFAR's
    "batch.bin", which are read whole, their
    images as slices along z; labels may be one for each slice there and in HDF5. `dataset` may be given
    separately, beside a Path. Without a dataset the usual names are tried: volumes/raw, raw, main for `role` raw;
    volumes/labels/neuron_ids, volumes/labels, labels, main for labels; then the only 3-D dataset. A Zarr folder with
    OME metadata means its first image, in the level of the smallest voxels. `allow_external` permits links, virtual
    datasets, external storage and filter plug-ins, `allow_filters` HDF5 compressions by name (beside deflate,
    shuffle, fletcher32, lzf); `max_bytes` replaces the bound on the declared size, which otherwise
    follows from what the files hold; `resolution` (z, y, x, nm) replaces the file's. The caller
    closes the volume. Raises VolumeError, naming file and dataset.
    """
    path, named = split_source(source)
    dataset = dataset or named
    trust = Trust(allow_external, allow_filters, max_bytes)
    volume = _open(path, dataset, role, trust)
    volume.resolution = resolution or volume.resolution
    return volume


def _open(path: Path, dataset: str | None, role: Role, trust: Trust) -> Volume:
    found, labels = _format(path), role == "labels"
    if dataset is not None and found.alone:
        raise VolumeError(f"{path} is {found.alone} and has no datasets, but {dataset!r} was named")
    names = LABEL_NAMES if labels else RAW_NAMES
    return found.opened(Asked(path, dataset, names, labels, trust))


def load(volume: Volume, keep: Keep = "auto", share: float = 0.5) -> Volume:
    """Return the volume in memory if it fits (or `keep` says so), else the volume itself, to be read by region.

    It fits if it takes at most `share` of the memory still available. The volume passed in is closed once
    loaded. Values may be NaN or infinite: reading checks them.
    """
    if isinstance(volume, ArrayVolume) or keep == "file":
        return volume
    free = available_memory()
    if volume.nbytes > share * free:
        if keep == "auto":
            return volume
        raise VolumeError(
            f"{volume.name} takes {readable(volume.nbytes)} in memory, but only {available(free)}, "
            f"of which {share:.0%} may be used; read it from the file instead"
        )
    loaded = _load(volume)
    volume.verify()
    volume.close()
    return loaded


def _load(volume: Volume) -> ArrayVolume:
    array = np.empty(volume.shape, volume.dtype)
    take(array.nbytes)
    _, height, width = volume.extent
    for start, stop in slabs(volume):
        array[:, start:stop] = volume.read((start, 0, 0), (stop, height, width), finite=False)
    loaded = ArrayVolume(array, volume.name, volume.resolution, volume.placed)
    loaded.neighbours, loaded.directions = volume.neighbours, volume.directions
    loaded.first_class = volume.first_class
    return loaded


def _format(path: Path) -> Format:
    if url := address(path):
        return _format_elsewhere(path, url)
    try:
        return _seen_format(path)
    except OSError as error:
        raise VolumeError(f"{path} cannot be read: {reason(error)}") from error


def _format_elsewhere(path: Path, url: str) -> Format:
    """Return the format of a folder of chunks at an address, by its suffix or its metadata."""
    formats = [it for it in FORMATS.values() if it.marks]
    for found in formats:
        if path.suffix.lower() in found.suffixes:
            return found
    marks = tuple(mark for it in formats for mark in it.marks)
    chunks = RemoteChunks(url, marks)
    for found in formats:
        if any(chunks.read(mark, METADATA_LIMIT, 0, 0) is not None for mark in found.marks):
            return found
    raise VolumeError(
        f"{url} is no folder of Zarr, N5 or precomputed chunks, and only these are read over the network: it has no "
        f"{', '.join(marks)}. Name a copy of it here"
    )


def _known(path: Path, head: bytes, folder: bool) -> Format | None:
    """Return the first format that knows a file or folder."""
    listed = (it for it in FORMATS.values() if it.folder == folder)
    return next((it for it in listed if it.knows(path, head)), None)


def _seen_format(path: Path) -> Format:
    if path.is_dir():
        return _format_of_folder(path)
    if path.exists() and not path.is_file():
        raise VolumeError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError as error:
        raise VolumeError(f"{path} does not exist{_nearest(path)}") from error
    except NotADirectoryError as error:
        whole = next(parent for parent in path.parents if parent.is_file())
        dataset = path.relative_to(whole)
        raise VolumeError(
            f"{path} does not exist: {whole} is a file; a dataset in it is named {joined(whole, str(dataset))}"
        ) from error
    if found := _known(path, head, folder=False):
        return found
    if head[:2] in _PICKLE:
        raise VolumeError(
            f"{path} is a Python pickle, which may run any program when it is read: refused. CIFAR comes in "
            "a binary version too (cifar-10-binary.tar.gz, data_batch_1.bin ...), arrays in npz or HDF5"
        )
    if head and (other := other_format(path)):
        raise VolumeError(f"{path}, by its name {other.title}, is not read: {other.way}")
    what = f"begins with {head!r}" if head else "is empty"
    *titles, last = [it.title for it in FORMATS.values() if it.title and not it.folder]
    raise VolumeError(
        f"{path} is no {', '.join(titles)} or {last} file and no Zarr or N5 folder: it {what}"
    )


def _format_of_folder(path: Path) -> Format:
    # Its pictures are none of a volume.
    if all((path / name).exists() for name in RUN):
        raise VolumeError(f"{path} is a run, not an image: `znnpy predict` writes what it predicts")
    if found := _known(path, b"", folder=True):
        return found
    if other := other_format(path):
        raise VolumeError(f"{path}, by its name {other.title}, is not read: {other.way}")
    raise VolumeError(
        f"{path} is not a file but a folder: no Zarr, N5 or precomputed one, and no TIFF, PNG or JPEG files are in it"
    )


def _nearest(path: Path) -> str:
    if path.is_symlink():
        return f": it is a link to {path.readlink()}"
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    names = [entry.name for entry in folder.iterdir()]
    alike = [name for name in names if name.lower() == path.name.lower()]
    close = alike or difflib.get_close_matches(path.name, names, 1, 0.6)
    return f"; did you mean {folder / close[0]}?" if close else ""
