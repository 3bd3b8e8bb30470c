"""MALIS weights: for each edge of an affinity graph, the share of voxel pairs that it decides on.

Voxels are joined by edges, channel k of the output by those from v to v + offset k. Two voxels are as connected as
the weakest edge on the best path between them: the edge that joins them when edges are taken from the strongest on
(Briggman et al. 2009). Constrained as by Funke et al. (2018): first only edges within objects are taken, then all
others besides. So an edge within an object counts the pairs of its object that it joins, any other edge the pairs of
two objects that it merges.

Objects are the voxels joined by edges of target 1; a voxel without any is background. Edges of weight 0 do not
exist.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import quotient
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats, ints, longs

ROWS = words(
    "output output_block output_z output_y target weight places channels planes rows width lanes"
)
ORDER = words(ROWS, "offsets order count scratch")
# 11 bits: 2048 counters of 8 bytes are 16 KiB.
# Bits of a pass of the radix sort: three passes for 32 bits, with counters that stay in the L1 cache.
DIGIT = 11
# Values of a digit, a counter each.
DIGITS = 1 << DIGIT


@inlined
def _neighbour(
    offsets: int, k: int, z: int, y: int, x: int, planes: int, rows: int, width: int
) -> int:
    """Return the number of the voxel at offset k from one; -1 outside."""
    there = longs(offsets)
    z, y, x = z + there[3 * k], y + there[3 * k + 1], x + there[3 * k + 2]
    inside = 0 <= z < planes and 0 <= y < rows and 0 <= x < width
    return (z * rows + y) * width + x if inside else -1


@inlined
def _key(bits: int) -> int:
    """Return 32 bits that, as unsigned, grow as the float32 with these bits falls."""
    # IEEE floats compare like integers with signs and magnitudes: positive ones are turned round, negative ones
    # fall as their bits grow.
    return bits if bits < 0 else 0x7FFFFFFF - bits


@inlined
def _pass(
    count: int, shift: int, keys: int, edges: int, to_keys: int, to_edges: int, starts: int
) -> None:
    """Sort by one digit, stably: equal digits keep their order."""
    at = longs(starts)
    for d in range(DIGITS):
        at[d] = 0
    for i in range(count):
        at[(ints(keys)[i] >> shift) & (DIGITS - 1)] += 1
    first = 0
    # From counts to the first place of each digit.
    for d in range(DIGITS):
        many = at[d]
        at[d] = first
        first += many
    for i in range(count):
        d = (ints(keys)[i] >> shift) & (DIGITS - 1)
        place = at[d]
        ints(to_keys)[place] = ints(keys)[i]
        ints(to_edges)[place] = ints(edges)[i]
        at[d] = place + 1


@kernel(ORDER)
def malis_order(args: Any, worker: int) -> None:
    """Sort the edges that exist, from the largest value on, ties by number: int32 at `order`.

    `count`: address of one int64, how many. `offsets`: address of three int64 (z, y, x) for each channel. `scratch`:
    12 bytes for each edge and 8 * DIGITS + 8. Edge number: channel * voxels + voxel. Other words as in `loss_rows`;
    `target` and `weight` are of the sample's first channel, dense, by `places`.
    """
    at = ORDER
    planes, rows, width, lanes = args[at.planes], args[at.rows], args[at.width], args[at.lanes]
    voxels = planes * rows * width
    edges = args[at.order]
    keys, other_keys = args[at.scratch], args[at.scratch] + 4 * voxels * args[at.channels]
    others = other_keys + 4 * voxels * args[at.channels]
    starts = others + 4 * voxels * args[at.channels]
    # To a multiple of 8, as counters are int64; up to 8 bytes further on.
    starts += 8 - starts % 8
    weight = longs(args[at.places])[1]
    weight = weight + args[at.weight] if weight else 0
    count = 0
    for k in range(args[at.channels]):
        image = args[at.output] + 4 * (k // lanes) * args[at.output_block] + 4 * (k % lanes)
        for z in range(planes):
            for y in range(rows):
                row = image + 4 * (z * args[at.output_z] + y * args[at.output_y])
                for x in range(width):
                    edge = k * voxels + (z * rows + y) * width + x
                    there = _neighbour(args[at.offsets], k, z, y, x, planes, rows, width)
                    known = there >= 0 and (weight == 0 or floats(weight)[edge] != 0.0)
                    if known:
                        ints(keys)[count] = _key(ints(row)[x * lanes])
                        ints(edges)[count] = edge
                        count += 1
    longs(args[at.count])[0] = count
    # From the lowest digit on; stable passes make the order of all 32 bits, and ties stay in order of numbers.
    _pass(count, 0, keys, edges, other_keys, others, starts)
    _pass(count, DIGIT, other_keys, others, keys, edges, starts)
    _pass(count, 2 * DIGIT, keys, edges, other_keys, others, starts)
    # Three passes end in the other array.
    for i in range(count):
        ints(edges)[i] = ints(others)[i]


SHARES = words(
    "order count target places channels planes rows width offsets shares scratch positive:float "
    "given base"
)


@inlined
def _root(parents: int, v: int) -> int:
    at = ints(parents)
    while at[v] != v:
        # Path halving: every other voxel on the way is joined to its grandparent, so later walks are short.
        at[v] = at[at[v]]
        v = at[v]
    return v


@inlined
def _join(args: Any, target: int, wanted: bool, parents: int, sizes: int, voxels: int) -> float:
    """Take the edges of target 1, or the others, in order; write the pairs that each decides on, return their sum."""
    at = SHARES
    rows, width = args[at.rows], args[at.width]
    found = 0.0
    for i in range(longs(args[at.count])[0]):
        edge = ints(args[at.order])[i]
        # In order of the values: of the edges of one kind each joins the two sets that were not joined by a
        # stronger one.
        if (floats(target)[edge] > 0.5) == wanted:
            k, v = edge // voxels, edge % voxels
            z, y, x = v // (rows * width), v // width % rows, v % width
            there = _neighbour(args[at.offsets], k, z, y, x, args[at.planes], rows, width)
            one, other = _root(parents, v), _root(parents, there)
            if one != other:
                size = doubles(sizes)
                # In float64: pairs of large objects exceed 2^53 seldom, and int32 early.
                pairs = size[one] * size[other]
                found += pairs
                floats(args[at.shares])[edge] = pairs
                ints(parents)[other] = one
                size[one] += size[other]
    return found


@kernel(SHARES)
def malis_shares(args: Any, worker: int) -> None:
    """Write the share of all pairs that each edge decides on, float32 by edge number at `shares`.

    Shares of edges within objects add up to `positive`, those of others to 1 - `positive`, or 0 where there are no
    pairs. `order`, `count` as `malis_order` leaves them; `target` as there. `scratch`: 12 bytes for each voxel.
    `given`: address of two int64 where the loss will find those of targets and of its weights, which begin at
    `base`.
    """
    at = SHARES
    voxels = args[at.planes] * args[at.rows] * args[at.width]
    edges = voxels * args[at.channels]
    target = args[at.target] + longs(args[at.places])[0]
    sizes, parents = args[at.scratch], args[at.scratch] + 8 * voxels
    shares = floats(args[at.shares])
    for edge in range(edges):
        shares[edge] = 0.0
    for v in range(voxels):
        ints(parents)[v] = v
        doubles(sizes)[v] = 1.0
    # First within objects, with all voxels alone; the sets that remain are objects.
    within = _join(args, target, True, parents, sizes, voxels)
    for v in range(voxels):
        # A voxel alone is background, whose pairs do not count.
        if ints(parents)[v] == v and doubles(sizes)[v] == 1.0:
            doubles(sizes)[v] = 0.0
    between = _join(args, target, False, parents, sizes, voxels)
    positive = float_argument(args[at.positive])
    inner = quotient(positive, within) if within > 0.0 else 0.0
    outer = quotient(1.0 - positive, between) if between > 0.0 else 0.0
    for edge in range(edges):
        # Edges that join nothing decide on nothing, and stay 0.
        if shares[edge] != 0.0:
            shares[edge] = shares[edge] * (inner if floats(target)[edge] > 0.5 else outer)
    longs(args[at.given])[0] = longs(args[at.places])[0]
    longs(args[at.given])[1] = args[at.base]
