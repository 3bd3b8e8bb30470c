"""Direct convolution with few channels on one side against float64 references."""

import few_cases
import numpy as np
import pytest
from direct_cases import Case
from few_cases import (
    check_few_data_gradient,
    check_few_forward,
    check_few_gradient,
    check_few_spread,
)
from znnpy_kernels.direct.few_channels import FEW, few_kernel
from znnpy_kernels.direct.few_channels_one_tap import KERNELS
from znnpy_kernels.direct.few_channels_spread import MOST
from znnpy_kernels.simd.lanes import LANES

MANY = (1, 3, 16, 17, 33, 40)


def layer(rng: np.random.Generator, inputs: int, outputs: int, **more) -> Case:
    """A layer of random extents."""
    taps, sparsity = (tuple(int(n) for n in rng.integers(1, top, 3)) for top in (5, 4))
    z, y = (int(n) for n in rng.integers(1, 5, 2))
    size = (z, y, int(rng.integers(1, 40)))
    return Case(inputs, outputs, size, taps, **{"sparsity": sparsity, **more})


@pytest.mark.parametrize("few", range(1, FEW + 1))
@pytest.mark.parametrize("slope", [1.0, 0.0, 0.1])
def test_forward(few, slope):
    rng = np.random.default_rng(few)
    case = layer(rng, int(rng.choice(MANY)), few)
    check_few_forward(case, rng, slope, accumulate=bool(few % 2))


@pytest.mark.parametrize("width", range(1, 34))
def test_forward_at_every_width(width):
    case = Case(17, 1 + width % 3, (1, 2, width), (1, 2, 2))
    check_few_forward(case, np.random.default_rng(width))


@pytest.mark.parametrize("few", [1, 2, FEW])
def test_one_tap_has_the_bits_of_any_taps(monkeypatch, few):
    cases = [
        Case(inputs, few, (2, 3, width), (1, 1, 1))
        for inputs in (1, LANES, 2 * LANES + 1, 4 * LANES)
        for width in (1, LANES - 1, LANES, 3 * LANES + 5)
    ]
    found: list[list[bytes]] = []
    for kernel in (few_kernel, lambda outputs: KERNELS[outputs - 1]):
        monkeypatch.setattr(few_cases, "few_kernel", kernel)
        rng = np.random.default_rng(few)
        found.append(
            [
                check_few_forward(case, rng, (1.0, 0.0, 0.1)[number % 3], number % 2 == 1).tobytes()
                for number, case in enumerate(cases)
            ]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("few", range(1, FEW + 1))
@pytest.mark.parametrize("slope", [1.0, 0.0, 0.1])
def test_data_gradient(few, slope):
    rng = np.random.default_rng(few)
    check_few_data_gradient(layer(rng, few, int(rng.choice(MANY))), rng, slope)


@pytest.mark.parametrize("sparsity", [(1, 1, 9), (5, 7, 40), (1, 6, 15)])
def test_data_gradient_with_sparsity_beyond_the_image(sparsity):
    case = Case(1, 3, (2, 3, 17), (2, 2, 3), sparsity=sparsity)
    check_few_data_gradient(case, np.random.default_rng(3))


@pytest.mark.parametrize("few", range(1, MOST + 1))
@pytest.mark.parametrize("seed", range(5))
def test_spread(few, seed):
    rng = np.random.default_rng(10 * seed + few)
    stride = (*(int(n) for n in rng.integers(1, 4, 2)), int(rng.integers(2, 5)))
    case = layer(rng, few, int(rng.choice(MANY)), stride=stride)
    crop = tuple(int(rng.integers((n + 1) // 2)) for n in case.source_size)
    check_few_spread(case, rng, (1.0, 0.0, 0.1)[seed % 3], crop)


@pytest.mark.parametrize("width", range(1, 60))
def test_spread_at_every_width(width):
    few = 1 + width % MOST
    case = Case(few, 17, (2, 3, width), (3, 3, 3), stride=(2, 2, 2))
    check_few_spread(case, np.random.default_rng(width), crop=(1, 1, 1))


@pytest.mark.parametrize("few", range(1, FEW + 1))
@pytest.mark.parametrize("seed", range(2))
def test_weight_gradient_of_few_outputs(few, seed):
    rng = np.random.default_rng(10 * seed + few)
    stride = tuple(int(n) for n in rng.integers(1, 4, 3)) if seed else (1, 1, 1)
    check_few_gradient(layer(rng, int(rng.choice(MANY)), few, stride=stride), rng, True)


@pytest.mark.parametrize("taps", range(1, 10))
@pytest.mark.parametrize("inputs", [1, 3])
def test_weight_gradient_of_few_inputs(taps, inputs):
    rng = np.random.default_rng(taps)
    case = layer(rng, inputs, int(rng.choice(MANY)))
    sparsity, size = (*case.sparsity[:2], 1), (*case.taps[:2], taps)
    stride = tuple(int(n) for n in rng.integers(1, 3, 3)) if inputs > 1 else (1, 1, 1)
    case = Case(inputs, case.outputs, case.size, size, sparsity=sparsity, stride=stride)
    check_few_gradient(case, rng, False)
