"""Refuses outputs that cannot be written, or would destroy inputs, before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from znnpy.data.formats import plain_stem
from znnpy.data.volume import Volume
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.data.writing.output_format import HDF5, OUTPUTS, by_suffix, output_format
from znnpy.dataset_path import address, split_source
from znnpy.errors import VolumeError, WriteError
from znnpy.registry import resolved


def refuse_output(destination: Destination) -> None:
    """Raise VolumeError where the output cannot be written, before anything is computed."""
    refuse_place(destination.path)
    if not journal_of(destination.path).exists():
        destination.refuse_standing()


def refuse_place(path: Path) -> None:
    """Raise VolumeError where no output can be written, whatever it replaces."""
    folder = path.parent
    if path.suffix and not by_suffix(path):
        stem, (*titles, last) = plain_stem(path), [it.title for it in OUTPUTS.values()]
        raise VolumeError(
            f"{path} would be no {path.suffix} file: {', '.join(titles)} and {last} are written, name a file "
            f"{stem}.h5 or a folder {stem}.zarr"
        )
    output = output_format(path)
    if path.is_dir() and not (output.folder and resolved(output.owns)(path)):
        raise VolumeError(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_dir() and not path.is_file():
        raise VolumeError(f"{path} is no plain file; name a new one")
    if output.folder and path.is_file():
        title = output.title.removeprefix("OME-")
        raise VolumeError(f"{path} is a file; a {title} output is a folder, name another")
    if output.ready:
        resolved(output.ready)()
    if not folder.is_dir():
        raise WriteError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteError(f"{path} cannot be written: no permission to write into {folder}")


def refuse_loss(destination: Destination, volumes: Iterable[Volume]) -> None:
    """Raise VolumeError if the output would replace what a volume is read from, or other data beside its own."""
    _refuse_inputs(destination, volumes)
    if destination.overwrite:
        _refuse_other_data(destination.path, destination.dataset)


def _refuse_other_data(path: Path, dataset: str) -> None:
    """Raise VolumeError if a file to be replaced holds anything but the dataset that is written anew."""
    if not path.is_file() or not path.stat().st_size:
        return
    output = output_format(path)
    if not resolved(output.owns)(path):
        raise VolumeError(
            f"{path} is no {output.title} file and is not replaced; name another file"
        )
    if output is not HDF5:
        return
    # With h5py, which other formats need not load.
    from znnpy.data.hdf5.safety import dataset_names, open_file

    with open_file(path) as file:
        others = [name for name in dataset_names(file) if name != dataset.strip("/")]
    if others:
        raise VolumeError(
            f"{path} holds {', '.join(others[:5])} too, which --overwrite would remove; "
            "name another file"
        )


def _refuse_inputs(destination: Destination, volumes: Iterable[Volume]) -> None:
    """Raise VolumeError if the output would replace a file or folder that a volume is read from."""
    path = destination.path
    for volume in volumes:
        source, _ = split_source(volume.name)
        # An array of a folder may be read by an address within that of the folder.
        url = destination.url and f"{address(source)}/".startswith(f"{destination.url}/")
        if url or (path.exists() and source.exists() and path.samefile(source)):
            raise VolumeError(
                f"{destination.place} holds {volume.name}, which is read; an output is a new file, name another"
            )
