"""Norms of weights, and of gradients as far as the optimiser remembers them: no pass is made for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.layers.optimizer import Optimizer

Arrays = Mapping[str, NDArray[Any]]
WHOLE = ""  # the name of all together


def weight_norms(parameters: Arrays) -> dict[str, float]:
    """Return the Euclidean norm of each filter array by name, and of all parameters under ""."""
    squares = {name: _square(array) for name, array in parameters.items()}
    filters = {name: it**0.5 for name, it in squares.items() if parameters[name].ndim == 5}
    return {WHOLE: sum(squares.values()) ** 0.5, **filters}


def gradient_norms(optimizer: Optimizer, states: Arrays, update: int) -> dict[str, float]:
    """Return norms of gradients as `weight_norms` does, from the optimiser's states after an update.

    Of Adam the root of the mean square over about 1 / (1 - beta2) updates, of momentum the norm of the mean over about
    1 / (1 - momentum); nothing of an optimiser that remembers neither.
    """
    squares, filters = dict[str, float](), list[str]()
    for name, kept in _by_parameter(states).items() if update else ():
        found = optimizer.entry.remembered(optimizer.keys, kept, update)
        if found is not None:
            squares[name] = float(found.sum(dtype=np.float64))
            filters += [name] if found.ndim == 5 else []
    if not squares:
        return {}
    return {WHOLE: sum(squares.values()) ** 0.5, **{name: squares[name] ** 0.5 for name in filters}}


def _by_parameter(states: Arrays) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the states of each parameter, from arrays named parameter/state."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in states.items():
        parameter, _, state = name.rpartition("/")
        found.setdefault(parameter, {})[state] = array
    return found


def _square(array: NDArray[Any]) -> float:
    flat = array.reshape(-1)
    # In pieces, as float64: no copy of a large layer.
    return float(sum(np.square(p.astype(np.float64)).sum() for p in _pieces(flat)))


def _pieces(flat: NDArray[Any], size: int = 1 << 18) -> list[NDArray[Any]]:
    return [flat[at : at + size] for at in range(0, len(flat), size)]
