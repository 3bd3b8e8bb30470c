"""Operators that change each number by itself: activation functions, and those made of several; constants."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from znnpy.interop.operators.sketch import Floats, Sketch
from znnpy.interop.operators.value import Value
from znnpy.layers.activation_functions import FUNCTIONS


def activated(sketch: Sketch, name: str, x: Value, function: str, **keys: Any) -> Value:
    """Add an activation function of each number, or over channels."""
    if function in FUNCTIONS and not FUNCTIONS[function].pointwise:
        sketch.refuse_rearranged(x)
    made = sketch.node(name, "transfer", x, function=function, **keys)
    sketch.link(f"{made.node}.in", x, made)
    sketch.functions[made.node] = function, x.node
    return made


def prelu(sketch: Sketch, name: str, x: Value, slopes: Floats) -> Value:
    """Add a leaky function with a slope for each channel, or one for all."""
    sketch.refuse_rearranged(x)
    flat = slopes.reshape(-1)
    if flat.size not in (1, x.channels):
        raise sketch.wrong(f"has {flat.size} slopes for {x.channels} channels")
    keys = {"tied": True} if flat.size < x.channels else {}
    made = activated(sketch, name, x, "prelu", **keys)
    sketch.nodes[made.node].arrays["slopes"] = flat
    return made


def scaled(
    sketch: Sketch,
    name: str,
    x: Value,
    factor: Floats | None,
    shift: Floats | None,
    *,
    learns: bool | None = None,
) -> Value:
    """Add a product with, or a sum with, constants: one number, or one for each channel.

    `learns`: whether they do, where the program says so; else more than one number does.
    """
    factors = None if factor is None else by_channel(sketch, x, factor)
    shifts = None if shift is None else by_channel(sketch, x, shift)
    made = sketch.node(name, "transfer", x)
    bench = sketch.nodes[made.node]
    bench.factor = factors
    if shifts is not None:
        bench.arrays["bias"] = shifts
    given = factor if factor is not None else shift
    bench.learns = given is not None and given.size > 1 if learns is None else learns
    sketch.link(f"{made.node}.in", x, made)
    return made


def by_channel(sketch: Sketch, x: Value, array: Floats) -> Floats:
    """Return a constant's number for each channel of a tensor beside which it is broadcast; others are refused."""
    if array.size == 1:
        return np.full(x.channels, array.reshape(-1)[0], np.float32)
    shape = (1,) * (len(x.seen) - array.ndim) + array.shape
    if x.plain and len(shape) == len(x.seen) and prod(shape) == shape[1] == x.channels:
        return array.reshape(-1).astype(np.float32)
    raise sketch.wrong(
        f"a constant of shape {array.shape} beside a tensor {x.seen} is not supported: "
        "one number, or one for each channel, is"
    )


def clipped(sketch: Sketch, name: str, x: Value, low: float, high: float) -> Value:
    """Add the nearest number of low to high: high - relu(high - low - relu(x - low)), which rounds no large x."""
    if not -1e30 < low < high < 1e30:
        raise sketch.wrong(f"bounds {low:.6g} and {high:.6g} are not supported")
    above = activated(sketch, f"{name}.above", _affine(sketch, name, x, 1, -low), "relu")
    below = activated(sketch, f"{name}.below", _affine(sketch, name, above, -1, high - low), "relu")
    return _affine(sketch, name, below, -1, high)


def hard_logistic(sketch: Sketch, name: str, x: Value, factor: float, shift: float) -> Value:
    """Add factor * x + shift, cut off below 0 and above 1."""
    made = clipped(sketch, name, _affine(sketch, name, x, factor, shift), 0, 1)
    if abs(factor - 1 / 6) < 1e-6 and shift == 0.5:
        sketch.functions[made.node] = "hard_logistic", x.node
    return made


def _affine(sketch: Sketch, name: str, x: Value, factor: float, shift: float) -> Value:
    if factor != 1:
        x = scaled(sketch, f"{name}.factor", x, np.array([factor], np.float32), None)
    return scaled(sketch, f"{name}.shift", x, None, np.array([shift], np.float32)) if shift else x
