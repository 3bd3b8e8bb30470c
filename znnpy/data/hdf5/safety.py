"""Opens datasets of untrusted HDF5 files: refuses links and storage in other files, filters, types, sizes.

HDF5 follows external links, external storage and virtual datasets into other files by itself. Each
component of a path must be a hard link here, and the dataset must keep its data in its own file.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from znnpy.data.hdf5.axis_tags import axes_of
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import CHUNK_LIMIT, COMPRESSION, SEARCHED, SMALL, Trust
from znnpy.errors import VolumeError

FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
# Read only when asked for by name: the first are HDF5's own, but nobody looks at what they decode to; all others are
# plug-ins.
MORE_FILTERS = {
    "szip": 4,
    "nbit": 5,
    "scaleoffset": 6,
    "bzip2": 307,
    "blosc": 32001,
    "lz4": 32004,
    "bitshuffle": 32008,
    "zfp": 32013,
    "zstd": 32015,
    "sz": 32017,
    "sz3": 32024,
    "blosc2": 32026,
    "sperr": 32028,
}
_BUILT_IN = (4, 5, 6)  # szip, nbit, scaleoffset: they need no plug-in
_PLUGINS = 'pip install "znnpy[hdf5]", which brings hdf5plugin'
_NO_SZIP = "this build of h5py has none, write the file with another compression"


def open_file(path: Path) -> h5py.File:
    """Open a file read-only and without a file lock, so that any number of processes may read at once."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag values" in str(error):  # HDF5 wants all handles of a process alike
            return _opened_again(path)
        raise VolumeError(
            f"{path}: the HDF5 file cannot be opened, it is truncated or damaged ({_reason(error)})"
        ) from error


def _opened_again(path: Path) -> h5py.File:
    """Open a file that this process, a notebook for instance, has open with a lock."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise VolumeError(
            f"{path}: this process has the HDF5 file open in another way; close it there ({_reason(error)})"
        ) from error


def find_dataset(
    file: h5py.File, path: Path, dataset: str | None, names: Sequence[str], allow_external: bool
) -> h5py.Dataset:
    """Return the dataset asked for, or the first of `names`, or the only 3-D one (4-D, 2-D); else raise VolumeError."""
    if dataset is not None:
        return _walk(file, path, dataset, allow_external)
    for name in names:
        if _exists(file, name):
            return _walk(file, path, name, allow_external)
    found = _datasets(file)
    by_axes = {count: [n for n, axes in found if axes == count] for count in (2, 3, 4)}
    candidates = by_axes[3] or by_axes[4] or by_axes[2]
    if len(found) == 1 and axes_of(file[found[0][0]], found[0][0]) is not None:
        candidates = [found[0][0]]  # of any number of axes
    if len(candidates) == 1:
        return _walk(file, path, candidates[0], allow_external)
    raise VolumeError(f"{path}: {_ambiguous(found, candidates, names)}")


def check_dataset(
    data: h5py.Dataset, name: str, path: Path, trust: Trust, *, labels: bool = False
) -> None:
    """Refuse anything but a plain array of 2 to 4 axes (of `labels` also 1-D) of numbers of plausible size."""
    _check_axes(data, name, labels)
    _check_type(data, name)
    if not trust.external:
        _check_storage(data, name)
    _check_filters(data, name, trust)
    _check_size(data, name, path, trust)


def other_files(data: h5py.Dataset, path: Path) -> list[Path]:
    """Return the files beside `path` that a dataset's values come from; links may have led into one."""
    properties = data.id.get_create_plist()
    names = [data.file.filename]
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        names += [source.file_name for source in data.virtual_sources() if source.file_name != "."]
    elif properties.get_layout() == h5py.h5d.CONTIGUOUS:
        outside = range(properties.get_external_count())
        names += [_text(properties.get_external(index)[0]) for index in outside]
    places = {Path(names[0]).parent / name for name in names}
    return sorted(place for place in places if place.resolve() != path.resolve())


