"""Filters of three taps along x on few planar images: float64 references, and the bits of all filters' kernel."""

import direct_cases
import numpy as np
import pytest
from direct_cases import Case, check_forward
from znnpy_kernels.direct.planar_source import KERNELS
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.parametrize("taps", [(1, 3, 3), (3, 1, 3), (2, 2, 3)])
@pytest.mark.parametrize("inputs", [1, 3])
def test_forward(monkeypatch, taps, inputs):
    cases = [
        Case(inputs, 2 * LANES + 3, (2, 3, width), taps, (1, 1, 1), (2, 2, 1), planar=True)
        for width in (*range(1, 8), 15, 29)
    ]
    found = []
    for kernel in (direct_cases.forward_kernel, lambda blocks, _: KERNELS[blocks - 1]):
        monkeypatch.setattr(direct_cases, "forward_kernel", kernel)
        rng = np.random.default_rng(inputs)
        found.append(
            [
                check_forward(case, rng, accumulate=number % 2 == 1, slope=(0.0, 0.1)[number % 2])
                for number, case in enumerate(cases)
            ]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
