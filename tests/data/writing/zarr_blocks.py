"""A small Zarr image that is written block by block."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.zarr_output import ZarrOutput

DATA = np.random.default_rng(0).normal(size=(2, 5, 6, 7)).astype(np.float32)
PLACE = {
    "resolution": [40.0, 8.0, 4.0],
    "offset": [0.0, -8.0, 12.0],
    "offsets": [[-1, 0, 0], [0, -2, 0]],
    "first_class": 3,
}
Triple = tuple[int, int, int]


def spec(job: object = "one", block: Triple = (3, 2, 4)) -> OutputSpec:
    return OutputSpec(DATA.shape, DATA.dtype, block, PLACE, {"weights": job})


def part(lower: Triple, upper: Triple) -> np.ndarray:
    return DATA[(slice(None), *(slice(a, b) for a, b in zip(lower, upper, strict=True)))]


def writer(path: Path, overwrite: bool = False, **named: object) -> ZarrOutput:
    made = open_output(Destination(path, "", overwrite), spec(**named))  # type: ignore[arg-type]
    assert isinstance(made, ZarrOutput)
    return made


def fill(out: ZarrOutput, count: int | None = None) -> None:
    left = [region for region in reversed(out.spec.blocks()) if region not in out.done]
    for lower, upper in left[:count]:
        out.write(lower, part(lower, upper))
