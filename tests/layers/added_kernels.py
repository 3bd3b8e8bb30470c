"""A function that is no part of znnpy, on vectors; processes that compile its kernels import it from here."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.activation_functions import ACTIVATIONS
from znnpy_kernels.layers.activation_kernels import activation
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.vectors import select, splat


@inlined
def _hard_tanh(x: Any, shape: Any) -> Any:
    low = select(x <= splat(-1.0), splat(-1.0), x)
    return select(low > splat(1.0), splat(1.0), low)


@inlined
def _hard_tanh_back(y: Any, g: Any, shape: Any) -> Any:
    inside = select(y >= splat(1.0), splat(0.0), g)
    return select(y <= splat(-1.0), splat(0.0), inside)


ACTIVATIONS["hard_tanh"] = activation("hard_tanh", _hard_tanh, by_value=_hard_tanh_back)
