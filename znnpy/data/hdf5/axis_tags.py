"""Reads the order of a dataset's axes from `axistags`, as ilastik and vigra write them."""

from __future__ import annotations

import json
from typing import Any

import h5py

from znnpy.errors import VolumeError

KEY = "axistags"
LIMIT = 1 << 16  # bytes of JSON
KNOWN = "tczyx"
USUAL = {1: "z", 2: "yx", 3: "zyx", 4: "czyx"}
"""By the number of axes, those of datasets that say nothing; of one axis there is a value for each slice."""


def axes_of(data: h5py.Dataset, name: str) -> str | None:
    """Return a letter of t, c, z, y, x for each axis of a dataset, None where it does not say them.

    Raises VolumeError for tags of other axes, and of several times.
    """
    letters = _letters(data)
    if letters is None:
        return None
    wrong = len(letters) != data.ndim or len(set(letters)) < len(letters)
    times = data.shape[letters.index("t")] if "t" in letters and not wrong else 1
    if wrong or times > 1 or not {"y", "x"} <= set(letters) <= set(KNOWN):
        raise VolumeError(
            f"{name} has axes ({', '.join(letters)}) of shape {data.shape}, by its {KEY}; expected z, y, x, with or "
            "without c, at one time"
        )
    return "".join(letters)


def _letters(data: h5py.Dataset) -> list[str] | None:
    if KEY not in data.attrs:
        return None
    attribute: Any = data.attrs.get_id(KEY)
    # Looked at before reading: an attribute may declare any size and type.
    if attribute.shape not in ((), (1,)) or attribute.get_storage_size() > LIMIT:
        return None
    try:
        text = data.attrs[KEY]
        found = json.loads(text if isinstance(text, str | bytes) else text[0])
        return [str(axis["key"]) for axis in found["axes"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
