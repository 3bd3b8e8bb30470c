"""`znnpy predict` of many images, a folder or a pattern of them: a case each, and a folder of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from znnpy.data.writing.output_format import by_suffix, kept_suffix
from znnpy.dataset_path import address, split
from znnpy.errors import VolumeError, reason
from znnpy.volume_sets import PLANES, VOLUMES, expanded, is_set, refuse_own_place

if TYPE_CHECKING:
    from znnpy.data.writing.destination import Destination
    from znnpy.network.types import Network

MASK = "mask"
_SUFFIXES = sorted((*VOLUMES, *PLANES), key=len, reverse=True)


@dataclass(frozen=True)
class Case:
    """One case: images by input node ("" for all), a mask if there is one, and the file or folder to write."""

    images: Mapping[str, str]
    mask: str | None
    output: str


def images_of(network: Network, given: list[str]) -> dict[str, str]:
    """Return the images by input node, "" for what is given without one."""
    names = [node.name for node in network.inputs]
    images = {}
    for text in given:
        node, equals, source = text.partition("=")
        named = bool(equals) and node in names
        images[node if named else ""] = source if named else text
    if len(images) < len(given):
        raise typer.BadParameter(f"--input must name different inputs: {', '.join(names)}")
    if len(names) > 1 and set(images) != set(names):
        each = " ".join(f"--input {name}=FILE" for name in names)
        raise typer.BadParameter(f"the network has several inputs: give {each}")
    return images


def cases_of(
    images: Mapping[str, str],
    mask: str | None,
    output: str,
    dtype: str = "float32",
    channels: int = 1,
) -> list[Case]:
    """Return the cases of a command line: one of what is named, or those of folders and patterns, in a folder.

    `dtype` and `channels` of what is written: outputs are of the format of their images where that holds it.
    FOLDER:DATASET and PATTERN:DATASET name the dataset of each file. Raises VolumeError where files do not belong
    together, none is there, or the output names no folder.
    """
    given = {("image", node): text for node, text in images.items()}
    given |= {("mask", ""): mask} if mask is not None else {}
    parted = {name: _parted(text) for name, text in given.items()}
    sets = [path for path, _ in parted.values() if path and is_set(path)]
    if not sets:
        return [Case(images, mask, output)]
    files = expanded({name: path or Path(given[name]) for name, (path, _) in parted.items()})
    if by_suffix(Path(output)) is not None or address(output):
        raise VolumeError(
            f"{sets[0]} names {len(files)} image{'s' * (len(files) > 1)}: name a folder to write, not the file {output}"
        )
    folder = Path(output).expanduser()
    return _distinct([_case(found, parted, folder, dtype, channels) for found in files])


def _parted(text: str) -> tuple[Path | None, str | None]:
    """Return the path of a name, None of an address, and its dataset."""
    path, dataset = split(text)
    if address(path):
        return None, dataset
    place = Path(path).expanduser()
    if dataset is None and not is_set(place) and ":" in text:
        # A pattern or folder, which no suffix ends.
        head, _, rest = text.rpartition(":")
        if rest and is_set(Path(head).expanduser()):
            return Path(head).expanduser(), rest
    return place, dataset


def _case(
    files: Mapping[tuple[str, str], Path],
    parted: Mapping[tuple[str, str], tuple[Path | None, str | None]],
    folder: Path,
    dtype: str,
    channels: int,
) -> Case:
    named = {
        name: f"{path}:{parted[name][1]}" if parted[name][1] else str(path)
        for name, path in files.items()
    }
    images = {node: text for (role, node), text in named.items() if role == "image"}
    first = next(path for (role, _), path in files.items() if role == "image")
    end = next((it for it in _SUFFIXES if first.name.lower().endswith(it)), first.suffix)
    suffix = kept_suffix(end, dtype, channels)
    stem = first.name[: len(first.name) - len(end)] if end else first.name
    place = folder / f"{stem}{suffix}"
    refuse_own_place(place, files.values())
    return Case(images, named.get((MASK, "")), str(place))


def _distinct(cases: list[Case]) -> list[Case]:
    seen: dict[str, Case] = {}
    for case in cases:
        if other := seen.get(case.output):
            names = [next(iter(it.images.values())) for it in (other, case)]
            raise VolumeError(
                f"{names[0]} and {names[1]} would both be written to {case.output}; predict them into two folders"
            )
        seen[case.output] = case
    return cases


def not_written(
    cases: Sequence[Case], usual: str, overwrite: bool, *, several: bool, dry_run: bool
) -> list[tuple[Case, Destination]]:
    """Return the cases that are not written yet; of several, those that are stay as they are."""
    from znnpy.data.writing.destination import Destination

    found = [(case, Destination.named(case.output, usual, overwrite)) for case in cases]
    if not several:
        return found
    if not dry_run:
        _folder(found[0][1].path.parent)
    left = [it for it in found if overwrite or not it[1].path.exists()]
    if len(left) < len(found):
        typer.echo(f"{len(found) - len(left)} of {len(found)} cases are written already")
    return left


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VolumeError(f"{path} cannot be made a folder: {reason(error)}") from error
