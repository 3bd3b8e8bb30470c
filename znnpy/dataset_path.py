"""Names of volumes, FILE or FILE:DATASET, in configs, on the command line and in calls alike; usual datasets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from znnpy.errors import VolumeError

_WITH_DATASETS = re.compile(
    r"(?P<path>.+?\.(?:h5|hdf5|hdf|zarr|n5|npz|bin))/*(?::(?P<dataset>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_URL = re.compile(r"(?P<kind>file):/+(?P<path>.*)|[a-z][a-z0-9+-]+://.*", re.IGNORECASE | re.DOTALL)
_NEUROGLANCER = re.compile(
    r"(?:precomputed|n5|zarr[23]?)://(?P<rest>[^|]+)(?:\|.*)?", re.IGNORECASE | re.DOTALL
)
_WINDOWS = re.compile(r"(?P<drive>[a-z]):[\\/](?P<path>.*)|\\\\.*", re.IGNORECASE | re.DOTALL)
_REMOTE = re.compile(
    r"(?P<scheme>https?|s3|gs):/+(?P<host>[^/:]+(?::[0-9]+)?)(?P<path>(?:/[^:]*)?)(?::(?P<dataset>.*))?",
    re.IGNORECASE | re.DOTALL,
)
RAW_NAMES = ("volumes/raw", "raw", "main")
"""Dataset names that are tried for raw images, in order."""
LABEL_NAMES = ("volumes/labels/neuron_ids", "volumes/labels", "labels", "main")
"""Dataset names that are tried for labels, in order."""


def there(path: str) -> bool:
    """Return whether a path exists, seen from the current folder; ~ is the home folder."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # such as a name that is too long
        return False


def split(text: str, exists: Callable[[str], bool] = there) -> tuple[str, str | None]:
    """Return file and dataset of a name; the dataset is None if the name has none.

    If a file of the whole name exists, it is meant. Else the name is split at the first colon after the suffix of a
    format with datasets, or after a file that exists. Empty parts and "." of a dataset's name are dropped. Raises
    VolumeError for URLs of other schemes than http, https, s3 and gs, Windows paths, empty names, and a colon without a
    dataset.
    """
    if (found := _REMOTE.fullmatch(text)) and not exists(text):
        path, dataset = (
            f"{found['scheme'].lower()}://{found['host']}{found['path']}",
            found["dataset"],
        )
    else:
        refuse_elsewhere(text, exists)
        path, dataset = _parted(text, exists)
    if dataset is None:
        return path, None
    named = "/".join(part for part in dataset.split("/") if part not in ("", "."))
    if not named.strip():
        raise VolumeError(f"{text}: no dataset is named after the colon")
    return path, named


def split_source(source: str | Path) -> tuple[Path, str | None]:
    """Return file and dataset of "path:dataset", as `split`; a Path is a file as a whole."""
    if isinstance(source, Path):
        return _expanded(source), None
    path, dataset = split(source)
    return _expanded(Path(path)), dataset


def local_path(text: str) -> Path:
    """Return a typed path with ~ expanded; raise VolumeError for what is not a path of this machine."""
    refuse_elsewhere(text)
    return _expanded(Path(text))


def as_text(name: str) -> str:
    """Return a name with bytes that are no text, as names of files may have them, as backslash escapes."""
    return name.encode(errors="backslashreplace").decode()


def joined(path: Path | str, dataset: str) -> str:
    """Return the name FILE:DATASET; dataset "" means the image of a Zarr folder itself."""
    file = address(path) or str(path)
    return f"{file}:{dataset}" if dataset else file


def address(path: Path | str) -> str | None:
    """Return the address of a volume that is read over the network, such as https://...; None for a path of a file.

    A Path holds it with one slash: https:/...
    """
    found = _REMOTE.fullmatch(str(path))
    if found is None or found["dataset"] is not None or there(str(path)):
        return None
    return f"{found['scheme'].lower()}://{found['host']}{found['path']}"


def refuse_elsewhere(text: str, exists: Callable[[str], bool] = there) -> None:
    """Raise VolumeError for names that are empty, URLs, or Windows paths."""
    if not text.strip() or text.startswith(":") or "\0" in text:
        raise VolumeError(f"{text!r} names no file")
    if exists(text):
        return
    if found := _NEUROGLANCER.fullmatch(text):
        raise VolumeError(f"{text} begins as Neuroglancer's names do: name {found['rest']}")
    if url := _URL.fullmatch(text):
        copy = f"/{url['path']}" if url["kind"] else "of a copy here, or of where it is mounted"
        raise VolumeError(
            f"{text} is a URL, and only files are read and written: name the path {copy}"
        )
    if found := _WINDOWS.fullmatch(text):
        raise VolumeError(
            f"{text} is a path of Windows, which this system does not have{_wsl(found)}"
        )


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise VolumeError(f"{path} names a home that is not known") from error


def _wsl(found: re.Match[str]) -> str:
    if not found["drive"]:
        return ""
    path = found["path"].replace("\\", "/")
    return f"; under WSL it is /mnt/{found['drive'].lower()}/{path}"


def _parted(text: str, exists: Callable[[str], bool]) -> tuple[str, str | None]:
    if ":" not in text or exists(text):
        return text, None
    if match := _WITH_DATASETS.fullmatch(text):
        return match["path"], match["dataset"]
    for colon in re.finditer(":", text):
        if exists(text[: colon.start()]):
            return text[: colon.start()], text[colon.end() :]
    return text, None
