"""Learning rates at which nothing moves: of the first updates by the weights, of later ones by the schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

STILL = 1e-4  # share of their norm below which filters have not moved
NOTHING = 1e-4  # share of the highest learning rate that is as good as none
MOST = 0.5  # share of all updates that may be made at such a rate
LOOKS = 1000  # updates whose rates are looked at

Arrays = Mapping[str, NDArray[Any]]


def filters_of(parameters: Arrays, frozen: frozenset[str]) -> dict[str, NDArray[Any]]:
    """Return the filters that are to move."""
    return {
        name: it
        for name, it in parameters.items()
        if it.ndim == 5 and name not in frozen and it.any()
    }


def movement(before: Arrays, after: Arrays) -> float:
    """Return how far the filters that moved farthest did so, as a share of their norm; `after` has more arrays."""
    return max(
        float(np.linalg.norm(np.subtract(after[name], it, dtype=np.float64)) / np.linalg.norm(it))
        for name, it in before.items()
    )


def idle_from(rate: Callable[[int], float], iterations: int) -> int | None:
    """Return the update from which on the learning rate is next to nothing, where these are most of all updates."""
    updates = np.unique(np.linspace(0, iterations - 1, min(LOOKS, iterations)).astype(int))
    rates = np.array([rate(int(update)) for update in updates])
    alive = np.flatnonzero(rates > NOTHING * rates.max())
    last = int(updates[alive[-1]])
    return last + 1 if iterations - 1 - last > MOST * iterations else None
