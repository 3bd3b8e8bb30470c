"""Filters of one tap, forward and data gradient, against float64 references."""

from dataclasses import replace

import direct_cases
import numpy as np
import pytest
from direct_cases import Case, check_data_gradient, check_forward
from znnpy_kernels.direct.one_tap import KERNELS
from znnpy_kernels.simd.lanes import LANES


@pytest.fixture(autouse=True, params=[0, 1])
def own_kernels(monkeypatch, request):
    """Rows one behind the other, which are one run, and with gaps."""
    monkeypatch.setattr(direct_cases.Tensor, "gap", request.param)
    monkeypatch.setattr(direct_cases, "forward_kernel", lambda blocks, _: KERNELS[blocks - 1])


@pytest.mark.parametrize("width", [*range(1, 16), 29, 64])
def test_every_width(width):
    case = Case(LANES + 3, 3 * LANES - 2, (2, 3, width), (1, 1, 1))
    check_forward(case, np.random.default_rng(width))


@pytest.mark.parametrize("inputs", [1, LANES - 1, LANES, 3 * LANES, 3 * LANES + 1])
@pytest.mark.parametrize("slope", [None, 1.0, 0.0, 0.1])
def test_channels_and_functions(inputs, slope):
    case = Case(inputs, 2 * LANES + 1, (2, 5, 9), (1, 1, 1))
    rng = np.random.default_rng(inputs)
    check_forward(case, rng, slope=slope)
    check_forward(case, rng, accumulate=True, slope=slope)
    check_data_gradient(case, rng, slope=slope)


@pytest.mark.parametrize("steps", [(2, 2, 2), (1, 2, 2), (3, 1, 1), (1, 1, 4)])
@pytest.mark.parametrize("outputs", [LANES, 2 * LANES + 3])
def test_lattices_of_one_tap(steps, outputs):
    rng = np.random.default_rng(outputs)
    case = Case(LANES + 2, outputs, (2, 3, 7), steps, steps)
    check_data_gradient(case, rng, slope=0.1)
    check_data_gradient(replace(case, before=tuple(step // 2 for step in steps)), rng)
