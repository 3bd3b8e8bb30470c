"""Sets of volumes in a config: patterns such as train/*_raw.tif, and folders, paired by what varies in names."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from znnpy.dataset_path import there
from znnpy.errors import VolumeError

VOLUMES = (
    ".h5", ".hdf5", ".hdf", ".zarr", ".n5", ".nii", ".nii.gz", ".nrrd", ".nhdr", ".mha", ".mhd", ".mrc", ".rec", ".npy",
)  # fmt: skip
"""Suffixes of files of which a folder is a set; files with one plane each are one volume together."""
PLANES = (".tif", ".tiff", ".png", ".jpg", ".jpeg")
_ARRAYS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", "attributes.json", "info")
_WILD = re.compile(r"(?P<deep>\*\*/)|(?P<star>\*+)|(?P<one>\?)|\[(?P<not>!?)(?P<some>[^]/]+)\]")
SHOWN = 5  # names in an error
Key = tuple[str, ...]
Entry = Mapping[tuple[str, str], Path]
"""What a volume is made of, by role (image, labels, mask) and node: files, patterns or folders."""


def is_set(path: Path) -> bool:
    """Return whether a path is a pattern, or a folder whose files are volumes; what is there by that name is itself."""
    if there(str(path)):
        return path.is_dir() and bool(_members(path))
    return _WILD.search(str(path)) is not None


def expanded(entry: Entry) -> list[dict[tuple[str, str], Path]]:
    """Return the volumes of an entry, one a file of its patterns, in the order of the numbers in their names.

    What the wildcards stand for, or, in folders, the name without its suffix, says which files belong together. Raises
    VolumeError where a pattern matches nothing, or files are left over.
    """
    if not any(is_set(path) for path in entry.values()):
        return [dict(entry)]
    found = {name: _matches(path) for name, path in entry.items()}
    (first, images), *others = found.items()
    for name, files in others:
        _refuse_left_over(entry, (first, images), (name, files))
    return [{name: files[key] for name, files in found.items()} for key in images]


def refuse_own_place(output: Path, inputs: Iterable[Path]) -> None:
    """Raise VolumeError where an output of a set has the place of an input, which would count as written already."""
    for file in inputs:
        if output.resolve() == file.resolve():
            raise VolumeError(
                f"{file} is read, and what is made of it would lie there: name another folder"
            )


def _matches(path: Path) -> dict[Key, Path]:
    if not is_set(path):
        return {(): path}
    found = _members(path) if path.is_dir() else _named(path)
    if not found:
        raise VolumeError(f"no file is named {path}")
    return dict(sorted(found.items(), key=lambda item: [by_number(part) for part in item[0]]))


def _members(folder: Path) -> dict[Key, Path]:
    """Return the volumes in a folder by their names without suffixes; none in a folder of chunks, or of planes."""
    if folder.suffix.lower() in (".zarr", ".n5") or any((folder / it).exists() for it in _ARRAYS):
        return {}
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    if any(name.lower().endswith(PLANES) for name in names):
        return {}
    # The longest of the suffixes that fit: .nii.gz, not .gz.
    ends = sorted(VOLUMES, key=len, reverse=True)
    pairs = ((name, next((e for e in ends if name.lower().endswith(e)), "")) for name in names)
    kept = [(name, end) for name, end in pairs if end and len(name) > len(end)]
    found: dict[Key, Path] = {(name[: -len(end)],): folder / name for name, end in kept}
    if len(found) < len(kept):
        raise VolumeError(f"{folder} holds files of one name and several suffixes; name a pattern")
    return found


def _named(pattern: Path) -> dict[Key, Path]:
    """Return the files of a pattern by what its wildcards stand for."""
    text = str(pattern)
    try:
        match = re.compile(_expression(text), re.DOTALL)
    except re.error as error:
        raise VolumeError(f"{pattern} is no pattern: {error}") from error
    found = {}
    # Path.glob finds hidden files too.
    for name in glob.glob(text, recursive=True):  # noqa: PTH207
        if parts := match.fullmatch(name):
            found[tuple(part or "" for part in parts.groups())] = Path(name)
    return found


def _expression(pattern: str) -> str:
    made, place = "", 0
    for wild in _WILD.finditer(pattern):
        made += re.escape(pattern[place : wild.start()])
        if wild["deep"]:
            made += "((?:[^/]+/)*)"
        elif wild["star"]:
            made += "([^/]*)"
        elif wild["one"]:
            made += "([^/])"
        else:
            some = wild["some"].replace("\\", r"\\").replace("^", r"\^")
            made += f"([{'^' if wild['not'] else ''}{some}])"
        place = wild.end()
    return made + re.escape(pattern[place:])


def _refuse_left_over(
    entry: Entry,
    images: tuple[tuple[str, str], Mapping[Key, Path]],
    others: tuple[tuple[str, str], Mapping[Key, Path]],
) -> None:
    (first, named), (name, files) = images, others
    missing = [path for key, path in named.items() if key not in files]
    extra = [path for key, path in files.items() if key not in named]
    if not missing and not extra:
        return
    what, other = _role(first), _role(name)
    said = [f"{what} {entry[first]} names {len(named)}, {other} {entry[name]} {len(files)}"]
    if missing:
        said.append(f"no {other} for {_listed(missing)}")
    if extra:
        said.append(f"no {what} for {_listed(extra)}")
    raise VolumeError(
        f"{'; '.join(said)}. Files belong together whose names have the same parts where the wildcards stand, such as "
        "image: train/*_raw.tif with labels: train/*_labels.tif"
    )


def _role(name: tuple[str, str]) -> str:
    role, node = name
    return f"{role} of {node}" if node else role


def _listed(paths: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in paths[:SHOWN])
    return f"{names} and {len(paths) - SHOWN} more" if len(paths) > SHOWN else names


def by_number(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key: the name cut into words and numbers, numbers by size."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]