def _walk(file: h5py.File, path: Path, dataset: str, allow_external: bool) -> h5py.Dataset:
    here: Any = file
    done: list[str] = []
    for part in [p for p in dataset.split("/") if p not in ("", ".")]:
        here = _step(here, part, path, "/".join(done), dataset, allow_external)
        done.append(part)
    if not isinstance(here, h5py.Dataset):
        known = ", ".join(f"{n} ({axes}-D)" for n, axes in _datasets(file)) or "none"
        raise VolumeError(
            f"{path}:{dataset} is not a dataset but a {type(here).__name__.lower()}; "
            f"datasets in the file: {known}"
        )
    return here


def _step(group: Any, part: str, path: Path, done: str, dataset: str, allow_external: bool) -> Any:
    if not isinstance(group, h5py.Group):
        raise VolumeError(f"{path}:{dataset} does not exist: {done} is not a group")
    link = group.get(part, getlink=True) if part in _keys(group) else None
    if link is None:
        raise VolumeError(_missing(group.file, path, dataset))
    if not isinstance(link, h5py.HardLink) and not allow_external:
        kind = "an external link" if isinstance(link, h5py.ExternalLink) else "a soft link"
        raise VolumeError(
            f"{path}:{dataset}: {part} is {kind}, which may lead into another file; refused. Name "
            "the real dataset, or set data.allow_external_links if you trust the file"
        )
    try:
        return group[part]
    except (KeyError, OSError, RuntimeError) as error:
        raise VolumeError(f"{path}:{dataset} cannot be opened ({_reason(error)})") from error


def _keys(group: h5py.Group) -> set[str]:
    return set(group.keys())


def _exists(file: h5py.File, name: str) -> bool:
    here: Any = file
    for part in name.split("/"):
        if not isinstance(here, h5py.Group) or part not in _keys(here):
            return False
        if not isinstance(here.get(part, getlink=True), h5py.HardLink):
            return True
        here = here[part]
    return isinstance(here, h5py.Dataset)


def _datasets(file: h5py.File) -> list[tuple[str, int]]:
    """Return names and numbers of axes of all datasets; HDF5's own visit follows hard links only, each object once."""
    names: list[str] = []

    def note(name: str) -> bool | None:
        names.append(name)
        return True if len(names) >= SEARCHED else None

    file.visit(note)
    objects = ((name, file[name]) for name in names)
    return [(name, item.ndim) for name, item in objects if isinstance(item, h5py.Dataset)]


def dataset_names(file: h5py.File) -> list[str]:
    """Return the full names of the datasets in a file; links are not followed."""
    return [name for name, _ in _datasets(file)]


def _missing(file: h5py.File, path: Path, dataset: str) -> str:
    names = dataset_names(file)
    close = difflib.get_close_matches(dataset.strip("/"), names, 1, 0.5)
    hint = f"did you mean {close[0]}? It holds" if close else "it holds"
    return f"{path} has no dataset {dataset}; {hint}: {', '.join(names[:20]) or 'none'}"


def _ambiguous(found: list[tuple[str, int]], candidates: list[str], names: Sequence[str]) -> str:
    if not found:
        return "the file holds no dataset"
    listed = ", ".join(candidates[:20]) or ", ".join(f"{n} ({axes}-D)" for n, axes in found[:20])
    what = "several datasets could be meant" if candidates else "no dataset has 2 to 4 axes"
    advice = f"Name one as FILE:DATASET (without a name, {', '.join(names)} are tried)"
    return f"{what}: {listed}. {advice}"


def _check_axes(data: h5py.Dataset, name: str, labels: bool) -> None:
    if data.shape is not None and axes_of(data, name) is not None:
        return
    if data.shape is None or data.ndim not in ((1, 2, 3, 4) if labels else (2, 3, 4)):
        each = ", or 1 (number): a label for each image" if labels else ""
        raise VolumeError(
            f"{name} has {data.ndim} axes, shape {data.shape}; expected 3 (z, y, x), 4 (c, z, y, x) or 2 (y, x)"
            f"{each}"
        )


