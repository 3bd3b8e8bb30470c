"""A march of tiles of filters of 1 x 3 x 3 taps: whole planes along y and x, 36 points of each tile at once.

Where rows wait in a ring (`forward`), places are worked out for each row of six vectors, each of which is stored and
loaded once more. Here nothing waits: planes are read from the source as they lie, two of six rows again from a cache;
products follow point by point; planes of products become outputs. Values are those of the march by rows, bit by bit;
sums for biases go tile by tile.

Scratch of a worker, `flat_floats`: places of the tiles; a tile that reaches beyond the source, or its outputs and their
y; a row of zeros; [block][point][tile][lane], where products of a point take the place of the
point before, whose tiles nothing needs any more, and those of the first one a place before it.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, store
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS
from znnpy_kernels.winograd.line_transforms import (
    WHOLE,
    asking_for_lines_of,
    dense_source_plane_of,
    edge_plane_of,
    target_plane_of,
)
from znnpy_kernels.winograd.planes import AT, copied, places_bytes, seen_of, zeros
from znnpy_kernels.winograd.products import GROUP, multiply_blocks, odd_bytes
from znnpy_kernels.winograd.tiles import origin, side_by_side

TAPS_OF_PLANES = (1, TAPS, TAPS)
_FORM = FORMS[TAPS_OF_PLANES]
MOST = max(
    GROUP, 28
)  # tiles at once: half of a row of 224 voxels, a row of 112, two of 56, four of 28
PLACES = places_bytes(MOST)
# Bytes from point to point: known while code is made.
POINT = odd_bytes(MOST)
FIRST, LAST = 0, POINTS - 1  # columns of a tile
AHEAD = 2  # tiles ahead whose voxels, and lines of outputs, are asked for
ask_to_read, _ask_to_write = asking_for_lines_of(), asking_for_lines_of(write=True)


def loose_bytes(form: Any) -> Any:
    """Return the bytes of a tile that reaches beyond the source, or its outputs and their y, and of a row behind it."""
    tile = max(form.points_y * form.points_x, 2 * form.new_y * form.new_x)
    return (tile + form.points_x) * VECTOR_BYTES


def block_bytes(form: Any, point: int) -> Any:
    """Return the bytes from block to block, where points lie `point` bytes from each other."""
    return (form.points_y * form.points_x + 1) * point


compiled_loose_bytes, _block_bytes = inlined(loose_bytes), inlined(block_bytes)


def flat_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs between so many channels."""
    points = -(-max(inputs, outputs) // LANES) * block_bytes(_FORM, POINT)
    return int(PLACES + loose_bytes(_FORM) + points) // 4


@inlined
def address(strides: Any, block: int, z: int, x: int) -> Any:
    """Bytes from a row to a voxel of the row there in a block and plane; `strides`: between these, in floats."""
    return 4 * (block * strides[0] + z * strides[1]) + x * VECTOR_BYTES


@inlined
def _edge(form: Any, x: int, behind: int) -> Any:
    """Return which column of a tile that begins at `x` is missing, FIRST or LAST, and 1 tile; or no tile.

    `behind`: voxels of the row behind it.
    """
    if x == -1 and behind >= 0:
        return FIRST, 1
    if x >= 0 and behind == -1:
        return LAST, 1
    return WHOLE, 0


def transform_of(point: int) -> Any:
    """The inlined `(form, args, places, count, y, loose, points)`, whose points lie `point` bytes from each other.

    Planes of all tiles and blocks, from row `y` of the source on, to their points.
    """
    source_plane, edge_plane = dense_source_plane_of(point), edge_plane_of(point)

    @inlined
    def transform(
        form: Any, args: Any, places: Any, count: int, y: int, loose: int, points: int
    ) -> None:
        """Planes of all tiles and blocks, from row `y` of the source on, to their points."""
        steps = 4 * args[AT.source_y] * args[AT.dilation_y], VECTOR_BYTES * args[AT.dilation_x]
        packed, advance = (form.points_x * VECTOR_BYTES, VECTOR_BYTES), form.new_x * VECTOR_BYTES
        sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
        strides = args[AT.source_block], args[AT.source_z]
        before_z, before_x, ends = args[AT.before_z], args[AT.before_x], args[AT.target_size_x]
        start, inputs = args[AT.source] + 4 * y * args[AT.source_y], cover(args[AT.inputs], LANES)
        first_y, seen_y = seen_of(y, sizes[1], args[AT.dilation_y], form.points_y)
        # A row that is missing at an end is read from zeros; where more are, tiles are copied.
        last, blank = form.points_y - 1, loose + compiled_loose_bytes(form) - packed[0]
        above, below = first_y == 1, first_y + seen_y == last
        rows_y = first_y <= 1 and first_y + seen_y >= last and args[AT.dilation_x] == 1
        if above or below:
            zeros(blank, form.points_x)
        # New rows and columns alone: the others are those of tiles before.
        ahead = (form.points_y - form.new_y) * steps[0] + (form.points_x - form.new_x) * steps[1]
        ahead += AHEAD * advance
        # The block outermost: its voxels lie together in memory.
        for block in range(inputs):
            into, tile = points + block * _block_bytes(form, point), 0
            while tile < count:
                z, x = places[2 * tile] - before_z, places[2 * tile + 1] - before_x
                here, inside = start + address(strides, block, z, x), 0 <= z < sizes[0]
                behind, edge, run = sizes[2] - x - form.points_x, WHOLE, 0
                if rows_y and inside:
                    if x >= 0:
                        run = side_by_side(form, count - tile, ends - before_x - x, behind)
                    if run <= 0:
                        edge, run = _edge(form, x, behind)
                seen, by = here, steps[0]
                # Other tiles at a border are copied between zeros, dilated ones side by side: one transform without
                # tests serves all.
                bordered = run > 0 and (edge != WHOLE or above or below)
                if run <= 0:
                    zeros(loose, form.points_y * form.points_x)
                    if inside:
                        first_x, seen_x = seen_of(x, sizes[2], args[AT.dilation_x], form.points_x)
                        begin = here + first_y * steps[0] + first_x * steps[1]
                        to = loose + first_y * packed[0] + first_x * packed[1]
                        copied(begin, steps, (seen_y, seen_x), to, packed)
                    seen, by, run = loose, packed[0], 1
                # What is known of a run is worked out once.
                tile += run
                if bordered:
                    for _ in range(run):
                        ask_to_read(form, here + ahead, steps[0])
                        top = blank if above else here
                        bottom = blank if below else here + last * by
                        # Constants, as code is made for each of them.
                        if edge == WHOLE:
                            edge_plane(WHOLE, form, top, here + by, by, bottom, into)
                        elif edge == FIRST:
                            edge_plane(FIRST, form, top, here + by, by, bottom, into)
                        else:
                            edge_plane(LAST, form, top, here + by, by, bottom, into)
                        here, into = here + advance, into + VECTOR_BYTES
                else:
                    for _ in range(run):
                        ask_to_read(form, here + ahead, steps[0])
                        source_plane(form, seen, by, into)
                        here, seen, into = here + advance, seen + advance, into + VECTOR_BYTES

    return transform


@inlined
def _added(bias_gradient: int, source: int, steps: Any, counts: Any) -> None:
    """Add vectors of a plane to a bias gradient; pairs along y, x."""
    total = load(bias_gradient)
    for y in range(counts[0]):
        for x in range(counts[1]):
            total = total + load(source + y * steps[0] + x * steps[1])
    store(bias_gradient, total)


def finish_of(point: int) -> Any:
    """The inlined `(form, args, places, count, y, loose, points)`, whose points lie `point` bytes from each other.

    Outputs of all tiles and blocks, from row `y` of the target on; those outside are dropped.
    """
    target_plane = target_plane_of(AT, (1, 2), point)

    @inlined
    def finish(
        form: Any, args: Any, places: Any, count: int, y: int, loose: int, points: int
    ) -> None:
        """Outputs of all tiles and blocks, from row `y` of the target on; those outside are dropped."""
        steps = 4 * args[AT.target_y] * args[AT.dilation_y], VECTOR_BYTES * args[AT.dilation_x]
        value_steps = 4 * args[AT.output_y] * args[AT.dilation_y], steps[1]
        packed, advance = (form.new_x * VECTOR_BYTES, VECTOR_BYTES), form.new_x * VECTOR_BYTES
        strides = args[AT.target_block], args[AT.target_z]
        value_strides = args[AT.output_block], args[AT.output_z]
        start = args[AT.target] + 4 * y * args[AT.target_y]
        value_start = args[AT.output] + 4 * y * args[AT.output_y]
        values = loose + form.new_y * form.new_x * VECTOR_BYTES
        made_y = min(form.new_y, cover(args[AT.target_size_y] - y, args[AT.dilation_y]))
        whole_y, size_x = made_y == form.new_y and args[AT.dilation_x] == 1, args[AT.target_size_x]
        for block in range(args[AT.blocks]):
            from_, tile = points + block * _block_bytes(form, point), 0
            bias, sums = args[AT.bias] + block * VECTOR_BYTES, args[AT.bias_gradient]
            while tile < count:
                z, x = places[2 * tile], places[2 * tile + 1]
                target = start + address(strides, block, z, x)
                value = value_start + address(value_strides, block, z, x)
                here, by, seen, seen_by, run = target, steps[0], value, value_steps[0], 0
                made_x = form.new_x
                if whole_y:
                    run = side_by_side(form, count - tile, size_x - x, size_x - x - form.new_x)
                loosely = run <= 0
                if loosely:
                    made_x = min(made_x, cover(size_x - x, args[AT.dilation_x]))
                    made = made_y, made_x
                    if args[AT.output]:
                        copied(value, value_steps, made, values, packed)
                    if args[AT.accumulate]:
                        copied(target, steps, made, loose, packed)
                    here, by, seen, seen_by, run = loose, packed[0], values, packed[0], 1
                tile, ahead = tile + run, target + AHEAD * advance
                for _ in range(run):
                    # Of values whose signs a data gradient needs none are asked for: 3 to 8 % slower.
                    _ask_to_write(form, ahead, steps[0])
                    target_plane(
                        form, args, bias, seen, seen_by, from_, point, here, by, VECTOR_BYTES
                    )
                    # From what was stored, as the gradient of the function is applied by then.
                    if sums:
                        _added(
                            sums + block * VECTOR_BYTES, here, (by, VECTOR_BYTES), (made_y, made_x)
                        )
                    here, seen, ahead = here + advance, seen + advance, ahead + advance
                    from_ += VECTOR_BYTES
                if loosely:
                    copied(loose, packed, (made_y, made_x), target, steps)

    return finish


_transform, _finish = transform_of(POINT), finish_of(POINT)


@inlined
def rows_of(form: Any, args: Any, tile: int, most: int) -> Any:
    """Return how many rows of tiles from `tile` on go together, `most` at most: those of the task that begin inside."""
    rows = 0
    while rows < most and tile + rows < args[AT.y1]:
        if origin(tile + rows, args[AT.dilation_y], form.new_y) >= args[AT.target_size_y]:
            break
        rows += 1
    return rows


@inlined
def flat_march(form: Any, args: Any, filters: int, places: Any, count: int, scratch: int) -> None:
    """Compute all tiles along y of a group."""
    inputs, outputs, many = args[AT.inputs], args[AT.blocks], form.points_y * form.points_x
    products = scratch + compiled_loose_bytes(form)
    points = products + POINT
    skipped = compiled_point_bytes(inputs, outputs) - inputs * outputs * VECTOR_BYTES
    tile, most = args[AT.y0], max(1, MOST // count)
    # Rows of few tiles go together, as all filters are read with each group.
    rows = rows_of(form, args, tile, most)
    while rows:
        for row in range(rows):
            y, by = origin(tile + row, args[AT.dilation_y], form.new_y), row * count * VECTOR_BYTES
            _transform(form, args, places, count, y - args[AT.before_y], scratch, points + by)
        # Nothing is asked for meanwhile: whole planes are what a CPU sees coming by itself.
        multiply_blocks(
            many, inputs, outputs, rows * count, filters, points, POINT, _block_bytes(form, POINT), -POINT,
            skipped, None,
        )  # fmt: skip
        for row in range(rows):
            y, by = origin(tile + row, args[AT.dilation_y], form.new_y), row * count * VECTOR_BYTES
            _finish(form, args, places, count, y, scratch, products + by)
        tile += rows
        rows = rows_of(form, args, tile, most)
