"""Every edge kind forward and backward, one filter or window tap at a time, in float64.

Images are (batch, image, z, y, x), filters (out, in, z, y, x). All operations are valid: output
voxel i reads input voxels i * stride + tap * dilation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from znnpy.network.types import Edge, Triple

Array = NDArray[np.float64]
Box = tuple[slice, ...]


def shrunk(edge: Edge, dilation: Triple, shape: tuple[int, ...]) -> Triple:
    """Output shape (z, y, x) of an edge for one input shape; not positive if that is too small."""
    z, y, x = (
        (have - 2 * offset - (size - 1) * step - 1) // stride + 1
        for have, offset, size, step, stride in zip(
            shape, edge.offset, edge.size, dilation, edge.stride, strict=True
        )
    )
    return (z, y, x)


def convolve(image: Array, filters: Array, edge: Edge, dilation: Triple) -> Array:
    """Cross-correlation, valid: sum over taps of filter times shifted image."""
    shape = shrunk(edge, dilation, image.shape[2:])
    output = np.zeros((image.shape[0], filters.shape[0], *shape))
    for tap, box in _taps(edge, dilation, shape):
        output += _mix(filters[:, :, *tap], image[box])
    return output


def convolve_data_gradient(
    gradient: Array, filters: Array, edge: Edge, dilation: Triple, shape: tuple[int, ...]
) -> Array:
    """Gradient of `convolve` for its input, whose z, y, x shape is given."""
    output = np.zeros((gradient.shape[0], filters.shape[1], *shape))
    for tap, box in _taps(edge, dilation, gradient.shape[2:]):
        output[box] += _mix(filters[:, :, *tap].T, gradient)
    return output


def convolve_weight_gradient(image: Array, gradient: Array, edge: Edge, dilation: Triple) -> Array:
    """Gradient of `convolve` for its filters, shape (out, in, z, y, x)."""
    output = np.zeros((gradient.shape[1], image.shape[1], *edge.size))
    over = (0, 2, 3, 4)
    for tap, box in _taps(edge, dilation, gradient.shape[2:]):
        output[:, :, *tap] = np.tensordot(gradient, image[box], (over, over))
    return output


def maximum(image: Array, edge: Edge, dilation: Triple) -> Array:
    """Largest voxel of every window; NaN wins."""
    largest: Array = _windows(image, edge, dilation).max(axis=0)
    return largest


def maximum_gradient(image: Array, gradient: Array, edge: Edge, dilation: Triple) -> Array:
    """Gradient of `maximum` for its input; the first maximum in z, y, x order gets all of it."""
    winners = _windows(image, edge, dilation).argmax(axis=0)
    output = np.zeros_like(image)
    for index, (_, box) in enumerate(_taps(edge, dilation, gradient.shape[2:])):
        output[box] += np.where(winners == index, gradient, 0.0)
    return output


def interior(edge: Edge, shape: tuple[int, ...]) -> Box:
    """The box of a (batch, image, z, y, x) array that `crop` keeps; `shape` is z, y, x."""
    kept = (slice(cut, have - cut) for cut, have in zip(edge.offset, shape, strict=True))
    return (slice(None), slice(None), *kept)


def dropped(values: Array, edge: Edge, mask: Array | None) -> Array:
    """Dropout, forward and backward: kept voxels divided by `keep`; no mask (inference): all.

    NaN and Inf stay visible under the mask.
    """
    return values if mask is None else values * np.where(mask != 0, 1.0 / edge.keep, 0.0)


def _mix(matrix: Array, image: Array) -> Array:
    """One matrix over the images of every voxel."""
    return np.moveaxis(np.tensordot(matrix, image, ((1,), (1,))), 0, 1)


def _windows(image: Array, edge: Edge, dilation: Triple) -> Array:
    """All window taps stacked in z, y, x order along a new first axis."""
    shape = shrunk(edge, dilation, image.shape[2:])
    return np.stack([image[box] for _, box in _taps(edge, dilation, shape)])


def _taps(edge: Edge, dilation: Triple, shape: tuple[int, ...]) -> Iterator[tuple[Triple, Box]]:
    """Every tap of a filter or window with the box of input voxels that it touches."""
    for tap in product(*map(range, edge.size)):
        boxes = (
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, step, count, stride in zip(tap, dilation, shape, edge.stride, strict=True)
        )
        yield (tap[0], tap[1], tap[2]), (slice(None), slice(None), *boxes)
