"""Agglomeration: the two regions with the least boundary between them become one, again and again."""

from __future__ import annotations

from typing import Any

from numba import int64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import doubles, ints, longs
from znnpy_kernels.machine.native import native

# Two large odd numbers below 2^63: their products spread keys over a table.
ODD_A, ODD_B = 7046029254386353131, 2685821657736338717


@part
def _home(node: Any, edge: int, mask: int) -> int:
    """Return where a pair would lie in the table: the same for both orders of its ends."""
    one, other = node[2 * edge], node[2 * edge + 1]
    mixed = int64(min(one, other) * ODD_A) ^ int64(max(one, other) * ODD_B)
    return (mixed ^ (mixed >> 31)) & mask  # type: ignore[no-any-return]


@part
def _slot(table: Any, mask: int, node: Any, edge: int) -> int:
    """Return the slot of an edge with the same ends as this one, or else the free one that this would take."""
    slot = _home(node, edge, mask)
    one, other = node[2 * edge], node[2 * edge + 1]
    while table[slot] != 0:
        # Edges are counted from 1 there, 0 being free.
        there = table[slot] - 1
        low, high = node[2 * there], node[2 * there + 1]
        if (low == one and high == other) or (low == other and high == one):
            break
        slot = int64((slot + 1) & mask)
    return int64(slot)  # type: ignore[no-any-return]


@part
def _free(table: Any, mask: int, node: Any, slot: int) -> None:
    """Empty a slot; what probing had moved beyond it comes back, so that no probe ends early."""
    hole, slot = int64(slot), int64((slot + 1) & mask)
    while table[slot] != 0:
        home = _home(node, table[slot] - 1, mask)
        # Whether the hole lies between home and slot, around the end of the table.
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            table[hole] = table[slot]
            hole = slot
        slot = int64((slot + 1) & mask)
    table[hole] = 0


@part
def _link(heads: Any, following: Any, before: Any, node: int, end: int) -> None:
    """Put an end of an edge first in the list of a region."""
    head = heads[node]
    following[end], before[end] = head, -1
    if head >= 0:
        before[head] = end
    heads[node] = end


@part
def _unlink(heads: Any, following: Any, before: Any, node: int, end: int) -> None:
    if before[end] >= 0:
        following[before[end]] = following[end]
    else:
        heads[node] = following[end]
    if following[end] >= 0:
        before[following[end]] = before[end]


@part
def _less(value: Any, one: int, other: int) -> bool:
    """Return whether an edge comes before another: by its boundary, of equal ones by its number."""
    if value[one] != value[other]:
        return bool(value[one] < value[other])
    return bool(one < other)


@part
def _rise(heap: Any, place: Any, value: Any, slot: int) -> int:
    edge, slot = heap[slot], int64(slot)
    while slot > 0:
        parent = (slot - 1) >> 1
        if not _less(value, edge, heap[parent]):
            break
        heap[slot] = heap[parent]
        place[heap[slot]] = slot
        slot = int64(parent)
    heap[slot], place[edge] = edge, slot
    return slot


@part
def _sink(heap: Any, place: Any, value: Any, slot: int, last: int) -> None:
    edge, slot = heap[slot], int64(slot)
    while True:
        child = int64(2 * slot + 1)
        if child >= last:
            break
        if child + 1 < last and _less(value, heap[child + 1], heap[child]):
            child += 1
        if not _less(value, heap[child], edge):
            break
        heap[slot] = heap[child]
        place[heap[slot]] = slot
        slot = child
    heap[slot], place[edge] = edge, slot


@part
def _take_out(heap: Any, place: Any, value: Any, edge: int, waiting: int) -> int:
    """Take an edge out of the heap, if it is there; return how many are left."""
    slot = place[edge]
    if slot < 0:
        return waiting
    place[edge] = -1
    last = heap[waiting - 1]
    if last != edge:
        heap[slot], place[last] = last, slot
        _sink(heap, place, value, _rise(heap, place, value, slot), waiting - 1)
    return waiting - 1


