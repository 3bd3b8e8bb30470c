"""napari's reader of runs, and of the volumes that znnpy reads and napari does not; sizes are in nanometres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from znnpy.data.formats import FORMATS
from znnpy.data.opening import open_volume
from znnpy.pictures.napari_viewer import layer_data
from znnpy.pictures.overlays import Layer, kind_of, title_of
from znnpy.train.progress import Notes
from znnpy.train.run_directory import CONFIG
from znnpy.train.start import read_run
from znnpy.train.views import layers_of_run, scene_of_run

LayerData = tuple[Any, dict[str, Any], str]
FILES = ("hdf5", "nifti", "nrrd", "metaimage", "mrc")
"""Formats of files that are opened; those of the manifest."""


def get_reader(path: str | Sequence[str]) -> Callable[[Any], list[LayerData]] | None:
    """Return what reads a path: a run directory, a file of `FILES`, or a folder of chunks; None for all others.

    A run becomes what `znnpy view RUN` shows of it: image, labels, prediction and objects of a part of its test volume.
    """
    if not isinstance(path, str | Path):
        return None  # a stack of files
    place = Path(path)
    if place.is_dir():
        if (place / CONFIG).is_file():
            return lambda given: _run(Path(given))
        folders = (it for it in FORMATS.values() if it.folder and it.marks)
        return _volume if any(it.knows(place, b"") for it in folders) else None
    suffixes = tuple(end for name in FILES for end in FORMATS[name].suffixes)
    return _volume if place.name.lower().endswith(suffixes) else None


def _volume(path: str | Path) -> list[LayerData]:
    # Kept open as long as napari shows it, where it does not fit into memory.
    volume = open_volume(path)
    return [_in_nanometres(Layer(kind_of(volume), volume, title_of(volume)))]


def _run(path: Path) -> list[LayerData]:
    saved = read_run(path, Notes())
    with ExitStack() as stack:
        scene = scene_of_run(saved)
        stack.callback(scene.close)
        layers = [_in_nanometres(layer) for layer in layers_of_run(saved, scene)]
        stack.pop_all()
    return layers


def _in_nanometres(layer: Layer) -> LayerData:
    array, named, kind = layer_data(layer)
    return array, {**named, "units": ("nm",) * 3}, kind
