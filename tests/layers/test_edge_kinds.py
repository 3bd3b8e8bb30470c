"""Edges against SciPy, against each other as adjoints, and against cases counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_keys import drawn_keys
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from znnpy.layers.convolution import convolve, convolve_data_gradient, convolve_weight_gradient
from znnpy.layers.data_movement import dropped
from znnpy.layers.edge_kind import Applied
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.pooling import maximum, maximum_gradient
from znnpy.layers.types import Numbers

small = st.tuples(*[st.integers(1, 3)] * 3)


@st.composite
def filtering(draw):
    """Numbers of an edge, its dilation, an output shape and the input shape that it needs."""
    size, stride, dilation = draw(small), draw(small), draw(small)
    shape = draw(st.tuples(*[st.integers(1, 4)] * 3))
    edge = Numbers(size=size, stride=stride)
    counts = zip(shape, stride, size, dilation, strict=True)
    return edge, dilation, shape, tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in counts)


def dilated(filters, dilation):
    """Filters with zeros between the taps."""
    size = [(k - 1) * d + 1 for k, d in zip(filters.shape[2:], dilation, strict=True)]
    full = np.zeros((*filters.shape[:2], *size))
    full[:, :, :: dilation[0], :: dilation[1], :: dilation[2]] = filters
    return full


def strided(image, edge):
    z, y, x = edge.stride
    return image[..., ::z, ::y, ::x]


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def correlated(image, filters):
    """Where the filters lie within the image."""
    whole = ndimage.correlate(image, filters, mode="constant")
    low = [k // 2 for k in filters.shape]
    shape = [n - k + 1 for n, k in zip(image.shape, filters.shape, strict=True)]
    return whole[tuple(slice(a, a + n) for a, n in zip(low, shape, strict=True))]


@given(filtering(), st.integers(0, 9))
def test_convolve_is_scipys_correlation(case, seed):
    edge, dilation, shape, needed = case
    image, filters = drawn(seed, 2, 3, *needed), drawn(seed + 1, 4, 3, *edge.size)
    full = dilated(filters, dilation)
    got = convolve(image, Applied(edge, dilation, filters))
    assert got.shape == (2, 4, *shape)
    for b in range(2):
        for o in range(4):
            parts = [correlated(image[b, i], full[o, i]) for i in range(3)]
            np.testing.assert_allclose(got[b, o], strided(sum(parts), edge), atol=1e-12)


@given(filtering(), st.integers(0, 9))
def test_gradients_of_convolve_are_its_adjoints(case, seed):
    edge, dilation, shape, needed = case
    image, filters = drawn(seed, 2, 3, *needed), drawn(seed + 1, 4, 3, *edge.size)
    gradient = drawn(seed + 2, 2, 4, *shape)
    product = np.vdot(convolve(image, Applied(edge, dilation, filters)), gradient)
    data = convolve_data_gradient(image, gradient, Applied(edge, dilation, filters))
    weight = convolve_weight_gradient(image, gradient, Applied(edge, dilation))
    np.testing.assert_allclose(np.vdot(data, image), product, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.vdot(weight, filters), product, rtol=1e-10, atol=1e-10)


@given(filtering(), st.integers(0, 9))
def test_maximum_is_scipys_filter(case, seed):
    edge, dilation, _, needed = case
    image = drawn(seed, 1, 2, *needed)
    footprint = dilated(np.ones((1, 1, *edge.size)), dilation)[0, 0] > 0
    origin = [-((n - 1) // 2) - (n % 2 == 0) for n in footprint.shape]
    got = maximum(image, Applied(edge, dilation))
    for i in range(2):
        padded = ndimage.maximum_filter(
            image[0, i], footprint=footprint, mode="constant", cval=-np.inf, origin=origin
        )
        z, y, x = (have - n + 1 for have, n in zip(needed, footprint.shape, strict=True))
        np.testing.assert_array_equal(got[0, i], strided(padded[:z, :y, :x], edge))


@given(filtering(), st.integers(0, 9))
def test_maximum_gradient_goes_to_the_winners(case, seed):
    edge, dilation, shape, needed = case
    image, gradient = drawn(seed, 1, 2, *needed), drawn(seed + 1, 1, 2, *shape)
    got = maximum_gradient(image, gradient, Applied(edge, dilation))
    # a maximum is homogeneous, so the gradient times the image is the gradient times the maximum
    expected = np.vdot(maximum(image, Applied(edge, dilation)), gradient)
    np.testing.assert_allclose(np.vdot(got, image), expected, rtol=1e-10, atol=1e-10)


def test_first_maximum_in_zyx_order_wins():
    edge = Numbers(size=(2, 2, 2))
    image = np.zeros((1, 1, 2, 2, 2))
    image[0, 0, 0, 1, 1] = image[0, 0, 1, 0, 0] = 5.0
    got = maximum_gradient(image, np.full((1, 1, 1, 1, 1), 7.0), Applied(edge, (1, 1, 1)))
    assert got[0, 0, 0, 1, 1] == 7.0
    assert np.count_nonzero(got) == 1


def test_nan_reaches_the_output_of_a_maximum():
    edge = Numbers(size=(1, 1, 2), stride=(1, 1, 2))
    image = np.array([1.0, np.nan, 2.0, 3.0]).reshape(1, 1, 1, 1, 4)
    got = maximum(image, Applied(edge, (1, 1, 1))).ravel()
    assert np.isnan(got[0])
    assert got[1] == 3.0


def test_dropout_scales_what_it_keeps():
    edge = Numbers(keep=0.25)
    values, mask = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    at = Applied(edge, (1, 1, 1), mask=mask)
    np.testing.assert_array_equal(dropped(values, at), [0.0, 8.0])
    np.testing.assert_array_equal(dropped(values, Applied(edge, (1, 1, 1))), values)


@pytest.mark.quick(90)
@pytest.mark.parametrize("name", EDGE_KINDS)
@pytest.mark.parametrize("seed", range(30))
def test_sizes_and_gradients_are_those_of_the_values(name, seed):
    """Every kind is linear, or homogeneous as maxima are: its gradients are adjoint to its values."""
    kind, rng = EDGE_KINDS[name], np.random.default_rng(seed)
    edge = Numbers(**kind.numbers(kind.keys.model_validate(drawn_keys(kind, rng))))
    edge = replace(edge, groups=seed % 3 + 1, weight_standardization=False)
    sizes = kind.sizes(edge, edge.sparsity)
    if list(kind.wrong(edge)):
        return
    shape = [int(rng.integers(1, 7)) for _ in range(3)]
    shape = [
        next(n for n in range(n, n + 30) if axis.made(n) > 0 and n in axis.sources(axis.made(n)))
        for n, axis in zip(shape, sizes, strict=True)
    ]
    made = [axis.made(n) for n, axis in zip(shape, sizes, strict=True)]
    channels = 6 * int(np.prod(edge.factor)) if kind.channels else 6
    image = rng.standard_normal((2, channels, *shape))
    filters = np.empty(0)
    if kind.learns:
        assert kind.channels is None
        filters = rng.standard_normal(kind.learns.shape(edge, 6, 12))
    at = Applied(edge, edge.sparsity, filters)
    values = kind.forward(image, at)
    assert values.shape == (2, 12 if kind.learns else 6, *made)
    gradient = rng.standard_normal(values.shape)
    product = np.vdot(values, gradient)
    data = kind.data_gradient(image, gradient, at)
    assert data.shape == image.shape
    np.testing.assert_allclose(np.vdot(data, image), product, rtol=1e-9, atol=1e-9)
    if kind.learns:
        weight = kind.learns.gradient(image, gradient, at)
        np.testing.assert_allclose(np.vdot(weight, filters), product, rtol=1e-9, atol=1e-9)
