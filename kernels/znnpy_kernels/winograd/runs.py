"""Runs of tiles side by side along x whose voxels and outputs all lie inside along x, where planes have few columns.

What is worked out for each tile elsewhere (`planes`: where it begins, whether it lies inside, what to ask for) takes
as long as transforms of six vectors. Here it is worked out once a run, and addresses advance from tile to tile. Where
voxels are missing along z, those that are there are copied between zeros, which are written once a run.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, store
from znnpy_kernels.winograd.planes import (
    AT,
    THIN_AHEAD,
    ask_for_values,
    ask_to_read,
    ask_to_write,
    copied,
    holds,
    is_thin,
    seen_of,
    source_plane,
    target_plane,
    zeros,
)

# Most tiles of a run: the vectors of a block that are read and then written again, 6 KB, stay in the L1 cache.
MOST = 16


@inlined
def whole_run(
    form: Any, args: Any, places: Any, tile: int, count: int, made: int, seen: int
) -> Any:
    """Return how many tiles from `tile` on are a run in rows `made` of outputs and `seen` of voxels; -1: no row."""
    if not is_thin(form) or args[AT.dilation_x] > 1:
        return 0
    z, x = places[2 * tile], places[2 * tile + 1]
    # The tiles of a group are all those along x, one after the other.
    run = min(MOST, count - tile, (args[AT.target_size_x] - x) // form.new_x)
    if made >= 0 and not holds(z, args[AT.target_size_z], args[AT.dilation_z], form.new_z):
        return 0
    if seen >= 0:
        y, x = seen - args[AT.before_y], x - args[AT.before_x]
        if not (x >= 0 and 0 <= y < args[AT.source_size_y]):
            return 0
        run = min(run, (args[AT.source_size_x] - x - form.points_x + form.new_x) // form.new_x)
    return run


@inlined
def transform_run(
    form: Any,
    args: Any,
    block: int,
    place: Any,
    tiles: int,
    row: int,
    loose: int,
    target: int,
    column: int,
) -> None:
    """Row `row` of voxels of a run and block, as `planes.transform` makes it; `place`: z, x of the first tile."""
    z, y, x = place[0] - args[AT.before_z], row - args[AT.before_y], place[1] - args[AT.before_x]
    here = args[AT.source] + 4 * (block * args[AT.source_block] + z * args[AT.source_z])
    here += 4 * y * args[AT.source_y] + x * VECTOR_BYTES
    step_z, step_x = 4 * args[AT.source_z] * args[AT.dilation_z], VECTOR_BYTES
    # From the third column on: the first two are shared with the tile before.
    ahead = (THIN_AHEAD * form.new_x + form.points_x - form.new_x) * VECTOR_BYTES
    whole = holds(z, args[AT.source_size_z], args[AT.dilation_z], form.points_z)
    packed, first, count = form.points_x * VECTOR_BYTES, 0, form.points_z
    if not whole:
        first, count = seen_of(z, args[AT.source_size_z], args[AT.dilation_z], form.points_z)
        zeros(loose, form.points_z * form.points_x)
    for _ in range(tiles):
        ask_to_read(form, here + ahead, step_z, step_x)
        seen, seen_z = (here, step_z) if whole else (loose, packed)
        if not whole:
            steps = step_z, step_x
            begin, to = here + first * step_z, loose + first * packed
            copied(begin, steps, (count, form.points_x), to, (packed, VECTOR_BYTES))
        source_plane(form, seen, seen_z, step_x, target, column)
        here, target = here + form.new_x * VECTOR_BYTES, target + VECTOR_BYTES


@inlined
def finish_run(
    form: Any, args: Any, block: int, place: Any, tiles: int, row: int, source: int, column: int
) -> None:
    """Row `row` of outputs of a run and block, as `planes.finish` makes it; `place`: z, x of the first tile."""
    here = args[AT.target] + 4 * (block * args[AT.target_block] + place[0] * args[AT.target_z])
    here += 4 * row * args[AT.target_y] + place[1] * VECTOR_BYTES
    step_z, step_x = 4 * args[AT.target_z] * args[AT.dilation_z], VECTOR_BYTES
    value = args[AT.output] + 4 * (block * args[AT.output_block] + place[0] * args[AT.output_z])
    value += 4 * row * args[AT.output_y] + place[1] * VECTOR_BYTES
    value_z = 4 * args[AT.output_z] * args[AT.dilation_z]
    bias, sums = args[AT.bias] + block * VECTOR_BYTES, args[AT.bias_gradient]
    ahead = THIN_AHEAD * form.new_x * VECTOR_BYTES
    for _ in range(tiles):
        ask_to_write(form, here + ahead, step_z, step_x)
        if args[AT.output]:
            ask_for_values(form, value + ahead, value_z, step_x)
        target_plane(form, args, bias, value, value_z, source, column, here, step_z, step_x)
        if sums:
            # From what was stored, as the gradient of the function is applied by then.
            total = load(sums + block * VECTOR_BYTES)
            for z in range(form.new_z):
                for x in range(form.new_x):
                    total = total + load(here + z * step_z + x * step_x)
            store(sums + block * VECTOR_BYTES, total)
        here, value = here + form.new_x * VECTOR_BYTES, value + form.new_x * VECTOR_BYTES
        source += VECTOR_BYTES
