"""Local shape descriptors: statistics of objects near their voxels, object by object, from runs of voxels along x."""

from __future__ import annotations

from math import sqrt
from typing import Any

from numba import float32, int64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.machine.native import native

RUN = 4
"""int64 of a run: z, y, its first x and the one behind its last."""
BOX = 10
"""int64 of an object: where it lies along z and y, as first and behind, and what of the core it lies in, z, y and x."""
# Sums of a voxel's neighbours in this order, so that each axis multiplies what lies side by side.
XX, COUNT, X, Y, YX, YY, Z, ZX, ZY, ZZ = range(10)
LEAST = float32(1e-3)  # of a variance, in voxels, as correlations are divided by it
HALF = float32(0.5)


@part
def _added(target: int, count: int, weights: Any, sources: Any) -> None:
    """Add four weighed lines at once: one alone would wait for memory."""
    found = floats(target)
    one, two, three, four = (
        floats(sources[0]), floats(sources[1]), floats(sources[2]), floats(sources[3]),
    )  # fmt: skip
    a, b, c, d = weights
    for i in range(count):
        found[i] += (a * one[i] + b * two[i]) + (c * three[i] + d * four[i])


@part
def _weights(table: int, which: int, places: Any) -> Any:
    """Return the weights by power `which` of four neighbours of a place; those beyond the last of them are 0."""
    known = floats(table + 4 * which)
    return (
        _weight(known, places[0]), _weight(known, places[1]), _weight(known, places[2]),
        _weight(known, places[3]),
    )  # fmt: skip


@part
def _weight(known: Any, place: int) -> Any:
    return known[3 * place] if place >= 0 else float32(0)


@part
def _beyond(sources: Any, by: int) -> Any:
    return sources[0] + by, sources[1] + by, sources[2] + by, sources[3] + by


@part
def _cleared(target: int, count: int) -> None:
    found = floats(target)
    for i in range(count):
        found[i] = 0


@part
def _bounds(box: Any, runs: int, first: int, last: int, shape: Any, margin: int) -> Any:
    """Find an object's box; return whether it lies in the core."""
    for i in range(BOX):
        box[i] = 0 if i % 2 else int64(1 << 40)
    for number in range(first, last):
        run = longs(runs + 8 * RUN * number)
        box[0], box[1] = min(box[0], run[0]), max(box[1], run[0] + 1)
        box[2], box[3] = min(box[2], run[1]), max(box[3], run[1] + 1)
        left, right = max(run[2], margin), min(run[3], shape[2] - margin)
        deep = run[0] >= margin and run[0] < shape[0] - margin
        if deep and run[1] >= margin and run[1] < shape[1] - margin and left < right:
            z, y = run[0] - margin, run[1] - margin
            box[4], box[5] = min(box[4], z), max(box[5], z + 1)
            box[6], box[7] = min(box[6], y), max(box[7], y + 1)
            box[8], box[9] = min(box[8], left - margin), max(box[9], right - margin)
    return box[4] < box[5]


@part
def _rows(
    target: int,
    filled: int,
    box: Any,
    runs: int,
    first: int,
    last: int,
    sums: int,
    shape: Any,
    margin: int,
) -> None:
    """Sum an object's runs, as seen along x: float32 (z, y, 3 sums, x). `filled`: int64 (z, y), where any are."""
    rows, left, width = box[3] - box[2], box[8], box[9] - box[8]
    seen = shape[2] - 2 * margin
    there = longs(filled)
    for i in range((box[1] - box[0]) * rows):
        there[i] = 0
    for number in range(first, last):
        run = longs(runs + 8 * RUN * number)
        row = (run[0] - box[0]) * rows + run[1] - box[2]
        place = target + 12 * row * width
        if there[row] == 0:
            _cleared(place, 3 * width)
        there[row] = 1
        for which in range(3):
            line = sums + 4 * (which * (shape[2] + 1) * seen + left)
            found = floats(place + 4 * which * width)
            before, behind = floats(line + 4 * run[2] * seen), floats(line + 4 * run[3] * seen)
            for i in range(width):
                found[i] += behind[i] - before[i]


@part
def _plane(target: int, room: int, filled: Any, box: Any, height: int, by_y: int) -> None:
    """Weigh the rows of a plane along y: float32 (y, 6 sums, x)."""
    rows, width, lines = box[3] - box[2], box[9] - box[8], box[7] - box[6]
    _cleared(target, 6 * lines * width)
    y = 0
    while y < rows:
        # The next four rows that hold anything.
        count, places, sources = 0, (-1, -1, -1, -1), (room, room, room, room)
        while y < rows and count < 4:
            if filled[y]:
                here = room + 12 * y * width
                places = (places[1], places[2], places[3], y)
                # Rows that hold nothing are not even zeros.
                sources = (
                    (sources[1], sources[2], sources[3], here)
                    if count
                    else (here, here, here, here)
                )
                count += 1
            y += 1
        if count == 0:
            break
        others = _beyond(sources, 4 * COUNT * width)
        for line in range(lines):
            table, place = (
                by_y + 12 * ((box[6] + line) * height + box[2]),
                target + 24 * line * width,
            )
            _added(place, 3 * width, _weights(table, 0, places), sources)
            _added(place + 4 * Y * width, 2 * width, _weights(table, 1, places), others)
            _added(place + 4 * YY * width, width, _weights(table, 2, places), others)


