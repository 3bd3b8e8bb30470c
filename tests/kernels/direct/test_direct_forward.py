"""Direct forward and data gradient against float64 references."""

import numpy as np
import pytest
from direct_cases import (
    Case,
    check_data_gradient,
    check_forward,
    random_case,
    random_strided,
)
from znnpy_kernels.direct.forward import gradient_halo
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.quick(10)
@pytest.mark.parametrize("seed", range(30))
def test_forward_on_random_layers(seed):
    rng = np.random.default_rng(seed)
    check_forward(random_case(rng), rng, accumulate=bool(seed % 2))


@pytest.mark.parametrize("seed", range(10))
def test_forward_on_planar_sources(seed):
    rng = np.random.default_rng(seed)
    check_forward(random_case(rng, planar=True), rng)


@pytest.mark.parametrize("width", range(1, 31))
def test_forward_at_every_width(width):
    check_forward(Case(3, 33, (1, 2, width), (1, 2, 2)), np.random.default_rng(width))


@pytest.mark.quick(10)
@pytest.mark.parametrize("seed", range(30))
def test_data_gradient_on_random_layers(seed):
    rng = np.random.default_rng(seed)
    check_data_gradient(random_case(rng, strided=False), rng)


@pytest.mark.quick(20)
@pytest.mark.parametrize("seed", range(60))
def test_data_gradient_of_strided_and_padded_layers(seed):
    rng = np.random.default_rng(seed)
    check_data_gradient(random_strided(rng), rng, slope=(None, 0.0, 0.1)[seed % 3])


@pytest.mark.parametrize("stride", [(2, 2, 2), (1, 3, 2), (4, 1, 5)])
def test_data_gradient_where_a_lattice_has_no_taps(stride):
    case = Case(18, 3, (2, 2, 19), (1, 1, 2), stride, sparsity=(1, 1, 4))
    check_data_gradient(case, np.random.default_rng(4))


@pytest.mark.parametrize("sparsity", [(1, 1, 9), (5, 7, 40), (1, 6, 15)])
def test_data_gradient_with_sparsity_beyond_the_image(sparsity):
    """Voxels between taps that no output reads have gradient 0."""
    case = Case(2, 3, (2, 3, 17), (2, 2, 3), sparsity=sparsity)
    check_data_gradient(case, np.random.default_rng(3))


def test_halo_is_no_wider_than_needed():
    assert gradient_halo(1, 5) == 0
    assert gradient_halo(3, 1) == 2
    assert gradient_halo(3, 100) < 16


def test_rows_outside_a_task_stay(monkeypatch):
    """A task writes its own rows only."""
    import direct_cases

    monkeypatch.setattr(direct_cases, "cuts", lambda length, rng: [(1, length - 1)])
    case = Case(2, 17, (4, 5, 15), (1, 1, 1))
    rng = np.random.default_rng(0)
    source = direct_cases.Tensor(2, case.source_size, case.source_lanes, np.nan)
    source.write(direct_cases.random_values(rng, 2, *case.source_size))
    filters = direct_cases.pack_filters(direct_cases.random_values(rng, 17, 2, 1, 1, 1))
    target = direct_cases.Tensor(17, case.size, direct_cases.LANES, direct_cases.GUARD)
    direct_cases.correlate(case, source, filters, (2, 17), target, rng)
    written = (target.whole() != direct_cases.GUARD).any((0, 1, 4))
    assert written.sum() == 2 * 3
    assert written[1:3, 1:4].all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_spread(special):
    check_forward(Case(1, LANES, (2, 2, 20), (1, 2, 2)), np.random.default_rng(0), special=special)


@pytest.mark.parametrize("slope", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("inputs", [2, 19])
def test_bias_and_transfer(inputs, slope):
    case = Case(inputs, 37, (2, 3, 17), (2, 2, 3))
    check_forward(case, np.random.default_rng(1), slope=slope)
    check_forward(case, np.random.default_rng(1), accumulate=True, slope=slope)


@pytest.mark.parametrize("slope", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("inputs", [2, 37])
def test_gradient_of_the_transfer_and_of_the_bias(inputs, slope):
    case = Case(inputs, 19, (2, 3, 17), (2, 2, 3))
    check_data_gradient(case, np.random.default_rng(2), slope=slope)


def test_relu_of_infinity_is_no_nan():
    case = Case(1, LANES, (1, 1, 20), (1, 1, 1))
    check_forward(case, np.random.default_rng(0), special=-np.inf, slope=0.0)
