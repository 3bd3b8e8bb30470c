"""Whether all values of a target are such as a loss takes: one look, in compiled code, as it precedes each update."""

from __future__ import annotations

import math
from typing import Any

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    absolute,
    any_lane,
    below,
    lane_numbers,
    load,
    load_masked,
    select,
    splat,
    splat_int,
)


@part
def _within(values: int, count: int, low: float, high: float) -> Any:
    """Return 1 if so many values, one behind the other, lie in low..high, else 0."""
    least, most, good = splat(low), splat(high), below(LANES)
    whole = count // LANES * LANES
    for place in range(values, values + 4 * whole, VECTOR_BYTES):
        own = load(place)
        good = good & (own >= least) & (own <= most)
    if count > whole:
        own = load_masked(values + 4 * whole, below(count - whole))
        inside = (own >= least) & (own <= most)
        good = good & (inside | (lane_numbers() >= splat_int(count - whole)))
    return 0 if any_lane(select(good, splat(0.0), splat(1.0)) > splat(0.0)) else 1


@part
def taken(
    values: int,
    samples: int,
    channels: int,
    voxels: int,
    low: float,
    high: float,
    missed: float,
) -> Any:
    """Do what `all_taken` does, within another compiled function."""
    if missed == math.inf:
        # As they lie: channels a power of two apart would fall on one set of the caches.
        return _within(values, samples * channels * voxels, low, high)
    least, most, slack = splat(low), splat(high), splat(missed)
    good = below(LANES)
    for sample in range(samples):
        for first in range(0, voxels, LANES):
            count = min(voxels - first, LANES)
            beyond = lane_numbers() >= splat_int(count)
            total = splat(0.0)
            for channel in range(channels):
                place = values + 4 * ((sample * channels + channel) * voxels + first)
                own = load(place) if count == LANES else load_masked(place, below(count))
                good = good & (((own >= least) & (own <= most)) | beyond)
                total = total + own
            good = good & ((absolute(total - splat(1.0)) <= slack) | beyond)
    return 0 if any_lane(select(good, splat(0.0), splat(1.0)) > splat(0.0)) else 1


@native("int64(int64, int64, int64, int64, float64, float64, float64)")
def all_taken(
    values: int,
    samples: int,
    channels: int,
    voxels: int,
    low: float,
    high: float,
    missed: float,
) -> int:
    """Return 1 if all float32 values [sample][channel][voxel] lie in low..high, else 0; NaN never does.

    The channels of a voxel sum to 1, but for `missed` at most; infinite: to anything.
    """
    return int(taken(values, samples, channels, voxels, low, high, missed))
