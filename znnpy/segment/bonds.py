"""What joins and parts fragments of a mutex watershed: the surest attraction and repulsion between each two.

Of all voxel edges between two fragments the surest of either kind decides, as the others come later and change nothing.
So tiles need to know only these two, and the largest of several tiles are those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BOND = 100  # bytes that a pair takes in the graph at the peak


@dataclass(frozen=True)
class Bonds:
    """`pairs` int64 (N, 2) of fragments, the lower first, each once, in order.

    `attraction`, `repulsion` float32 (N,): the surest edge of either kind between them, -inf where there is none.
    """

    pairs: NDArray[np.int64]
    attraction: NDArray[np.float32]
    repulsion: NDArray[np.float32]


def strongest(parts: Sequence[Bonds], count: int) -> Bonds:
    """Return the bonds of parts of a volume as those of all of it; fragments are numbered below `count`."""
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(it.pairs for it in parts)])
    keys = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    key, place = np.unique(keys, return_inverse=True)
    found = []
    for values in ([it.attraction for it in parts], [it.repulsion for it in parts]):
        surest = np.full(len(key), -np.inf, np.float32)
        if len(key):
            np.maximum.at(surest, place, np.concatenate(values))
        found.append(surest)
    return Bonds(np.stack(np.divmod(key, max(count, 1)), axis=1), *found)
