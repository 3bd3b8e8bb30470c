"""Folders of chunks (Zarr, N5, precomputed), on this machine or elsewhere: JSON files and chunks by their keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from znnpy.data.local_chunks import LocalChunks
from znnpy.data.remote_chunks import RemoteChunks
from znnpy.dataset_path import address
from znnpy.errors import VolumeError

METADATA_LIMIT = 16 << 20  # bytes of a JSON file, which is read whole


class ChunkFolder:
    """A folder that holds arrays in chunks, a path or an address such as https://; any number of threads may read.

    `title`, `marks`, `external` as in `LocalChunks`, whose methods are these.
    """

    def __init__(
        self, path: Path, title: str, marks: tuple[str, ...], external: bool = False
    ) -> None:
        self.path = path
        url = address(path)
        self.name, self.elsewhere = url or str(path), bool(url)
        self._chunks: LocalChunks | RemoteChunks = (
            RemoteChunks(url, marks) if url else LocalChunks(path, title, marks, external)
        )

    def read(self, key: str, limit: int, start: int = 0, size: int | None = None) -> bytes | None:
        """Return bytes of a file from `start` (from its end if negative); None where there is none."""
        return self._chunks.read(key, limit, start, size)

    def json(self, key: str) -> dict[str, Any] | None:
        """Return a JSON object; None where there is no file, VolumeError if it is anything else."""
        data = self.read(key, METADATA_LIMIT)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise VolumeError(f"{self.name}/{key} is damaged: no JSON ({error})") from error
        if not isinstance(found, dict):
            raise VolumeError(f"{self.name}/{key} is damaged: expected a JSON object")
        return found

    def stored(self, path: str, enough: float) -> float:
        """Return the bytes of the files below a path, counted until they are `enough`; elsewhere as many as that."""
        return self._chunks.stored(path, enough)

    def see_chunks(self, path: str, levels: int) -> None:
        """Note the files of an array's chunks, so that changes are seen; elsewhere nothing is noted."""
        self._chunks.see_chunks(path, levels)

    def verify(self, keys: Iterable[str]) -> None:
        """Check some files again: metadata, which are read once."""
        self._chunks.verify(keys)

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in one, in order; none where nobody lists them."""
        return self._chunks.folders(path)
