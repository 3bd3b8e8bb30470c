"""Steps before and after a net, as bioimage.io defines them, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ModelFileError
from znnpy.interop.described import Described

Floats = NDArray[np.float64]
AXES = ("batch", "channel", "z", "y", "x")
LETTERS = {"b": "batch", "c": "channel", "z": "z", "y": "y", "x": "x"}


@dataclass(frozen=True)
class Step:
    """One step by its name, and its arguments."""

    name: str
    said: Described

    def number(self, key: str, usual: float) -> float:
        """Return a number, or what is usual."""
        return self.said.number(key) if key in self.said else usual

    def over(self) -> list[str]:
        """Return the axes whose values are taken together: all but samples where none are named."""
        given = self.said.values.get("axes")
        if given is None:
            return list(AXES[1:])
        names = [LETTERS.get(one, one) for one in given] if isinstance(given, str | list) else []
        if not names or not all(isinstance(name, str) and name in AXES for name in names):
            raise self.said.wrong("axes", f"must be axes of {', '.join(AXES)}")
        return [name for name in names if name != "batch"]

    def each(self, key: str, usual: float | None = None) -> list[float]:
        """Return numbers for each channel, or one for all."""
        value = self.said.values.get(key)
        if value is None and usual is not None:
            return [usual]
        return self.said.numbers(key) if isinstance(value, list) else [self.said.number(key)]


def applied(array: NDArray[Any], steps: Sequence[Step]) -> Floats:
    """Return an array (batch, channel, z, y, x) after steps; ModelFileError for those that are not known."""
    found = array.astype(np.float64)
    for step in steps:
        if step.name not in _STEPS:
            raise ModelFileError(f"{step.said.where}: is not known")
        found = _STEPS[step.name](found, step)
    return found


def _axes(step: Step) -> tuple[int, ...]:
    return tuple(AXES.index(name) for name in step.over())


def _column(numbers: Sequence[float], array: Floats, step: Step) -> Floats:
    if len(numbers) not in (1, array.shape[1]):
        raise ModelFileError(
            f"{step.said.where}: has {len(numbers)} numbers for {array.shape[1]} channels"
        )
    return np.reshape(np.array(numbers, float), (-1, 1, 1, 1))


def _deviation(x: Floats, step: Step) -> Floats:
    if step.said.values.get("mode", "per_sample") == "fixed":
        return _fixed(x, step)
    axes = _axes(step)
    away = x - x.mean(axes, keepdims=True)
    found: Floats = away / (x.std(axes, keepdims=True) + step.number("eps", 1e-6))
    return found


def _fixed(x: Floats, step: Step) -> Floats:
    mean, deviation = (_column(step.each(key), x, step) for key in ("mean", "std"))
    return (x - mean) / deviation


def _range(x: Floats, step: Step) -> Floats:
    ends = [step.number("min_percentile", 0.0), step.number("max_percentile", 100.0)]
    if not 0 <= ends[0] < ends[1] <= 100:
        raise ModelFileError(f"{step.said.where}: percentiles {ends} must rise from 0 to 100")
    low, high = np.percentile(x, ends, _axes(step), keepdims=True)
    found: Floats = (x - low) / (high - low + step.number("eps", 1e-6))
    return found


def _linear(x: Floats, step: Step) -> Floats:
    gain, offset = step.each("gain", 1.0), step.each("offset", 0.0)
    return x * _column(gain, x, step) + _column(offset, x, step)


def _clip(x: Floats, step: Step) -> Floats:
    return x.clip(step.number("min", -np.inf), step.number("max", np.inf))


def _binary(x: Floats, step: Step) -> Floats:
    threshold = (
        step.each("threshold") if "threshold" in step.said else step.each("threshold_values")
    )
    return (x > _column(threshold, x, step)).astype(np.float64)


def _sigmoid(x: Floats, step: Step) -> Floats:
    return 0.5 * (1 + np.tanh(x / 2))


def _softmax(x: Floats, step: Step) -> Floats:
    if step.said.values.get("axis", "channel") != "channel":
        raise ModelFileError(f"{step.said.where}: is supported along channels")
    raised = np.exp(x - x.max(1, keepdims=True))
    found: Floats = raised / raised.sum(1, keepdims=True)
    return found


def _same(x: Floats, step: Step) -> Floats:
    return x


_STEPS: dict[str, Callable[[Floats, Step], Floats]] = {
    "zero_mean_unit_variance": _deviation,
    "fixed_zero_mean_unit_variance": _fixed,
    "scale_range": _range,
    "scale_linear": _linear,
    "clip": _clip,
    "binarize": _binary,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "ensure_dtype": _same,
}
