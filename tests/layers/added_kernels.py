"""Kernels of a function that is no part of znnpy; processes that compile import them from here."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.activation_rows import (
    BACKWARD_WORDS,
    FORWARD_WORDS,
    NORMED_WORDS,
    backward,
    forward,
    normed,
)
from znnpy_kernels.machine.abi import kernel
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


@kernel(FORWARD_WORDS)
def transfer_hard_tanh(args: Any, worker: int) -> None:
    """y = x + bias, at least -1, at most 1."""
    forward(args, _hard_tanh)


@kernel(BACKWARD_WORDS)
def backward_hard_tanh(args: Any, worker: int) -> None:
    """target = gradient where -1 < y < 1, else 0."""
    backward(args, _hard_tanh_back)


@kernel(NORMED_WORDS)
def normed_hard_tanh(args: Any, worker: int) -> None:
    """Of hard_tanh, behind a normalised sum."""
    normed(args, _hard_tanh, _hard_tanh_back)
