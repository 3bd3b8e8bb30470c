"""Finds arrays and groups of an untrusted Zarr folder by their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from znnpy.data.chunk_folder import ChunkFolder
from znnpy.data.safety_limits import SEARCHED
from znnpy.dataset_path import address
from znnpy.errors import VolumeError

_GROUPS = ("zarr.json", ".zgroup")
MARKS = ("zarr.json", ".zarray", ".zgroup", ".zattrs")


@dataclass(frozen=True)
class Node:
    """An array or group: its path in the folder ("" for the folder itself), and the content of its JSON files."""

    path: str
    kind: Literal["array", "group"]
    form: Literal[2, 3]
    metadata: dict[str, Any]
    attributes: dict[str, Any]

    @property
    def file(self) -> str:
        """The path of its metadata."""
        name = "zarr.json" if self.form == 3 else f".z{self.kind}"
        return f"{self.path}/{name}" if self.path else name


class ZarrFolder(ChunkFolder):
    """A folder that holds a Zarr hierarchy, as `ChunkFolder`."""

    def __init__(self, path: Path, external: bool = False) -> None:
        super().__init__(path, "Zarr", MARKS, external)

    def node(self, path: str) -> Node | None:
        """Return the array or group at a path, of Zarr format 3 or else 2; None where there is none."""
        prefix = f"{path}/" if path else ""
        metadata = self.json(f"{prefix}zarr.json")
        if metadata is not None:
            return _format3(path, metadata, self.path)
        for kind in ("array", "group"):
            metadata = self.json(f"{prefix}.z{kind}")
            if metadata is not None:
                attributes = self.json(f"{prefix}.zattrs") or {}
                return Node(path, kind, 2, metadata, attributes)
        return None

    def nodes(self, path: str = "") -> Iterator[Node]:
        """Yield all arrays and groups below a path, in order of names; links to folders are not followed."""
        looked = 0
        waiting = [path]
        while waiting and looked < SEARCHED:
            looked += 1
            here = waiting.pop()
            node = self.node(here)
            if node is not None and here != path:
                yield node
            if node is None or node.kind == "group":
                names = [f"{here}/{name}" if here else name for name in self.folders(here)]
                waiting += reversed(names)


def root_of(path: Path) -> tuple[Path, str]:
    """Return the outermost Zarr group around a folder, and the folder's path within it.

    "a.zarr/0" names array 0 of a.zarr, whose metadata say how large voxels are.
    """
    if address(path):
        return path, ""
    top, inner = path.absolute(), ""
    while top.parent != top and any((top.parent / mark).is_file() for mark in _GROUPS):
        inner = f"{top.name}/{inner}".rstrip("/")
        top = top.parent
    return (top, inner) if inner else (path, "")


def is_zarr(path: Path) -> bool:
    """Return whether a folder looks like a Zarr array or group, or like groups without metadata."""
    return any((path / mark).is_file() for mark in MARKS)


def _format3(path: str, metadata: dict[str, Any], root: Path) -> Node:
    form, kind = metadata.get("zarr_format"), metadata.get("node_type")
    attributes = metadata.get("attributes", {})
    if form != 3 or kind not in ("array", "group") or not isinstance(attributes, dict):
        raise VolumeError(
            f"{root / path / 'zarr.json'} is damaged: expected zarr_format 3 and node_type array or "
            f"group, found {str(form)[:20]} and {str(kind)[:20]}"
        )
    return Node(path, kind, 3, metadata, attributes)
