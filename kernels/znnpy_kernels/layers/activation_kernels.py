"""Kernels of an activation function on channel blocks; how they go over rows says `activation_rows`."""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.layers.activation_rows import (
    BACKWARD_WORDS,
    FORWARD_WORDS,
    NORMED_WORDS,
    backward,
    forward,
    normed,
)
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.inlining import inlined


class Activation(NamedTuple):
    """The kernels of a function: values, gradients, and gradients behind a norm."""

    forward: Kernel
    backward: Kernel
    normed: Kernel


def activation(
    name: str, value: Any, *, by_value: Any = None, by_sum: Any = None, of_zero: int = 0
) -> Activation:
    """The kernels of a function, of its code on vectors.

    `value(v, shape)` is f(v). `by_value(y, gradient, shape)` is gradient * f'(v) expressed by y = f(v),
    `by_sum(v, gradient, shape)` the same by v: either, or both where both are cheap. A function without
    `by_value` has its sum kept for its gradient. `of_zero`: 1 where f(0) is not 0, so that pad lanes are set to 0.
    """
    return Activation(
        _forward(name, value, int(by_value is None), of_zero),
        # By the value where it can be: the sum then need not be kept.
        _backward(name, by_value or by_sum),
        # Behind a norm the sum is made again anyway: by it, the function need not be computed.
        _normed(name, _sum if by_sum else value, by_sum or by_value),
    )


def _forward(name: str, value: Any, keeps: int, masks: int) -> Kernel:
    @kernel(FORWARD_WORDS, name=f"transfer_{name}")
    def transfer(args: Any, worker: int) -> None:
        """y = f(x + bias)."""
        forward(args, value, keeps, masks)

    return transfer


def _backward(name: str, derivative: Any) -> Kernel:
    @kernel(BACKWARD_WORDS, name=f"backward_{name}")
    def backwards(args: Any, worker: int) -> None:
        """target = gradient * f'(v), from what is at `output`: y, or v where the function keeps it."""
        backward(args, derivative)

    return backwards


def _normed(name: str, function: Any, derivative: Any) -> Kernel:
    @kernel(NORMED_WORDS, name=f"normed_{name}")
    def behind_norm(args: Any, worker: int) -> None:
        """Gradients by what is normalised before f, or their sums."""
        normed(args, function, derivative)

    return behind_norm


@inlined
def _sum(x: Any, shape: Any) -> Any:
    return x
