"""Limits on untrusted files of any format: declared sizes, compression ratios, links, filters."""

from __future__ import annotations

from dataclasses import dataclass

# Deflate's best ratio is 1032 : 1; what declares more than this was not compressed by it.
COMPRESSION = 1100
SMALL = (
    256 << 20
)  # bytes that any file may declare, however small it is: memory for them does no harm
CHUNK_LIMIT = 1 << 30  # bytes of a chunk, which is decoded as a whole
SEARCHED = (
    10_000  # datasets that are looked through: bounds the time that a file made to harm takes
)


@dataclass(frozen=True)
class Trust:
    """Permissions of a file: to read other files, load plug-ins, declare more than is plausible.

    `external`: links, virtual datasets, external storage and any filter; `filters`: names of
    `hdf5.safety.MORE_FILTERS`; `max_bytes`: bound on the declared size, else it follows from the file's
    size.
    """

    external: bool = False
    filters: tuple[str, ...] = ()
    max_bytes: int | None = None
