"""Objects of a small prediction, written by small tiles."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.segment.job import Request
from znnpy.segment.objects_by_blocks import write_objects
from znnpy.segment.tile_work import Settings

TILE, HALO = (16, 24, 32), 6
SETTINGS = Settings(tile=TILE, halo=HALO)
REQUEST = Request(threshold=0.5, min_size=30)


def written(
    prediction: Path, out: Path, request: Request = REQUEST, settings: Settings = SETTINGS
) -> np.ndarray:
    with open_volume(prediction, "p") as volume:
        write_objects(Destination(out, "l"), volume, request, settings)
    with h5py.File(out) as file:
        found: np.ndarray = file["l"][()]
    return found
