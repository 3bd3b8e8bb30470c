"""Places of warped voxels against NumPy's; nearest voxels whole."""

from __future__ import annotations

import numpy as np
from znnpy_kernels.data.warping import affine_places, bend_places, nearest_voxels

RANDOM = np.random.default_rng(0)


def test_a_matrix_moves_places_about_a_centre() -> None:
    z, y, x = (RANDOM.uniform(-50, 50, n) for n in (3, 5, 18))
    numbers, found = RANDOM.standard_normal((4, 3)), np.zeros((3, 4, 5, 18))
    affine_places.run(found, 4 * 5 * 18, numbers, z, 3, y, 5, x, 18)
    places = np.stack(np.meshgrid(z, y, x, indexing="ij")) - numbers[3].reshape(3, 1, 1, 1)
    wanted = np.einsum("ab,bzyx->azyx", numbers[:3], places) + numbers[3].reshape(3, 1, 1, 1)
    np.testing.assert_allclose(found[:, :3], wanted, rtol=1e-12, atol=1e-12)
    assert not found[:, 3].any()


def test_displacements_are_weighed_sums_along_each_axis() -> None:
    shape, sizes = (3, 5, 18), (4, 3, 6)
    control, before = RANDOM.standard_normal(sizes), RANDOM.standard_normal(shape)
    points = [RANDOM.integers(0, n, (m, 4)) for m, n in zip(shape, sizes, strict=True)]
    weights = [RANDOM.random((m, 4)) for m in shape]
    dense = [np.zeros((m, n)) for m, n in zip(shape, sizes, strict=True)]
    for table, index, weight in zip(dense, points, weights, strict=True):
        np.add.at(table, (np.arange(len(index))[:, None], index), weight)
    found, room = before.copy(), np.empty((sizes[1] + 1, sizes[2]))
    spans = np.array([[0, 18]] * 6)
    spans[2] = 3, 11
    dense[2][:3, 2] = dense[2][11:, 2] = 0
    basis = np.ascontiguousarray(dense[2].T)
    bend_places.run(
        found, *shape, control, *sizes, np.concatenate(points[:2]), np.concatenate(weights[:2]), spans, basis, room
    )  # fmt: skip
    wanted = before + np.einsum("abc,za,yb,xc->zyx", control, *dense)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_the_nearest_voxels_are_numbered_in_their_array() -> None:
    lower = np.array([[-9], [1 << 40], [7]])
    beside = RANDOM.uniform(0, 4.499, (3, 50))
    beside[:, :3] = 0.5, 1.49, 3
    places = lower + beside
    found = np.empty(50, np.int64)
    nearest_voxels.run(found, places, 50, -9, 1 << 40, 7, 5, 6)
    wanted = np.floor(places + 0.5).astype(np.int64) - lower
    np.testing.assert_array_equal(found, np.ravel_multi_index(tuple(wanted), (5, 5, 6)))
    assert found[:3].tolist() == [37, 37, 3 * 37]
