"""Checks a finished prediction for seams: recomputes voxels around borders of blocks, and compares.

They are computed in patches shifted by half, so that what was a border lies in the middle; of many places each in a
patch of its own, which is smaller. Windows stay where they are, as values depend on them, and only blocks differ: then
not a bit may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from znnpy.data.opening import open_volume
from znnpy.data.volume import Triple
from znnpy.data.writing.destination import Destination
from znnpy.infer.block_writer import predicting
from znnpy.infer.blocks import Region, add, sub, triple
from znnpy.infer.grid import Grid
from znnpy.infer.job import Job
from znnpy.infer.patch_search import Candidate, covering

# Wide enough to hold both sides of a border, small enough that many places take seconds.
WIDTH = 16  # voxels of a looked-at box along each axis
# Relative to the largest value seen: far above rounding, far below a seam that anybody would see.
TOLERANCE = 1e-3  # of float32 algorithms that round differently in shifted patches
STARTING = 3.0  # seconds that smaller patches must save, by estimate: what planning and compiling for them may take
SEED = 20_000  # any: the same places are checked each time


Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Seams:
    """The result of a check: number of places, and the largest difference in the written values."""

    places: int
    largest: float
    where: Triple
    allowed: float

    @property
    def found(self) -> bool:
        """Whether there is a seam."""
        return self.largest > self.allowed


def verify_seams(job: Job, destination: Destination, count: int, show: Show | None = None) -> Seams:
    """Compare up to `count` places on borders of blocks or patches with a computation that has no border there.

    Places are drawn with a fixed seed; none is taken twice. Positions are voxels of the output. `show` is told what is
    being done, and how many places of how many are compared.
    """
    count = min(count, prod(len(_borders(job, axis)) for axis in range(3)))
    small = _small(job, count)
    grid = job.grid if job.grid.blends else _shifted(job)
    places, (largest, where, scale) = 0, (0.0, (0, 0, 0), 1.0)
    with (
        open_volume(
            destination.place, destination.dataset or None, max_bytes=job.spec.nbytes
        ) as written,
        predicting(small or job, grid=grid) as prediction,
    ):
        for box in _places(job, count):
            places += 1
            if small:
                patch = Grid.of(small.candidate.geometry).patch
                prediction.grid = _around(box, patch, job.tiling.unit)
            if show:
                show("places compared", places, count)
            found = prediction.region(box)[job.request.node.name].astype(np.float64)
            there = box.moved(sub((0, 0, 0), job.region.lower))
            known = written.read(there.lower, there.upper).astype(np.float64)
            scale = max(scale, float(np.abs(known).max()))
            difference = float(np.abs(known - found).max())
            if difference > largest:
                largest, where = difference, there.lower
    # uint8: a value near a half may round to either neighbour.
    rounding = 1.0 if job.spec.dtype == np.uint8 else TOLERANCE * scale
    # Windows do not move, so the same sums are made in the same order: not a bit may differ.
    return Seams(places, largest, where, 0.0 if job.grid.blends else rounding)


def _shifted(job: Job) -> Grid:
    """Return the job's grid, moved by half a patch, in whole periods of pooling."""
    steps = zip(job.grid.unit, job.tiling.unit, strict=True)
    return Grid(job.grid.unit, triple(n // 2 // one * one for n, one in steps))


def _small(job: Job, count: int) -> Job | None:
    """Return the job with patches that hold one box each, wherever it lies; None where that saves too little."""
    if job.grid.blends:
        return None
    room = triple(WIDTH + step - 1 for step in job.tiling.unit)
    found = Candidate(job.network, covering(job.network, room), job.weights.config.training.conv)
    # Places follow each other: several of one patch take one pass.
    passes = min(count, job.grid.count(job.region))
    saved = passes * job.candidate.seconds - count * found.seconds
    return replace(job, candidate=found, kept=0) if saved > STARTING else None


def _around(box: Region, patch: Triple, unit: Triple) -> Grid:
    """Return a grid of which one patch holds a box, on the lattice of pooling."""
    return Grid(patch, triple(a // n * n for a, n in zip(box.lower, unit, strict=True)))


def _places(job: Job, count: int) -> Iterator[Region]:
    """Yield boxes around corners where borders of patches or blocks meet; anywhere if there are no borders."""
    rng, half = np.random.default_rng(SEED), (WIDTH // 2,) * 3
    borders = [_borders(job, axis) for axis in range(3)]
    corners = tuple(map(len, borders))
    total = prod(corners)
    count = min(count, total)
    for number in range(count):
        # One of each share of the corners, so that none comes twice: a list of all might not fit into memory.
        drawn = rng.integers(number * total // count, (number + 1) * total // count)
        places = zip(borders, np.unravel_index(drawn, corners), strict=True)
        middle = triple(axis[place] for axis, place in places)
        yield Region(sub(middle, half), add(middle, half)).within(job.region)


def _borders(job: Job, axis: int) -> list[int]:
    """Return the borders of blocks and patches along an axis, or where to look if there are none."""
    low, high = job.region.lower[axis], job.region.upper[axis]
    step = job.grid.unit[axis]
    blocks = {low + lower[axis] for lower, _ in job.spec.blocks()}
    # Borders of blocks and of patches: a fault may be in either.
    inner = sorted((blocks | set(range(low - low % step, high, step))) - {low})
    found = [place for place in inner if low < place < high]
    # Without any, boxes around these places hold all voxels.
    count = -(-(high - low) // WIDTH)
    return found or [low + (2 * it + 1) * (high - low) // (2 * count) for it in range(count)]
