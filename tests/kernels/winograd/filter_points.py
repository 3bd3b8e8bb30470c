"""Transformed filters as the kernels make them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from znnpy_kernels.direct.packed_filters import output_groups, pack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.filters import EXCHANGING, FILTERS, SCRATCH_FLOATS, point_bytes


def points_of_tile(taps: Any) -> int:
    return prod(6 if count == 3 else 1 for count in taps)


def aligned(floats: int) -> Any:
    """Floats that begin with a cache line, NaN."""
    room = np.full(floats + 16, np.nan, np.float32)
    return room[-address(room) % 64 // 4 :][:floats]


def without_gaps(points: Any, inputs: int, outputs: int) -> Any:
    """Points of filters, of so many channels, without what lies between them, which must be untouched."""
    floats = inputs * -(-outputs // LANES) * LANES
    rows = points.reshape(-1, point_bytes(inputs, -(-outputs // LANES)) // 4)
    assert np.isnan(rows[:, floats:]).all()
    return rows[:, :floats].reshape(-1)


def points_of(filters: Any, kernels: Any = FILTERS) -> Any:
    """Filters as `winograd` reads them, by the kernel."""
    outputs, inputs, *taps = filters.shape
    packed, blocks = pack_filters(filters), -(-outputs // LANES)
    step = point_bytes(inputs, blocks) // 4
    made, room, start, into = aligned(points_of_tile(taps) * step), aligned(SCRATCH_FLOATS), 0, 0
    for vectors in output_groups(outputs):
        for first in range(0, inputs, LANES):
            count = min(LANES, inputs - first) * vectors
            kernels[tuple(taps)].run(
                source=packed[start:],
                source_tap=count * LANES,
                vectors=count,
                target=address(made) + 4 * (into + first * vectors * LANES),
                target_point=step,
                scratch=room,
                scratch_worker=0,
            )
            start += prod(taps) * count * LANES
        into += inputs * vectors * LANES
    return made


def exchanged_points_of(filters: Any, kernels: Any = EXCHANGING) -> Any:
    """Filters as `winograd` reads them for the data gradient: those of `filters` flipped and exchanged."""
    outputs, inputs, *taps = filters.shape
    packed, step = pack_filters(filters), point_bytes(outputs, -(-inputs // LANES)) // 4
    made, room, start, low = aligned(points_of_tile(taps) * step), aligned(SCRATCH_FLOATS), 0, 0
    for width in (vectors * LANES for vectors in output_groups(outputs)):
        for first in range(0, inputs, 2 * LANES):
            seen = min(2 * LANES, inputs - first)
            lanes = -(-seen // LANES) * LANES
            kernels[tuple(taps)].run(
                source=packed[start:],
                inputs=seen,
                outputs=min(width, outputs - low),
                width=width,
                apart=0,
                target=address(made) + 4 * (first * outputs + low * lanes),
                target_point=step,
                scratch=room,
                scratch_worker=0,
            )
            start += prod(taps) * seen * width
        low += width
    return made
