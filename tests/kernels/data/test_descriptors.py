"""Descriptors of objects beside sums over pairs of voxels by NumPy, with any weights; what is beside stays as it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from znnpy_kernels.data.descriptors import BOX, object_descriptors

MARGIN, SHAPE, CORE = 2, (9, 10, 14), (5, 6, 10)
PAIRS = ((0, 1), (0, 2), (1, 2))


def expected(ids: np.ndarray, weights: list[np.ndarray], sigma: np.ndarray) -> np.ndarray:
    """The definition, for `weights` (voxel of the core, voxel, power) by axis; NaN where there is no object."""
    wanted = np.full((10, *ids.shape), np.nan)
    for z, y, x in itertools.product(*map(range, CORE)):
        at = (z + MARGIN, y + MARGIN, x + MARGIN)
        if ids[at] == 0:
            continue
        own = (ids == ids[at]).astype(float)

        def moment(
            *powers: int, own: np.ndarray = own, place: tuple[int, ...] = (z, y, x)
        ) -> float:
            lines = [it[i, :, power] for it, i, power in zip(weights, place, powers, strict=True)]
            return float(np.einsum("zyx,z,y,x", own, *lines))

        unit = np.eye(3, dtype=int)
        count = moment(0, 0, 0)
        mean = np.array([moment(*row) for row in unit]) / count
        both = [[moment(*(a + b)) / count for b in unit] for a in unit]
        spread = np.array([max(both[a][a] - mean[a] ** 2, 1e-3) for a in range(3)])
        mixed = [
            (both[a][b] - mean[a] * mean[b]) / np.sqrt(spread[a] * spread[b]) / 2 + 0.5
            for a, b in PAIRS
        ]
        values = [*(mean / sigma / 2 + 0.5), *(spread / sigma**2), *mixed, count]
        wanted[(slice(None), *at)] = np.clip(values, 0, 1)
    return wanted


@pytest.mark.parametrize("seed", range(4))
def test_descriptors_are_sums_over_an_object_s_voxels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = np.kron(rng.integers(0, 4, (3, 5, 5)), np.ones((3, 2, 3), int))[..., : SHAPE[2]]
    ids[:, 0, :2] = 7  # what the core has no voxel of
    weights = []
    for core, whole in zip(CORE, SHAPE, strict=True):
        far = np.arange(whole) - (np.arange(core)[:, None] + MARGIN)
        near = rng.uniform(0.5, 1, far.shape) * (abs(far) <= 5) / 8
        weights.append(np.stack([near, near * far, near * far**2], axis=2))
    sums = np.zeros((3, SHAPE[2] + 1, CORE[2]), np.float32)
    for line, power in zip(sums, (2, 0, 1), strict=True):
        line[1:] = weights[2][..., power].cumsum(axis=1).T
    begins, runs = [0], list[tuple[int, int, int, int]]()
    for number in (7, 3, 2, 1):
        for z, y in np.ndindex(*SHAPE[:2]):
            ends = np.flatnonzero(np.diff(ids[z, y] == number, prepend=False, append=False))
            runs += [(z, y, int(a), int(b)) for a, b in ends.reshape(-1, 2)]
        begins.append(len(runs))
    sigma = np.array([2.0, 3.0, 2.5], np.float32)
    columns = SHAPE[0] * SHAPE[1] * 3 * CORE[2] + (24 + 10 * CORE[0]) * CORE[1] * CORE[2]
    room = np.full(8 * (BOX + SHAPE[0] * SHAPE[1]) + 4 * columns, 0xFF, np.uint8)  # NaN
    found = np.full((10, *SHAPE), np.nan, np.float32)
    object_descriptors.run(
        found, np.array(SHAPE), MARGIN, np.array(begins), 4, np.array(runs), sums,
        weights[1].astype(np.float32), weights[0].astype(np.float32), sigma, room,
    )  # fmt: skip
    wanted = expected(ids, weights, sigma.astype(float))
    assert np.isfinite(wanted).any()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
