"""Tensors of another program from the parameters that were made of them.

What each tensor becomes here is not written down a second time: numbered tensors are taken over as the program's own
were, and what has come where is turned round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ExportError

Arrays = Mapping[str, NDArray[Any]]
DIGIT = 1 << 20  # numbers are carried in float32, which holds integers to 2^24
MARK = -7.0  # stands for all that comes from tensors; what is the same without it does not


def turned_round(
    shapes: Mapping[str, tuple[int, ...]], made: Callable[[Arrays], Arrays], parameters: Arrays
) -> dict[str, NDArray[Any]]:
    """Return tensors of these shapes of which `made` makes the parameters; NaN where it uses none of a number.

    `made` must not calculate with them. Raises ExportError for parameters that it does not make.
    """
    starts = dict(zip(shapes, accumulate(map(prod, shapes.values()), initial=0), strict=False))
    numbers = {name: np.arange(prod(it)).reshape(it) + starts[name] for name, it in shapes.items()}
    low = made({name: it % DIGIT for name, it in numbers.items()})
    high = made({name: it // DIGIT for name, it in numbers.items()})
    mark = made({name: np.full(it, MARK) for name, it in shapes.items()})
    dtype = np.result_type(np.float32, *(it.dtype for it in parameters.values()))
    flat = np.full(sum(map(prod, shapes.values())), np.nan, dtype)
    for name, array in parameters.items():
        if name not in mark or mark[name].shape != array.shape:
            raise ExportError(f"{name} of shape {array.shape} is not of the class")
        from_it = (mark[name] == MARK) & (
            low[name] >= 0
        )  # other constants may be the mark's number
        places = [part[name][from_it].astype(np.int64) for part in (low, high)]
        flat[places[0] + DIGIT * places[1]] = array[from_it]
    return {
        name: flat[starts[name] : starts[name] + prod(shape)].reshape(shape)
        for name, shape in shapes.items()
    }


def refuse_other(again: Arrays, parameters: Arrays) -> None:
    """Raise ExportError unless what was made of turned tensors is what they came from, in float32."""
    for name, array in parameters.items():
        if name not in again or not np.array_equal(again[name], array.astype(np.float32)):
            raise ExportError(f"{name} does not come from its tensors alone")