def _check_type(data: h5py.Dataset, name: str) -> None:
    try:
        kind = data.dtype.kind
    except TypeError as error:  # such as integers of 3 bytes
        raise VolumeError(
            f"{name} has a type of {data.id.get_type().get_size()} bytes that NumPy does not know "
            f"({error}); expected integers of 1, 2, 4 or 8 bytes, or floats of 2, 4 or 8"
        ) from error
    if kind not in "uifb" or data.dtype.itemsize > 8:
        what = "a compound type" if data.dtype.names else "no type of plain numbers"
        raise VolumeError(
            f"{name} has {what} ({data.dtype}); expected integers or floats of at most 64 bits"
        )


def _check_storage(data: h5py.Dataset, name: str) -> None:
    properties = data.id.get_create_plist()
    outside = None
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        outside = "is a virtual dataset, which reads other files"
    elif properties.get_layout() == h5py.h5d.CONTIGUOUS and properties.get_external_count():
        outside = f"keeps its data in another file ({_text(properties.get_external(0)[0])})"
    if outside:
        raise VolumeError(
            f"{name} {outside}; refused. Set data.allow_external_links if you trust the file"
        )


def _check_filters(data: h5py.Dataset, name: str, trust: Trust) -> None:
    properties = data.id.get_create_plist()
    allowed = {MORE_FILTERS.get(wanted) for wanted in trust.filters}
    for index in range(properties.get_nfilters()):
        code, _, _, label = properties.get_filter(index)
        if code in FILTERS:
            continue
        known = {number: wanted for wanted, number in MORE_FILTERS.items()}.get(code)
        title = f"filter {code} ({known or _text(label) or 'unknown'})"
        if not trust.external and code not in allowed:
            keys = f"data.allow_filters: [{known}] allows it, of view and segment --allow-filter {known}; "
            why = "" if code in _BUILT_IN else ", which may load a plug-in"
            raise VolumeError(
                f"{name} is stored with {title}{why}; only {', '.join(FILTERS.values())} are read unless others are "
                f"allowed by name. {keys if known else ''}h5repack -f GZIP=4 writes a file without it"
            )
        if not _available(code):
            way = _PLUGINS if code != MORE_FILTERS["szip"] else _NO_SZIP
            raise VolumeError(f"{name} is stored with {title}, which is not installed: {way}")


def _available(code: int) -> bool:
    """Return whether a filter can be used, after loading the package hdf5plugin if it is installed."""
    if not h5py.h5z.filter_avail(code) and importlib.util.find_spec("hdf5plugin"):
        importlib.import_module("hdf5plugin")
    return bool(h5py.h5z.filter_avail(code))


def _check_size(data: h5py.Dataset, name: str, path: Path, trust: Trust) -> None:
    declared = data.dtype.itemsize * int(np.prod([float(n) for n in data.shape]))
    stored = int(data.id.get_storage_size())
    outside = trust.external and stored == 0
    if stored == 0 and declared > 0 and not outside:
        raise VolumeError(f"{name} declares {readable(declared)}, but no data was ever written")
    size = path.stat().st_size
    limit = max(SMALL, COMPRESSION * size) if trust.max_bytes is None else trust.max_bytes
    if declared > limit and not (outside and trust.max_bytes is None):
        raise VolumeError(
            f"{name} declares {readable(declared)} of data, shape {data.shape}, in a file of "
            f"{readable(size)}; at most {readable(limit)} are accepted"
        )
    if data.chunks and data.dtype.itemsize * np.prod([float(n) for n in data.chunks]) > CHUNK_LIMIT:
        raise VolumeError(
            f"{name} is stored in chunks of shape {data.chunks}; at most {readable(CHUNK_LIMIT)} a "
            "chunk are accepted"
        )


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _reason(error: BaseException) -> str:
    return str(error).strip("'\"")
