"""Spectra of few planar images, lanes over tiles, against NumPy in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from direct_cases import GUARD, Tensor, Triple, random_values
from tile_cases import Tiling, lattice_start, near, tile_voxels, words
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.few_channel_tiles import lanes_floats, tile_lane_planes, tile_lanes
from znnpy_kernels.spectral.tile_columns import COLUMN_FLOATS, tile_columns

ONE = (1, 1, 1)
CASES = [
    (Tiling((8, 8, 8), (2, 2, 3), (6, 6, 6), (0, 0, 0), (8, 8, 8)), (14, 13, 19), 1),
    (Tiling((6, 18, 20), (3, 1, 2), (4, 14, 16), (0, 0, 0), (6, 18, 20)), (13, 17, 33), 2),
    (Tiling((1, 8, 24), (1, 5, 1), (1, 4, 20), (0, 0, 0), (1, 8, 24)), (1, 23, 21), 3),
    (Tiling((8, 1, 6), (2, 3, 2), (5, 1, 3), (0, 0, 0), (8, 1, 6)), (13, 3, 8), LANES),
    (
        Tiling((8, 6, 10), (1, 2, 2), (6, 4, 8), (0, 0, 0), (8, 6, 10), (0, 0, 0), (2, 1, 3), (1, 0, 2)),
        (14, 9, 51),
        2,
    ),
]  # fmt: skip


def spectra(
    tiling: Tiling, image: Triple, images: int, cut: int, planes: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What two tasks write, [block][frequency][re, im][lane], and the images in float64.

    `planes`: where those of tiles are cut, which are transformed along their columns afterwards.
    """
    values = random_values(np.random.default_rng(0), images, *image)
    tensor = Tensor(images, image, 1, np.nan)
    tensor.write(values)
    source, strides = lattice_start(tensor, tiling)
    blocks = -(-tiling.number // (LANES // images))
    found = np.full((blocks, int(np.prod(tiling.half)) + 1, 2, LANES), GUARD, np.float32)
    scratch = np.full(lanes_floats(tiling.size) + 16, np.nan, np.float32)
    start = -address(scratch) % 64 // 4
    given = {
        "source": source, "source_image": tensor.block, "images": images,
        **words("tiles", tiling.tiles),
        "target": found, "target_block": found[0].size, "target_frequency": 2 * LANES,
        "scratch": address(scratch) + 4 * start, "scratch_worker": 0, **words("source", strides),
        **words("step", tiling.step), **words("extent", tiling.limits(image)),
        **words("apart", ONE), **words("phases", ONE), **words("phase", ONE),
        **words("between", ONE), **words("size", tiling.size),
    }  # fmt: skip
    for first, last in ((0, cut), (cut, blocks)):
        if planes is None:
            tile_lanes.run(block0=first, block1=last, **given)
            continue
        for low, high in pairwise(planes):
            tile_lane_planes.run(block0=first, block1=last, plane0=low, plane1=high, **given)
    if planes:
        _columns(tiling, found)
    assert (found[:, -1] == GUARD).all()
    assert np.isnan(scratch[start + lanes_floats(tiling.size) :]).all()
    return found[:, :-1], values


def _columns(tiling: Tiling, found: np.ndarray) -> None:
    """Transform tiles along z in place, by two tasks."""
    z, y, x = tiling.half
    columns, scratch = y * x, np.full(COLUMN_FLOATS + 16, np.nan, np.float32)
    place = {"point": columns * 2 * LANES, "column": 2 * LANES, "vector": found[0].size}
    for low, high in ((columns // 3, columns), (0, columns // 3)):
        tile_columns.run(
            source=found, target=found, parts=LANES, points=z, vectors=len(found),
            **{f"{end}_{name}": step for end in ("source", "target") for name, step in place.items()},
            column0=low, column1=high,
            scratch=address(scratch) + -address(scratch) % 64, scratch_worker=0,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("tiling", "image", "images"), [case for case in CASES if case[0].size[0] > 1]
)
def test_planes_and_columns_apart_give_the_same_bits(
    tiling: Tiling, image: Triple, images: int
) -> None:
    whole, _ = spectra(tiling, image, images, 1)
    size = tiling.size[0]
    for planes in ([0, size], [0, 1, size // 2, size]):
        cut, _ = spectra(tiling, image, images, 1, planes)
        np.testing.assert_array_equal(cut, whole)


@pytest.mark.parametrize(("tiling", "image", "images"), CASES)
def test_lanes(tiling: Tiling, image: Triple, images: int) -> None:
    found, values = spectra(tiling, image, images, 1)
    expected = np.fft.rfftn(tile_voxels(values, tiling), axes=(2, 3, 4))
    tiles = LANES // images
    result = (found[:, :, 0] + 1j * found[:, :, 1]).transpose(0, 2, 1)
    used = result[:, : tiles * images].reshape(-1, images, *tiling.half)
    near(used[: tiling.number], expected)
    assert not used[tiling.number :].any(), "lanes beyond the last tile must be 0"
    assert not result[:, tiles * images :].any(), "lanes without an image must be 0"
