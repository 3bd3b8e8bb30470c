"""A family of kernels, as others declare one: processes that compile and load it import it from here."""

from __future__ import annotations

from typing import Any

import numpy as np
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats

AT = words("source target")


@inlined
def plus(x: float, more: float) -> float:
    return x + more


@inlined
def times(x: float, more: float) -> float:
    return x * more


def moved(name: str, function: Any, more: Any) -> Kernel:
    @kernel(AT, name=f"moved_{name}")
    def one(args: Any, worker: int) -> None:
        floats(args[AT.target])[0] = function(floats(args[AT.source])[0], more)

    return one


FAMILY = {
    "plus_1": moved("plus_1", plus, 1),
    "plus_2": moved("plus_2", plus, 2),
    "times_5": moved("times_5", times, 5.0),
}


def result(made: Kernel) -> float:
    """Of 3."""
    target = np.zeros(1, np.float32)
    made.run(source=np.full(1, 3, np.float32), target=target)
    return float(target[0])
