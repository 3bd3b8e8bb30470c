"""Images blurred by Gaussians, along one axis after the other; the border goes on beyond it."""

from __future__ import annotations

from typing import Any

from numba import float32, int64

from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import below, fma, load, load_masked, splat, store_masked

CUT = 4  # sigmas from which on a Gaussian is left out, as by SciPy


def radius_of(sigma: float) -> int:
    """Return how many neighbours on either side are weighed."""
    return int(CUT * sigma + 0.5)


def blur_room(depth: int, height: int, width: int, radius: int) -> int:
    """Return the bytes of room that `blurred_image` needs, where no Gaussian is wider than a radius."""
    return 4 * (radius + 1 + max(height, depth) * (width + 2 * radius + 2 * LANES))


@part
def _gaussian(weights: Any, sigma: float, first: float) -> Any:
    """Write the weights of a voxel and of its neighbours at 1, 2, ...; return how many neighbours there are."""
    radius = int64(CUT * sigma + 0.5)
    total = own = 1.0
    ratio = first
    weights[0] = float32(1.0)
    for k in range(1, radius + 1):
        # By squares of k: exp(-k^2 / 2 sigma^2), of which the first is given.
        own *= ratio
        ratio *= first * first
        weights[k] = float32(own)
        total += 2 * own
    for k in range(radius + 1):
        weights[k] = float32(weights[k] / total)
    return radius


@inlined
def _sums(
    target: int, source: int, line: int, i: int, count: int, weights: Any, radius: int, mask: Any, other: Any
) -> None:  # fmt: skip
    """Weigh two vectors of a row with those of the rows beside it, `line` bytes apart."""
    here = source + line * i
    one = splat(weights[0]) * load_masked(here, mask)
    two = splat(weights[0]) * load_masked(here + VECTOR_BYTES, other)
    for k in range(1, radius + 1):
        by, before = splat(weights[k]), source + line * max(i - k, 0)
        behind = source + line * min(i + k, count - 1)
        one = fma(by, load_masked(before, mask) + load_masked(behind, mask), one)
        before, behind = before + VECTOR_BYTES, behind + VECTOR_BYTES
        two = fma(by, load_masked(before, other) + load_masked(behind, other), two)
    store_masked(target, mask, one)
    store_masked(target + VECTOR_BYTES, other, two)


@part
def _down(
    target: int, step: int, source: int, line: int, count: int, width: int, weights: Any, radius: int
) -> None:  # fmt: skip
    """Smooth `width` lines side by side, of `count` values `line` bytes apart; the target's are `step` apart."""
    full = below(LANES)
    whole = width // (2 * LANES) * 2 * LANES
    rest, last = below(width - whole), below(max(0, width - whole - LANES))
    for i in range(count):
        found = target + step * i
        for x in range(0, whole, 2 * LANES):
            _sums(found + 4 * x, source + 4 * x, line, i, count, weights, radius, full, full)
        if whole < width:
            there = found + 4 * whole
            _sums(there, source + 4 * whole, line, i, count, weights, radius, rest, last)


@inlined
def _beside(target: int, here: int, weights: Any, radius: int, mask: Any) -> None:
    found = splat(weights[0]) * load(here)
    for k in range(1, radius + 1):
        found = fma(splat(weights[k]), load(here - 4 * k) + load(here + 4 * k), found)
    store_masked(target, mask, found)


@part
def _along(
    target: int, source: int, line: int, rows: int, width: int, weights: Any, radius: int
) -> None:
    """Smooth rows, `line` bytes apart, with room for `radius` neighbours on either side of each."""
    full, whole = below(LANES), width // LANES * LANES
    for row in range(rows):
        own = floats(source + line * row)
        for k in range(1, radius + 1):
            own[-k] = own[0]
            own[width - 1 + k] = own[width - 1]
    for row in range(rows):
        here, found = source + line * row, target + 4 * width * row
        for x in range(0, whole, LANES):
            _beside(found + 4 * x, here + 4 * x, weights, radius, full)
        if whole < width:
            _beside(found + 4 * whole, here + 4 * whole, weights, radius, below(width - whole))


@part
def _copied(target: int, source: int, count: int) -> None:
    found, read = floats(target), floats(source)
    for i in range(count):
        found[i] = read[i]


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def blurred_image(
    target: int,
    depth: int,
    height: int,
    width: int,
    sigmas: int,
    firsts: int,
    amount: int,
    radius: int,
    room: int,
) -> None:
    """Blur an image, float32 (depth, height, width), in place.

    `sigmas`: float64 (3, amount), along z, y and x; of all sections, or of each, for which the first along z counts.
    `firsts`: exp(-1 / 2 sigma^2) of each. `radius`: `radius_of` the largest. `room`: `blur_room` bytes.
    """
    sigma, first, weights = doubles(sigmas), doubles(firsts), floats(room)
    row, line = 4 * width, 4 * (width + 2 * radius + LANES)
    begin = room + 4 * (radius + 1) + 4 * radius
    if sigma[0] > 0:
        own = _gaussian(weights, sigma[0], first[0])
        for y in range(height):
            here = target + row * y
            _down(begin, row, here, row * height, depth, width, weights, own)
            for z in range(depth):
                _copied(here + row * height * z, begin + row * z, width)
    for z in range(depth):
        here, number = target + row * height * z, z % amount
        across, along = amount + number, 2 * amount + number
        own = _gaussian(weights, sigma[across], first[across])
        _down(begin, line, here, row, height, width, weights, own)
        own = _gaussian(weights, sigma[along], first[along])
        _along(here, begin, line, height, width, weights, own)
