"""Decides where passes whose marches are too few for many workers go in stages instead; the values are the same.

Passes that leave sums for biases behind have leaves that no number of workers may decide: there sizes do, alone.
"""

from __future__ import annotations

from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.layout import Layout
from znnpy.network.types import Edge
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd import points_bytes, winograd_seconds
from znnpy.plan.algorithms.winograd_tiles import lattice_steps, tiles_by_axis

READING_RATE = 60e9
"""Bytes a second of transformed filters from the L2 cache, all of which each march reads."""
LONGER = 2.0
"""How much longer than an even share of all marches stages take: they write what waits, and wait for each other."""


def spreads(layout: Layout, edge: Edge, shape: ConvShape, *, backward: bool) -> bool:
    """Return whether a pass goes in stages for the sake of many workers, by the estimates of both."""
    grain, summed = layout.grain, backward and applied_backward(layout, edge) is not None
    if not grain.many or summed or {edge.source, edge.target} & layout.planar:
        return False
    seconds, reading = winograd_seconds(shape), points_bytes(shape) / READING_RATE
    marches = max(1, min(_most_marches(shape, layout.cut), int(seconds / grain.least)))
    rounds = -(-marches // grain.fewest)
    return bool(
        rounds * (seconds / marches + reading) > LONGER * seconds / grain.fewest + grain.least
    )


def _most_marches(shape: ConvShape, cut: int) -> int:
    """Return how many marches of one row of tiles a pass has; `cut`: the axis along which planes are counted."""
    z, y, _ = tiles_by_axis(shape)
    # Marches go along y, whose lattices they take one after the other.
    apart = lattice_steps(shape.size, shape.dilation)[1]
    return shape.batch * (z * -(-y // apart) if cut == 0 else y)
