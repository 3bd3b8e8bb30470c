"""Open a volume by name, and load it into memory when it fits."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from znnpy.data.hdf5.volume import Hdf5Volume
from znnpy.data.memory import available_memory, readable
from znnpy.data.names import LABEL_NAMES, RAW_NAMES, split_source
from znnpy.data.tiff.folder import TiffFolder, planes_of
from znnpy.data.tiff.volume import TiffVolume
from znnpy.data.trust import Trust
from znnpy.data.volume import ArrayVolume, Triple64, Volume, slabs
from znnpy.data.zarr.folder import is_zarr
from znnpy.errors import VolumeError

Role = Literal["raw", "labels"]
Keep = Literal["auto", "memory", "file"]

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def open_volume(
    source: str | Path,
    *,
    role: Role = "raw",
    allow_external: bool = False,
    allow_filters: tuple[str, ...] = (),
    max_bytes: int | None = None,
    resolution: Triple64 | None = None,
) -> Volume:
    """Open a volume for reading by region; nothing is loaded.

    "path.h5:dataset" or "path.h5", "stack.tif", a folder of TIFF files with a plane each, "image.zarr"
    or "image.zarr:array". Without a dataset
    the usual names are tried: volumes/raw, raw, main for `role` raw; volumes/labels/neuron_ids,
    volumes/labels, labels, main for labels; then the only 3-D dataset. A Zarr folder with OME metadata
    means its first image at full resolution. `allow_external` permits links, virtual datasets,
    external storage and filter plug-ins, `allow_filters` HDF5 compressions by name (beside deflate,
    shuffle, fletcher32, lzf); `max_bytes` replaces the bound on the declared size, which otherwise
    follows from what the files hold; `resolution` (z, y, x, nm) replaces the file's. The caller
    closes the volume. Raises VolumeError, naming file and dataset.
    """
    path, dataset = split_source(source)
    trust = Trust(allow_external, allow_filters, max_bytes)
    volume = _open(path, dataset, role, trust)
    volume.resolution = resolution or volume.resolution
    return volume


def _open(path: Path, dataset: str | None, role: Role, trust: Trust) -> Volume:
    kind = _kind(path)
    if kind == "tiff":
        if dataset is not None:
            raise VolumeError(
                f"{path} is a TIFF file and has no datasets, but {dataset!r} was named"
            )
        return TiffVolume(path, allow_external=trust.external, max_bytes=trust.max_bytes)
    if kind == "planes":
        if dataset is not None:
            raise VolumeError(f"{path} is a folder of TIFF files, but {dataset!r} in it was named")
        return TiffFolder(
            path, planes_of(path), allow_external=trust.external, max_bytes=trust.max_bytes
        )
    names = RAW_NAMES if role == "raw" else LABEL_NAMES
    if kind == "zarr":
        # Takes a third of a second to import, so only those who read Zarr wait for it.
        from znnpy.data.zarr.volume import ZarrVolume

        return ZarrVolume(path, dataset, names, role == "labels", trust)
    return Hdf5Volume(path, dataset, names, trust)


def load(volume: Volume, keep: Keep = "auto", share: float = 0.5) -> Volume:
    """The volume in memory if it fits (or `keep` says so), else itself, to be read by region.

    It fits if it takes at most `share` of the memory still available. The volume passed in is
    closed once loaded. Values may be NaN or infinite: who reads them from the volume looks.
    """
    if isinstance(volume, ArrayVolume) or keep == "file":
        return volume
    free = available_memory()
    if volume.nbytes > share * free:
        if keep == "auto":
            return volume
        raise VolumeError(
            f"{volume.name} takes {readable(volume.nbytes)} in memory, but only {readable(free)} "
            f"are available, of which {share:.0%} may be used; read it from the file instead"
        )
    loaded = _load(volume)
    volume.verify()
    volume.close()
    return loaded


def _load(volume: Volume) -> ArrayVolume:
    array = np.empty(volume.shape, volume.dtype)
    _, height, width = volume.extent
    for start, stop in slabs(volume):
        array[:, start:stop] = volume.read((start, 0, 0), (stop, height, width), finite=False)
    loaded = ArrayVolume(array, volume.name, volume.resolution, volume.offset)
    loaded.neighbours = volume.neighbours
    return loaded


def _kind(path: Path) -> Literal["hdf5", "tiff", "planes", "zarr"]:
    if path.is_dir():
        return _kind_of_folder(path)
    if path.exists() and not path.is_file():
        raise VolumeError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError as error:
        raise VolumeError(f"{path} does not exist{_nearest(path)}") from error
    except OSError as error:
        raise VolumeError(f"{path} cannot be read: {error.strerror}") from error
    if h5py.is_hdf5(path):
        return "hdf5"
    if head[:4] in _TIFF:
        return "tiff"
    what = f"begins with {head!r}" if head else "is empty"
    raise VolumeError(f"{path} is neither an HDF5 nor a TIFF file nor a Zarr folder: it {what}")


def _kind_of_folder(path: Path) -> Literal["planes", "zarr"]:
    if is_zarr(path) or path.suffix == ".zarr":
        return "zarr"
    try:
        if planes_of(path):
            return "planes"
    except OSError as error:
        raise VolumeError(f"{path} cannot be read: {error.strerror}") from error
    raise VolumeError(
        f"{path} is not a file but a folder: no Zarr folder, and no TIFF files are in it"
    )


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    names = [entry.name for entry in folder.iterdir()]
    close = difflib.get_close_matches(path.name, names, 1, 0.6)
    return f"; did you mean {folder / close[0]}?" if close else ""
