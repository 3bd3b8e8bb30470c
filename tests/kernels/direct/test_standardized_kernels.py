"""Standardised filters in packed order beside the float64 formula."""

import numpy as np
import pytest
from znnpy_kernels.direct.packed_filters import pack_filters, unpack_filters
from znnpy_kernels.direct.weight_standardization import standardize_filters, standardized_gradient
from znnpy_kernels.simd.lanes import LANES

EPSILON = 1e-5


@pytest.mark.parametrize("outputs", [1, LANES, LANES + 3, 2 * LANES])
def test_values_and_gradient(outputs):
    rng = np.random.default_rng(outputs)
    shape = (outputs, LANES + 5, 2, 3, 3)
    filters, gradient = rng.normal(2, 0.5, (2, *shape)).astype(np.float32)
    packed, width = pack_filters(filters), -(-outputs // LANES) * LANES
    target, sent = np.empty_like(packed), pack_filters(gradient)
    count = filters[0].size
    words = {"filters": packed, "rows": count, "width": width, "count": count}
    standardize_filters.run(target=target, epsilon=EPSILON, **words)
    standardized_gradient.run(gradient=sent, epsilon=EPSILON, **words)

    over = (1, 2, 3, 4)
    wide, by = filters.astype(np.float64), gradient.astype(np.float64)
    inverse = 1 / np.sqrt(wide.var(over, keepdims=True) + EPSILON)
    unit = (wide - wide.mean(over, keepdims=True)) * inverse
    product = (by * unit).mean(over, keepdims=True)
    wanted = inverse * (by - by.mean(over, keepdims=True) - unit * product)
    np.testing.assert_allclose(unpack_filters(target, shape), unit, atol=2e-6)
    np.testing.assert_allclose(unpack_filters(sent, shape), wanted, atol=2e-6)
