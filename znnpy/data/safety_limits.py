"""What files of unknown origin may do and declare, whatever their format."""

from __future__ import annotations

from dataclasses import dataclass

# Deflate's best ratio is 1032 : 1; what declares more than this was not compressed by it.
COMPRESSION = 1100
SMALL = 256 << 20  # bytes that any file may declare
CHUNK_LIMIT = 1 << 30  # bytes of a chunk
SEARCHED = 10_000  # datasets that are looked through


@dataclass(frozen=True)
class Trust:
    """What a file may do: read other files, load plug-ins, declare more than is plausible.

    `external`: links, virtual datasets, external storage and any filter; `filters`: names of
    `hdf5.safety.MORE_FILTERS`; `max_bytes`: bound on the declared size, else it follows from the file's
    size.
    """

    external: bool = False
    filters: tuple[str, ...] = ()
    max_bytes: int | None = None
