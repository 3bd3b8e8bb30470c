"""Labels that look as if few voxels had been labelled, by hand: strokes in a volume of zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from znnpy.data.values.glance import looked_at
from znnpy.data.volume import Array, Volume

# Share of voxels that are labelled: cells that touch fill more than half, with membranes of 0 too.
FEW = 1 / 4
HARDLY_ANY = 1 / 50
# Share of labelled voxels whose 6 neighbours have the same label: in a ball of radius 2 a fifth.
THIN = 1 / 4


@dataclass(frozen=True)
class Strokes:
    """How many `voxels` were looked at, of them `labelled` ones (not 0), and of those `inner` ones: inside a label."""

    voxels: int
    labelled: int
    inner: int

    @property
    def likely(self) -> bool:
        """Whether zeros seem to be what nobody looked at, not background."""
        share = self.labelled / max(1, self.voxels)
        return 0 < share < HARDLY_ANY or (0 < share < FEW and self.inner < THIN * self.labelled)


def strokes(labels: Volume) -> Strokes:
    """Looks at a bounded part of labels of one channel; errors as in `Volume.read`."""
    voxels = labelled = inner = 0
    for lower, upper in looked_at(labels):
        ids = labels.read(lower, upper)[0]
        marked = ids != 0
        voxels += ids.size
        labelled += int(marked.sum())
        inner += int((marked & _inside(ids)).sum())
    return Strokes(voxels, labelled, inner)


def _inside(ids: Array) -> Array:
    """Where no neighbour along z, y or x has another label; there is none beyond the array."""
    found = np.ones(ids.shape, np.bool_)
    for axis in range(ids.ndim):
        before, after = [slice(None)] * ids.ndim, [slice(None)] * ids.ndim
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        same = ids[tuple(before)] == ids[tuple(after)]
        found[tuple(before)] &= same
        found[tuple(after)] &= same
    return found
