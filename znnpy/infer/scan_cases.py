"""Cases of a prediction of scans: which files make a case, and the files that are written for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from znnpy.config.data_section import DataSection, Source
from znnpy.data.config_volumes import open_source
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume, Volume
from znnpy.data.writing.output_format import by_suffix, kept_suffix
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.network.types import Triple
from znnpy.volume_sets import PLANES, VOLUMES, by_number, expanded, is_set, refuse_own_place

_CHANNEL = re.compile(r"(?P<name>.+)_(?P<channel>\d{4})")
USUAL = ".nii.gz"  # of outputs, where images are of a format that is not written
_SUFFIXES = sorted((*VOLUMES, *PLANES), key=len, reverse=True)


@dataclass(frozen=True)
class Case:
    """One case: the files of its channels in order, and the file to write."""

    channels: tuple[str, ...]
    output: str


def cases_of(
    inputs: Sequence[str], output: str, dtype: str = "uint16", channels: int = 1
) -> list[Case]:
    """Return the cases of a command line: one, of the files named, or those of a folder, for a folder to write.

    `dtype` and `channels` of what is written: outputs are of the format of their images where that holds it.

    In a folder or a pattern NAME_0000, NAME_0001 ... are the channels of a case, as in nnU-Net; others a case each.
    """
    (first, *more), path = inputs, Path(inputs[0]).expanduser()
    pattern = not path.is_dir() and is_set(path)
    if more or not (pattern or (path.is_dir() and (is_set(path) or _pictures(path)))):
        return [Case(tuple(inputs), output)]
    if by_suffix(Path(output)) is not None:
        raise VolumeError(f"{first} names scans: name a folder to write, not the file {output}")
    found: dict[str, dict[str, Path]] = {}
    for file in _matching(path) if pattern else path.iterdir():
        end = next((end for end in _SUFFIXES if file.name.lower().endswith(end)), None)
        if end is None or file.name.startswith("."):
            continue
        stem = file.name[: -len(end)]
        match = _CHANNEL.fullmatch(stem)
        name, channel = (match["name"], match["channel"]) if match else (stem, "0000")
        if channel in found.setdefault(name, {}):
            raise VolumeError(f"{path} holds channel {channel} of {name} twice")
        found[name][channel] = file
    kind = (dtype, channels)
    return [_case(name, found[name], output, kind) for name in sorted(found, key=by_number)]


def _matching(pattern: Path) -> list[Path]:
    """Return the files that a pattern names; VolumeError where there are none."""
    return [path for volume in expanded({("image", ""): pattern}) for path in volume.values()]


def _pictures(path: Path) -> bool:
    """Return whether a folder holds pictures of several cases by nnU-Net's names, and no slices of one volume."""
    return any(_CHANNEL.fullmatch(file.stem) for file in path.iterdir() if file.suffix in PLANES)


def _case(name: str, channels: dict[str, Path], output: str, kind: tuple[str, int]) -> Case:
    files = [channels[channel] for channel in sorted(channels)]
    if [*sorted(channels)] != [f"{number:04d}" for number in range(len(files))]:
        raise VolumeError(f"{files[0].parent}: {name} has channels {', '.join(sorted(channels))}")
    end = next((e for e in _SUFFIXES if files[0].name.lower().endswith(e)), USUAL)
    place = Path(output) / f"{name}{kept_suffix(end, *kind, USUAL)}"
    refuse_own_place(place.expanduser(), files)
    return Case(tuple(map(str, files)), str(place))


def extent_of(case: Case, data: DataSection) -> Triple | None:
    """Return the voxels z, y, x of a case; None where it cannot be opened, which whoever predicts it will say."""
    with (
        suppress(ZnnpyError, OSError),
        open_source(Source.model_validate(case.channels[0]), data, "raw") as volume,
    ):
        return volume.extent
    return None


def open_case(case: Case, data: DataSection) -> Volume:
    """Return the scan of a case, all channels together; the caller closes it.

    Several files are read and lie in memory; VolumeError where they do not show one place.
    """
    opened: list[Volume] = []
    try:
        for name in case.channels:
            opened.append(open_source(Source.model_validate(name), data, "raw"))
        if len(opened) == 1:
            return opened[0]
        first = opened[0]
        Scene({str(number): volume for number, volume in enumerate(opened)}, {})
        whole = np.concatenate([volume.read_all() for volume in opened])
    except BaseException:
        for volume in opened:
            volume.close()
        raise
    found = ArrayVolume(whole, first.name, first.resolution, first.placed)
    found.directions = first.directions
    for volume in opened:
        volume.close()
    return found
