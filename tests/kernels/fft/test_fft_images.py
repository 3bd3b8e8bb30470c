"""Images to spectra and back against scipy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from fft_layout import Floats, blocked, frequencies, planar, random, spectra, steps, to_spectra
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.fft.images import image_spectra, spectra_images
from znnpy_kernels.machine.guards import address, unguarded
from znnpy_kernels.simd.lanes import LANES

from znnpy.network.types import Triple
from znnpy.plan.fftw import plan_forward, plan_inverse

SIZES = [
    ((8, 8, 8), (8, 8, 8)),
    ((9, 10, 12), (7, 8, 11)),
    ((1, 15, 14), (1, 11, 13)),
    ((5, 1, 7), (4, 1, 7)),
    ((4, 6, 1), (3, 5, 1)),
    ((20, 12, 33), (12, 12, 2)),
]


def expected(images: Floats, grid: Triple) -> np.ndarray:
    return scipy.fft.rfftn(images.astype(np.float64), grid, axes=(1, 2, 3))


@pytest.mark.parametrize(("grid", "image"), SIZES)
def test_spectra_of_lanes_equal_scipy(grid: Triple, image: Triple) -> None:
    images = random(LANES + 3, *image)
    plan = plan_forward(grid, image)
    rows = to_spectra(images, plan)
    np.testing.assert_allclose(frequencies(rows, plan), expected(images, grid), atol=1e-4)


@pytest.mark.parametrize(("grid", "image"), SIZES)
def test_padding_of_spectra_is_zero(grid: Triple, image: Triple) -> None:
    plan = plan_forward(grid, image)
    rows = to_spectra(random(2, *image), plan)
    kept = rows[:, : grid[0] * grid[1] * plan.row].reshape(2, -1, plan.row)
    assert not kept[..., 2 * (grid[2] // 2 + 1) :].any()
    assert not rows[:, grid[0] * grid[1] * plan.row :].any()


def test_spectra_of_planar_images_with_gaps() -> None:
    tensor = random(3, 6, 9, 11)
    images = tensor[:, :5, :7, :8]
    plan = plan_forward((6, 8, 10), (5, 7, 8))
    rows = spectra(3, plan)
    channel, z, y, x = steps(images)
    image_spectra.run(
        source=images, source_z=z, source_y=y, source_x=x, source_channel=channel,
        target=rows, target_channel=plan.floats, channels=3, plan=unguarded(plan.address),
    )  # fmt: skip
    np.testing.assert_allclose(frequencies(rows, plan), expected(images, (6, 8, 10)), atol=1e-4)


@pytest.mark.parametrize(("add", "pad"), [(0, 0), (1, 0), (0, LANES - 4)])
@pytest.mark.parametrize(("grid", "image"), SIZES)
def test_images_come_back_pad_lanes_are_zero_and_nothing_else_is_written(
    grid: Triple, image: Triple, add: int, pad: int
) -> None:
    images = random(3, *grid)
    rows = to_spectra(images, plan_forward(grid))
    plan = plan_inverse(grid, image)
    tensor = blocked(random(LANES, *(size + 1 for size in image), seed=1))
    before = tensor.copy()
    _, z, y, x, lane = steps(tensor)
    spectra_images.run(
        source=rows, source_channel=plan.floats, target=address(tensor) + 4 * lane,
        target_z=z, target_y=y, target_x=x, target_channel=lane, channels=3, pad=pad,
        add=add, plan=unguarded(plan.address),
    )  # fmt: skip
    wanted = planar(before, LANES).copy()
    crop = (slice(1, 4), *(slice(size) for size in image))
    wanted[crop] = images[:, : image[0], : image[1], : image[2]] + add * wanted[crop]
    wanted[4 : 4 + pad, *crop[1:]] = 0
    found = planar(tensor, LANES)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    found[crop] = wanted[crop]
    np.testing.assert_array_equal(found, wanted)


def test_nan_spreads_over_the_spectrum() -> None:
    images = random(1, 4, 6, 8)
    images[0, 1, 2, 3] = np.nan
    plan = plan_forward((4, 6, 8))
    assert np.isnan(frequencies(to_spectra(images, plan), plan)).all()


@examples(15)
@given(st.tuples(*[st.integers(1, 13)] * 3), st.tuples(*[st.integers(0, 4)] * 3))
def test_any_size(image: Triple, more: Triple) -> None:
    grid = (image[0] + more[0], image[1] + more[1], image[2] + more[2])
    plan = plan_forward(grid, image)
    images = random(2, *image)
    rows = to_spectra(images, plan)
    np.testing.assert_allclose(frequencies(rows, plan), expected(images, grid), atol=1e-4)