@part
def _boundary(total: Any, size: Any, counts: Any, bins: int, edge: int) -> float:
    """Return the mean boundary of an edge, or, with `bins`, its median, even within a bin."""
    if bins == 0:
        return float(total[edge] / size[edge])
    half, passed = size[edge] / 2, 0.0
    for number in range(bins):
        count = counts[edge * bins + number]
        if count > 0 and passed + count >= half:
            return float((number + (half - passed) / count) / bins)
        passed += count
    return 1.0


@native(f"void({', '.join(['int64'] * 17)}, float64)")
def join(
    regions: int,
    edges: int,
    nodes: int,
    totals: int,
    sizes: int,
    histograms: int,
    bins: int,
    voxels: int,
    parents: int,
    heads_: int,
    degrees: int,
    links: int,
    heap_: int,
    places: int,
    values: int,
    table_: int,
    least: int,
    threshold: float,
) -> None:
    """Join regions while the least boundary is below `threshold`, or one of its two has fewer than `least` voxels.

    `nodes` int64 (edges, 2), each pair once; `totals` and `sizes` float64, sums of the boundary over faces and their
    number; `histograms` int32 (edges, bins), of no use where `bins` is 0; `voxels` and `parents` int64 (regions): what
    a region became part of, itself at first. All of these change. Room: `heads_` and `degrees` int64 (regions),
    `links` int64 (4 edges), `heap_` and `places` int64, `values` float64 (edges), `table_` int64: its length, a
    power of two of at least twice the edges, then as many zeros.
    """
    node, total, size, counts = longs(nodes), doubles(totals), doubles(sizes), ints(histograms)
    voxel, parent, heads, degree = longs(voxels), longs(parents), longs(heads_), longs(degrees)
    following, before = longs(links), longs(links + 16 * edges)
    heap, place, value = longs(heap_), longs(places), doubles(values)
    mask, table = longs(table_)[0] - 1, longs(table_ + 8)
    waiting = int64(0)
    for region in range(regions):
        heads[region], degree[region] = -1, 0
    for edge in range(edges):
        table[_slot(table, mask, node, edge)] = edge + 1
        for end in range(2 * edge, 2 * edge + 2):
            _link(heads, following, before, node[end], end)
            degree[node[end]] += 1
        value[edge], place[edge] = _boundary(total, size, counts, bins, edge), -1
        if value[edge] < threshold or least > 0:
            heap[waiting] = edge
            _rise(heap, place, value, waiting)
            waiting += 1
    while waiting > 0:
        best = heap[0]
        waiting = _take_out(heap, place, value, best, waiting)
        a, b = node[2 * best], node[2 * best + 1]
        if value[best] >= threshold and min(voxel[a], voxel[b]) >= least:
            continue  # until its boundary changes
        # The one with fewer neighbours moves, so that each moves rarely.
        if degree[a] < degree[b]:
            a, b = b, a
        parent[b] = a
        voxel[a] += voxel[b]
        _free(table, mask, node, _slot(table, mask, node, best))
        for end in range(2 * best, 2 * best + 2):
            _unlink(heads, following, before, node[end], end)
            degree[node[end]] -= 1
        end = heads[b]
        while end >= 0:
            after, edge, beyond = following[end], end >> 1, node[end ^ 1]
            _free(table, mask, node, _slot(table, mask, node, edge))
            node[end] = a
            slot = _slot(table, mask, node, edge)
            if table[slot] == 0:
                table[slot] = edge + 1
                _link(heads, following, before, a, end)
                degree[a] += 1
            else:
                # Both had this neighbour: their faces with it are one.
                same = table[slot] - 1
                total[same] += total[edge]
                size[same] += size[edge]
                for number in range(bins):
                    counts[same * bins + number] += counts[edge * bins + number]
                _unlink(heads, following, before, beyond, end ^ 1)
                degree[beyond] -= 1
                waiting = _take_out(heap, place, value, edge, waiting)
                value[same] = _boundary(total, size, counts, bins, same)
                if place[same] >= 0:
                    _sink(heap, place, value, _rise(heap, place, value, place[same]), waiting)
                elif value[same] < threshold or least > 0:
                    heap[waiting] = same
                    _rise(heap, place, value, waiting)
                    waiting += 1
            end = after
        heads[b], degree[b] = -1, 0
