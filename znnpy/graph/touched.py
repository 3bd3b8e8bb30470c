"""`Touched`: which stripes of memory the tasks of a graph read and write, for those that count bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Touched:
    """The stripes that each task that works touches, in the order of tasks; what only waits touches none.

    Task t touches stripes[starts[t] : starts[t + 1]], once for reading and once for writing, and stores to those where
    `written` is 1. `sizes`: bytes of each stripe. Stripes do not overlap.
    """

    starts: Ints
    stripes: Ints
    written: Ints
    sizes: Floats

    def bytes(self) -> Floats:
        """Return the bytes that each task reads and writes, wherever they come from: a store reads its lines first."""
        moved = np.concatenate([[0.0], np.cumsum(self.sizes[self.stripes] * (1 + self.written))])
        return np.asarray(np.diff(moved[self.starts]), np.float64)
