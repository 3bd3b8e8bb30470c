"""Small images in files, and random damage to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import zarr

CUBE = np.random.default_rng(0).integers(0, 255, (4, 6, 8)).astype(np.uint8)
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**63, 2**64, 1e308, float("nan"), "", "/", "..", "\0", "é", [], {}, [[]],
    [0], [0, 0, 0], [-1] * 3, [2**40] * 3, {"name": "gzip"}, {"name": []}, "float64", "<f8", "|O",
]  # fmt: skip


def write_image(path: Path, form: int) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=form)  # type: ignore[arg-type]
    more: dict[str, Any] = {"shards": (4, 6, 8)} if form == 3 else {}
    made = group.create_array("0", data=CUBE, chunks=(2, 3, 4), **more)
    made.attrs.update({"resolution": [4, 4, 4], "offset": [0, 0, 0]})
    steps = [
        {"type": "scale", "scale": [4, 4, 4]},
        {"type": "translation", "translation": [0, 0, 0]},
    ]
    axes = [{"name": n, "type": "space", "unit": "nanometer"} for n in "zyx"]
    entry = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": steps}]}
    found = {"multiscales": [entry]}
    group.attrs.update(found if form == 2 else {"ome": {"version": "0.5", **found}})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Keys of all values within a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = [path] if path else []
    for key, inside in items:
        found += places(inside, (*path, key))
    return found


def mutate(metadata: dict[str, Any], choose: random.Random) -> None:
    *above, key = choose.choice(places(metadata))
    here: Any = metadata
    for step in above:
        here = here[step]
    if choose.random() < 0.2:
        del here[key]
    else:
        here[key] = choose.choice(STRANGE)


def damaged(data: bytes, choose: random.Random) -> bytes:
    """A few bytes changed, cut off, or doubled."""
    place, size = choose.randrange(len(data)), choose.choice((1, 1, 2, 4, 8))
    kind = choose.random()
    if kind < 0.15:
        return data[:place]
    if kind < 0.25:
        return data[:place] + data[place : place + size] + data[place:]
    return data[:place] + choose.randbytes(size) + data[place + size :]
