"""What a method is asked for, as each tile is told, and what is a boundary of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.errors import VolumeError

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Wanted:
    """What a prediction shows (`Kind`), the affinities' offsets (z, y, x), threshold and least voxels of an object."""

    kind: str
    threshold: float
    offsets: tuple[Triple, ...] = ()
    min_size: int = 0

    @property
    def level(self) -> float:
        """The boundary below which voxels join."""
        return self.threshold if self.kind == "boundary" else 1 - self.threshold


def near_channels(offsets: Sequence[Triple]) -> list[int]:
    """Return the channels of affinities to a next neighbour."""
    return [index for index, offset in enumerate(offsets) if sum(map(abs, offset)) == 1]


def boundaries(values: Float32, kind: str, offsets: Sequence[Triple]) -> Float32:
    """Return a map (z, y, x) that is high on boundaries, of probabilities (C, z, y, x)."""
    if kind == "boundary":
        return np.asarray(values[0])
    near = near_channels(offsets)
    if kind == "affinity" and not near:
        raise VolumeError("no offset of the affinities is a step to a next neighbour")
    inside = values[0] if kind == "foreground" else values[near].min(axis=0)
    return np.asarray(np.float32(1) - inside)
