"""The data gradient of fully connected layers, whose filters are read as they lie, against float64."""

import numpy as np
import pytest
from direct_cases import random_values
from znnpy_kernels.direct.dense_gradient import SCRATCH, dense_gradient, vectors_of
from znnpy_kernels.direct.packed_filters import pack_filters
from znnpy_kernels.simd.lanes import LANES

CASES = [
    (1, 1, 1, 8),
    (3, LANES + 1, 2, 5),
    (2 * LANES + 3, 2 * LANES, 3, 13),
    (LANES, 4 * LANES, 4, 29),
    # Several taps a vector, the last one of fewer.
    (LANES + LANES // 4, LANES + 2, 7, 15),
    (LANES // 2, 5, 3, 9),
]


def blocks_of(channels):
    return -(-channels // LANES)


@pytest.mark.parametrize(("inputs", "outputs", "taps", "samples"), CASES)
@pytest.mark.parametrize("cut", [1, 3])
def test_vectors_in_any_ranges(inputs, outputs, taps, samples, cut):
    """What is not of a task's vectors stays; lanes beyond the last input become zeros."""
    rng = np.random.default_rng(inputs)
    filters = random_values(rng, outputs, inputs, 1, 1, taps)
    given = random_values(rng, samples, outputs)
    # Lanes beyond the last output are not read.
    gradient = np.full((blocks_of(outputs) * LANES, samples), np.nan, np.float32)
    gradient[:outputs] = given.T
    gradient = np.ascontiguousarray(gradient.reshape(-1, LANES, samples).transpose(0, 2, 1))
    target = np.full((blocks_of(inputs), samples, taps, LANES), np.nan, np.float32)
    scratch, worker = np.full((2, SCRATCH), np.nan, np.float32), 1
    vectors, whole = vectors_of(inputs, taps), inputs // LANES * taps
    each = -(-taps // max(1, vectors - whole))  # taps of a vector of the last block
    for first in range(0, vectors, cut):
        last = min(vectors, first + cut)
        dense_gradient.run(
            worker=worker, gradient=gradient, gradient_block=samples * LANES, filters=pack_filters(filters),
            target=target, target_block=samples * taps * LANES, samples=samples, outputs=outputs, inputs=inputs,
            taps=taps, vector0=first, vector1=last, scratch=scratch, scratch_worker=scratch.shape[1],
        )  # fmt: skip
        done = min(last, whole) + min(taps, each * max(0, last - whole))
        assert np.isfinite(target).sum() == samples * LANES * done
    found = target.transpose(1, 0, 3, 2).reshape(samples, -1, taps)
    exact = np.einsum(
        "so,oit->sit", given.astype(np.float64), filters[:, :, 0, 0].astype(np.float64)
    )
    np.testing.assert_allclose(found[:, :inputs], exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
    assert not found[:, inputs:].any()
    assert np.isnan(scratch[0]).all()
