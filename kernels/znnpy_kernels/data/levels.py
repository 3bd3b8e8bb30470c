"""Values of images changed in place: contrast, brightness, gamma and noise."""

from __future__ import annotations

from typing import Any

from numba import float32, uint64

from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import doubles, floats, longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.transpose import scratch_tile
from znnpy_kernels.simd.vector_math import exp, log
from znnpy_kernels.simd.vectors import (
    below,
    fma,
    load,
    load_masked,
    load_merged,
    select,
    splat,
    store,
    store_masked,
    to_doubles,
    total,
    zero_doubles,
)

CONTRAST, BRIGHTNESS, GAMMA = 0, 1, 2
NUMBERS = 4096
"""float32 of a table of noise, as many as 12 bits have."""
LEAST = 1.2e-38  # of float32, about the smallest normal number
WARMING = 12  # numbers of SFC64 after which its state has nothing of the seed to see


@part
def _mean(source: int, count: int) -> Any:
    found = zero_doubles()
    for i in range(0, count, LANES):
        # Of float32 alone: so many would lose digits.
        found = found + to_doubles(load_masked(source + 4 * i, below(count - i)))
    return total(found) / count


@inlined
def _most(values: Any, room: int) -> Any:
    """Return the largest of a vector."""
    store(room, values)
    lanes = floats(room)
    found = lanes[0]
    for lane in range(1, LANES):
        found = max(found, lanes[lane])
    return found


@part
def _range(source: int, count: int) -> Any:
    """Return the least and the largest of some values."""
    first = splat(floats(source)[0])
    low = high = first
    for i in range(0, count, LANES):
        own = load_merged(source + 4 * i, below(count - i), first)
        low, high = select(own < low, own, low), select(own > high, own, high)
    room = scratch_tile()
    return -_most(-low, room), _most(high, room)


@part
def _spread(target: int, count: int, factor: float, shift: float) -> None:
    """Multiply values, and add a number."""
    by, more = splat(factor), splat(shift)
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        store(target + 4 * i, fma(by, load(target + 4 * i), more))
    # What remains apart, as some CPUs take long for masked stores.
    rest, here = below(count - whole), target + 4 * whole
    store_masked(here, rest, fma(by, load_masked(here, rest), more))


@inlined
def _raised(value: Any, low: Any, scale: Any, power: Any, width: Any) -> Any:
    tiny, scaled = splat(LEAST), (value - low) * scale
    found = exp(power * log(select(scaled > tiny, scaled, tiny)))
    return fma(select(scaled > tiny, found, splat(0.0)), width, low)


@part
def _bent(target: int, count: int, power: float) -> None:
    """Raise values, scaled to 0 to 1 over their range, to a power, and scale them back."""
    least, most = _range(target, count)
    span = max(most - least, float32(1e-7))
    low, width, scale, by = splat(least), splat(span), splat(1.0 / span), splat(power)
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        here = target + 4 * i
        store(here, _raised(load(here), low, scale, by, width))
    rest, here = below(count - whole), target + 4 * whole
    store_masked(here, rest, _raised(load_masked(here, rest), low, scale, by, width))


@native("void(int64, int64, int64, int64, int64, int64)")
def changed_levels(
    target: int, blocks: int, count: int, kind: int, numbers: int, amount: int
) -> None:
    """Change blocks of `count` float32, each as an image of its own: CONTRAST multiplies distances from the mean.

    BRIGHTNESS adds, and GAMMA raises what is scaled to 0 to 1 over the range to a power. `numbers`: `amount` float64,
    of one block after the other, again and again.
    """
    given = doubles(numbers)
    for block in range(blocks):
        here, number = target + 4 * block * count, given[block % amount]
        if kind == CONTRAST:
            _spread(here, count, number, (1 - number) * _mean(here, count))
        elif kind == BRIGHTNESS:
            _spread(here, count, 1.0, number)
        else:
            _bent(here, count, number)


@native("void(int64, int64, int64, int64, float64)")
def add_noise(target: int, count: int, table: int, seed: int, factor: float) -> None:
    """Add numbers of a table, NUMBERS float32, times a factor, drawn by SFC64 (Doty-Humphrey) from three int64.

    Each 64 bits draw four of them.
    """
    values, known, seeds = floats(target), floats(table), longs(seed)
    by, last = float32(factor), uint64(NUMBERS - 1)
    a, b, c = uint64(seeds[0]), uint64(seeds[1]), uint64(seeds[2])
    counter = uint64(1)
    for number in range(-WARMING, (count + 3) // 4):
        word = a + b + counter
        counter += uint64(1)
        a = b ^ (b >> uint64(11))
        b = c + (c << uint64(3))
        c = ((c << uint64(24)) | (c >> uint64(40))) + word
        here = 4 * number
        if here >= 0 and here + 4 <= count:
            values[here] += by * known[word & last]
            values[here + 1] += by * known[(word >> uint64(16)) & last]
            values[here + 2] += by * known[(word >> uint64(32)) & last]
            values[here + 3] += by * known[word >> uint64(52)]
        elif here >= 0:
            for voxel in range(here, count):
                values[voxel] += by * known[word & last]
                word = word >> uint64(16)