@part
def _moments(
    target: int, room: int, filled: int, planes: int, box: Any, shape: Any, by_z: int, by_y: int
) -> None:
    """Weigh rows along y and z: float32 (z, y, 10 sums, x)."""
    depth, rows, width = box[1] - box[0], box[3] - box[2], box[9] - box[8]
    layers, lines = box[5] - box[4], box[7] - box[6]
    size = 24 * lines * width
    _cleared(target, 10 * layers * lines * width)
    for z in range(0, depth, 4):
        count = min(4, depth - z)
        for k in range(count):
            here = longs(filled + 8 * (z + k) * rows)
            _plane(planes + k * size, room + 12 * (z + k) * rows * width, here, box, shape[1], by_y)
        places = (
            z,
            z + 1 if count > 1 else -1,
            z + 2 if count > 2 else -1,
            z + 3 if count > 3 else -1,
        )
        for layer in range(layers):
            table = by_z + 12 * ((box[4] + layer) * shape[0] + box[0])
            plain, once, twice = (
                _weights(table, 0, places),
                _weights(table, 1, places),
                _weights(table, 2, places),
            )
            for line in range(lines):
                place, first = (
                    target + 40 * (layer * lines + line) * width,
                    planes + 24 * line * width,
                )
                sources = (
                    first, first + size * min(1, count - 1), first + size * min(2, count - 1),
                    first + size * min(3, count - 1),
                )  # fmt: skip
                others = _beyond(sources, 4 * COUNT * width)
                _added(place, 6 * width, plain, sources)
                _added(place + 4 * Z * width, 3 * width, once, others)
                _added(place + 4 * ZZ * width, width, twice, others)


@part
def _share(value: float) -> Any:
    return min(max(value, float32(0)), float32(1))


@part
def _correlation(mixed: float, one: float, other: float) -> Any:
    return _share(mixed / float32(sqrt(one * other)) * HALF + HALF)


@part
def _described(
    target: int, moments: int, box: Any, run: Any, sigma: Any, shape: Any, margin: int
) -> None:
    """Write the descriptors of a run's voxels in the core."""
    z, y = run[0] - margin, run[1] - margin
    if z < 0 or z >= shape[0] - 2 * margin or y < 0 or y >= shape[1] - 2 * margin:
        return
    width = box[9] - box[8]
    line = (z - box[4]) * (box[7] - box[6]) + y - box[6]
    given = floats(moments + 40 * line * width)
    found, apart = (
        floats(target + 4 * (run[0] * shape[1] + run[1]) * shape[2]),
        shape[0] * shape[1] * shape[2],
    )
    for x in range(max(margin, run[2]), min(shape[2] - margin, run[3])):
        at = x - margin - box[8]
        count = given[at + COUNT * width]
        share = float32(1) / count
        to_z, to_y = given[at + Z * width] * share, given[at + Y * width] * share
        to_x = given[at + X * width] * share
        zz = max(given[at + ZZ * width] * share - to_z * to_z, LEAST)
        yy = max(given[at + YY * width] * share - to_y * to_y, LEAST)
        xx = max(given[at + XX * width] * share - to_x * to_x, LEAST)
        found[x] = _share(to_z / sigma[0] * HALF + HALF)
        found[x + apart] = _share(to_y / sigma[1] * HALF + HALF)
        found[x + 2 * apart] = _share(to_x / sigma[2] * HALF + HALF)
        found[x + 3 * apart] = _share(zz / (sigma[0] * sigma[0]))
        found[x + 4 * apart] = _share(yy / (sigma[1] * sigma[1]))
        found[x + 5 * apart] = _share(xx / (sigma[2] * sigma[2]))
        zy = given[at + ZY * width] * share - to_z * to_y
        zx = given[at + ZX * width] * share - to_z * to_x
        yx = given[at + YX * width] * share - to_y * to_x
        found[x + 6 * apart] = _correlation(zy, zz, yy)
        found[x + 7 * apart] = _correlation(zx, zz, xx)
        found[x + 8 * apart] = _correlation(yx, yy, xx)
        found[x + 9 * apart] = _share(count)


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def object_descriptors(
    target: int,
    shape: int,
    margin: int,
    objects: int,
    count: int,
    runs: int,
    sums: int,
    by_y: int,
    by_z: int,
    sigma: int,
    room: int,
) -> None:
    """Write ten descriptors of objects' voxels in the core of a region: float32 (10, z, y, x) of the region.

    `shape`: int64 z, y, x; the core begins `margin` behind its border. `objects`: int64, the first run of each of
    `count`, and behind the last; `runs`: int64, RUN of each. Neighbours are weighed by numbers times the distance to
    the power of 0, 1, 2: `sums`, float32 (3, x + 1, x of the core), those of all voxels before one, the square first;
    `by_y` and `by_z`, float32 (of the core, of the region, 3). `sigma`: float32 z, y, x. `room`: BOX and z y of the
    region words, and float32: 3 z y of it times x of the core, 24 y x and 10 z y x of the core.
    """
    whole = longs(shape)
    lines, seen = whole[1] - 2 * margin, whole[2] - 2 * margin
    box, filled = longs(room), room + 8 * BOX
    rows = filled + 8 * whole[0] * whole[1]
    planes = rows + 12 * whole[0] * whole[1] * seen
    moments = planes + 96 * lines * seen
    begins = longs(objects)
    for number in range(count):
        first, last = begins[number], begins[number + 1]
        if not _bounds(box, runs, first, last, whole, margin):
            continue
        _rows(rows, filled, box, runs, first, last, sums, whole, margin)
        _moments(moments, rows, filled, planes, box, whole, by_z, by_y)
        for place in range(first, last):
            run = longs(runs + 8 * RUN * place)
            _described(target, moments, box, run, floats(sigma), whole, margin)
