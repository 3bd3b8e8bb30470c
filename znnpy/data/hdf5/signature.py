"""How HDF5 files are recognised, without h5py, which takes longer to import than to ask."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FIRST = 512  # byte after a user block of the least size; each further one is twice as large


def is_hdf5(path: Path) -> bool:
    """Return whether a file has HDF5's signature where the format allows it; False where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        place = 0
        while place + len(SIGNATURE) <= size:
            file.seek(place)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            place = 2 * place or _FIRST
    return False
