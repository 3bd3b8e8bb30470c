"""Hands an update over in one call: looks at the arrays, copies, packs numbers, releases, waits for the loss.

Between updates Python runs from cold caches, on a core that could run tasks. What never changes lies in a block of
words; the caller's arrays come as they are, so that numba looks at type, dtype and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from znnpy_kernels.data.target_values import taken
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import doubles, floats, longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling.control_block import PHASE_COUNT, PHASES
from znnpy_kernels.scheduling.light_tasks import bring_light
from znnpy_kernels.scheduling.worker import REACHED, wait_for

SAMPLES = types.Array(types.float32, 5, "C", readonly=True)
"""(sample, channel, z, y, x)."""
AXES = 5
REFUSED, BUSY, STARTED, KNOWN = range(4)
"""What `hand_over` returns in its low bits: nothing was done, the step before the last still runs, the update has
started, its loss is known, too; above them the update's number."""
OUTCOME_BITS = 2

# The block: int64 words, by byte.
CONTROL, NUMBERS, NUMBER_WORDS, ITERATION = range(0, 32, 8)
"""NUMBERS: where the numbers lie that all tasks of a step read, NUMBER_WORDS words; the one at ITERATION is written."""
INPUT, TARGET, STEPS = range(32, 32 + 3 * 8 * AXES, 8 * AXES)
"""Sizes of an input and of a target, and the strides in floats of the room for inputs, axis by axis."""
LOW, HIGH, MISSED, BORROWS = range(STEPS + 8 * AXES, STEPS + 8 * AXES + 32, 8)
"""Bounds as `all_taken` has them, float64; whether inputs may be read where they lie."""
PARITIES = BORROWS + 8
# Of each parity, words from here on.
LAST_GROUP, LOSS_GROUP, ROOM, SOURCE, TARGET_ROOM, PLACES, STAGED, RESULTS = range(0, 64, 8)
"""Groups that are waited for (-1: none). Where inputs are copied to, and the word that says where they lie; the same of
targets, whose second word is the weight's. Where NUMBERS are copied to. Two float64, loss and error."""
PARITY_BYTES = 64
BEFORE = PARITIES + 2 * PARITY_BYTES
"""Two float64: loss and error of the last update of this parity."""
BLOCK_BYTES = BEFORE + 16


@part
def released(control: int, parity: int) -> Any:
    """Return where it is counted how often a parity was released."""
    return longs(control + PHASES)[0] + 8 * (longs(control + PHASE_COUNT)[0] + 1 + parity)


@part
def fits(array: Any, sizes: int) -> Any:
    """Return whether an array has these sizes."""
    same = True
    for axis in range(AXES):
        same = same and array.shape[axis] == longs(sizes)[axis]
    return same


@part
def copy_in(source: int, sizes: int, target: int, steps: int) -> None:
    """Copy a dense array to one of other strides, but for the last axis."""
    n, c, z, y, x = (longs(sizes)[0], longs(sizes)[1], longs(sizes)[2], longs(sizes)[3], longs(sizes)[4])  # fmt: skip
    for row in range(n * c * z * y):
        rest, own_y = row // y, row % y
        rest, own_z = rest // z, rest % z
        own = (
            rest // c * longs(steps)[0]
            + rest % c * longs(steps)[1]
            + own_z * longs(steps)[2]
            + own_y * longs(steps)[3]
        )
        start, place = floats(source + 4 * row * x), floats(target + 4 * own)
        for voxel in range(x):
            place[voxel] = start[voxel]


@part
def stage(block: int, own: int, x: int, target: int, floats_of_target: int, borrow: int) -> None:
    """Let the tasks of a parity read the arrays and numbers, where they are or copied."""
    if borrow and longs(block + BORROWS)[0]:
        longs(longs(own + SOURCE)[0])[0] = x
    else:
        copy_in(x, block + INPUT, longs(own + ROOM)[0], block + STEPS)
        longs(longs(own + SOURCE)[0])[0] = longs(own + ROOM)[0]
    places = longs(longs(own + PLACES)[0])
    places[0], places[1] = target, 0
    if not borrow:
        places[0] = longs(own + TARGET_ROOM)[0]
        given, room = floats(target), floats(places[0])
        for number in range(floats_of_target):
            room[number] = given[number]
    numbers, staged = longs(longs(block + NUMBERS)[0]), longs(longs(own + STAGED)[0])
    for word in range(longs(block + NUMBER_WORDS)[0]):
        staged[word] = numbers[word]


@part
def is_over(control: int, own: int, count: int, budget: int) -> Any:
    """Wait until a parity's last step is complete; return whether it is."""
    for word in (LAST_GROUP, LOSS_GROUP):
        group = longs(own + word)[0]
        if group >= 0 and count > 0 and wait_for(control, group, count, budget) != REACHED:
            return False
    return True


@native(types.int64(SAMPLES, SAMPLES, *[types.int64] * 4))
def hand_over(x: Any, target: Any, block: int, iteration: int, borrow: int, budget: int) -> int:
    """Start one update; with `borrow` on arrays where they lie, and wait for its loss, `budget` nanoseconds at most.

    One caller at a time.
    """
    sizes = longs(block + TARGET)
    voxels = sizes[2] * sizes[3] * sizes[4]
    if not (fits(x, block + INPUT) and fits(target, block + TARGET)):
        return REFUSED
    # NumPy has addresses without a sign, which int64 would make floats of.
    own_x, own_target = np.int64(x.ctypes.data), np.int64(target.ctypes.data)
    bounds = doubles(block + LOW)
    if not taken(own_target, sizes[0], sizes[1], voxels, bounds[0], bounds[1], bounds[2]):
        return REFUSED
    control = longs(block + CONTROL)[0]
    number = longs(released(control, 0))[0] + longs(released(control, 1))[0]
    parity = number & 1
    count, own = longs(released(control, parity))[0], block + PARITIES + PARITY_BYTES * parity
    if not is_over(control, own, count, budget):
        return BUSY
    results, before = doubles(longs(own + RESULTS)[0]), doubles(block + BEFORE)
    before[0], before[1] = results[0], results[1]
    longs(longs(block + NUMBERS)[0] + longs(block + ITERATION)[0])[0] = iteration
    stage(block, own, own_x, own_target, sizes[0] * sizes[1] * voxels, borrow)
    bring_light(control, parity)
    outcome = STARTED
    if borrow and wait_for(control, longs(own + LOSS_GROUP)[0], count + 1, budget) == REACHED:
        outcome = KNOWN
    return int(number << OUTCOME_BITS | outcome)
