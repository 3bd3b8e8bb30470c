"""Direct weight gradient against float64 references."""

import direct_cases
import numpy as np
import pytest
from direct_cases import Case, check_earlier_sums, check_weight_gradient, random_case
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.quick(5)
@pytest.mark.parametrize("seed", range(30))
def test_weight_gradient_on_random_layers(seed):
    rng = np.random.default_rng(seed)
    check_weight_gradient(random_case(rng), rng)


@pytest.mark.parametrize("seed", range(12))
def test_weight_gradient_on_planar_sources(seed):
    rng = np.random.default_rng(seed)
    check_weight_gradient(random_case(rng, planar=True), rng)


@pytest.mark.parametrize("inputs", range(1, 18))
def test_weight_gradient_for_every_number_of_inputs(inputs):
    case = Case(inputs, 33, (2, 2, inputs), (1, 2, 2))
    check_weight_gradient(case, np.random.default_rng(inputs))


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("inputs", [3, 17])
def test_sums_of_others_are_added_in_turn(count, inputs):
    check_earlier_sums(Case(inputs, 36, (2, 1, 3), (1, 2, 2)), count, np.random.default_rng(count))


@pytest.mark.parametrize("around", [(1, 1), (0, 2), (2, 0), (3, 1)])
@pytest.mark.parametrize("planar", [False, True])
def test_products_with_known_zeros_are_left_out(around, planar):
    """Some taps see nothing else."""
    case = Case(3, 33, (4, 3, 5), (5, 3, 2), sparsity=(1, 2, 1), planar=planar)
    check_weight_gradient(case, np.random.default_rng(7), around)


@pytest.mark.parametrize("size", [(2, 20, 17), (9, 5, 12), (3, 3, 100), (1, 1, 2)])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_that_a_near_cache_holds(monkeypatch, size, stride):
    """A slab goes through the taps of a row in parts: rows of a plane, whole planes, or all of it."""
    monkeypatch.setattr(direct_cases, "cuts", lambda length, _: [(0, length)])
    case = Case(2 * LANES + LANES // 2, 2 * LANES, size, (2, 2, 3), (stride,) * 3)
    around = (1, 0) if stride == 1 else (0, 0)  # zeros are left out where there is no stride
    check_weight_gradient(case, np.random.default_rng(size[1]), around)
