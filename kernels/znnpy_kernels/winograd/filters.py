"""Packed filters of 3^3 taps to the points of Winograd's transforms.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_tap          tap (0, 0, 0) of the first image with LANES others, or the last one and
                                a negative step to flip filters; from tap to tap
    source_input, inputs        from image to image; images of this task
    source_lane, lanes          from one of the others to the next; how many there are
    target, target_point        the first image's vector at the first point; from point to point
    target_input                from image to image
    scratch, scratch_worker     worker w owns `SCRATCH_FLOATS` from w * scratch_worker on

Points are ordered [z][x][y]. Sums are taken in float64 and rounded once. Tasks over disjoint targets
may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.lines import POINTS, TAPS, TARGET_SCALES, filter_matrix

AT = words(
    "source source_tap source_input inputs target target_point target_input scratch "
    "scratch_worker source_lane lanes",
)
CUBE = POINTS**3
SCRATCH_FLOATS = 4 * CUBE * LANES  # two cubes of float64
_MATRIX = TARGET_SCALES[:, None] * filter_matrix()


@inlined
def _along(source: Any, target: Any, before: int, after: int) -> None:
    """The axis of taps among [before][TAPS][after] to [before][POINTS][after]."""
    for first in range(before):
        taps = first * TAPS * after
        for point in range(POINTS):
            a, b, c = _MATRIX[point, 0], _MATRIX[point, 1], _MATRIX[point, 2]
            place = (first * POINTS + point) * after
            for last in range(after):
                low, middle = source[taps + last], source[taps + after + last]
                target[place + last] = a * low + b * middle + c * source[taps + 2 * after + last]


@kernel(AT)
def winograd_filters(args: Any, worker: int) -> None:
    """Points of the filters of some images with LANES others. Words: see the module."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    one, other = doubles(scratch), doubles(scratch + 8 * CUBE * LANES)
    for image in range(args[AT.inputs]):
        source = floats(args[AT.source] + 4 * image * args[AT.source_input])
        for tap in range(TAPS**3):
            for lane in range(LANES):
                one[tap * LANES + lane] = 0.0
            for lane in range(args[AT.lanes]):
                one[tap * LANES + lane] = source[
                    tap * args[AT.source_tap] + lane * args[AT.source_lane]
                ]
        _along(one, other, TAPS * TAPS, LANES)
        _along(other, one, TAPS, POINTS * LANES)
        _along(one, other, 1, POINTS * POINTS * LANES)
        for z in range(POINTS):
            for y in range(POINTS):
                for x in range(POINTS):
                    point = (z * POINTS + x) * POINTS + y
                    target = floats(
                        args[AT.target]
                        + 4 * (image * args[AT.target_input] + point * args[AT.target_point])
                    )
                    for lane in range(LANES):
                        target[lane] = other[((z * POINTS + y) * POINTS + x) * LANES + lane]
