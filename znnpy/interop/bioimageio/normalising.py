"""Steps before a net as `data.normalize`; those that cannot be said so are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from znnpy.interop.bioimageio.steps import Step

_SPACE = ({"z", "y", "x"}, {"y", "x"})


@dataclass
class Normalising:
    """`x -> factor x + shift` of each channel, cut before to `window`; or `own`, by the values of an image."""

    channels: int
    flat: bool
    factor: list[float] = field(default_factory=lambda: [1.0])
    shift: list[float] = field(default_factory=lambda: [0.0])
    window: tuple[float, float] | None = None
    own: dict[str, Any] | None = None

    def add(self, step: Step) -> bool:
        """Take a step up; return whether that was possible."""
        match step.name:
            case "ensure_dtype":
                return True
            case "fixed_zero_mean_unit_variance":
                return self._fixed(step)
            case "zero_mean_unit_variance" if step.said.values.get("mode") == "fixed":
                return self._fixed(step)
            case "zero_mean_unit_variance":
                return self._by_values(step, {"kind": "mean_std"})
            case "scale_linear":
                return self._scaled(step.each("gain", 1.0), step.each("offset", 0.0))
            case "scale_range":
                return self._ranged(step)
            case "clip":
                return self._cut(step)
        return False

    def said(self) -> Any:
        """Return the key `data.normalize`."""
        if self.own is not None:
            return self.own
        deviation = [1 / factor for factor in self.factor]
        mean = [
            -shift / factor for shift, factor in zip(*_spread(self.shift, self.factor), strict=True)
        ]
        numbers = {"mean": mean, "deviation": deviation}
        if self.window is not None:
            return {"kind": "clip", "low": self.window[0], "high": self.window[1], **numbers}
        plain = set(self.factor) == {1.0} and set(self.shift) == {0.0}
        return "none" if plain else {"kind": "fixed", **numbers}

    def _fixed(self, step: Step) -> bool:
        mean, deviation = step.each("mean"), step.each("std")
        if min(deviation) <= 0:
            return False
        pairs = zip(*_spread(mean, deviation), strict=True)
        return self._scaled([1 / s for s in deviation], [-m / s for m, s in pairs])

    def _scaled(self, gain: list[float], offset: list[float]) -> bool:
        if self.own is not None or min(gain) <= 0:
            return False
        gain, factor = _spread(gain, self.factor)
        offset, shift = _spread(offset, self.shift)
        gains, shifts = _spread(gain, shift)
        gains, offsets = _spread(gains, offset)
        shifts, offsets = _spread(shifts, offsets)
        self.factor = [a * b for a, b in zip(gain, factor, strict=True)]
        self.shift = [a * b + c for a, b, c in zip(gains, shifts, offsets, strict=True)]
        return True

    def _by_values(self, step: Step, own: dict[str, Any]) -> bool:
        fresh = self.own is None and self.window is None and self.said() == "none"
        axes = set(step.over())
        if self.channels == 1:
            axes -= {"channel"}
        slices = axes == _SPACE[1] and not self.flat
        if not fresh or not (slices or axes in _SPACE):
            return False
        self.own = own | ({"per": "slice"} if slices else {})
        return True

    def _ranged(self, step: Step) -> bool:
        if "reference_tensor" in step.said:
            return False
        low, high = step.number("min_percentile", 0.0), step.number("max_percentile", 100.0)
        whole = (low, high) == (0, 100)
        return self._by_values(
            step, {"kind": "range"} if whole else {"kind": "percentiles", "low": low, "high": high}
        )

    def _cut(self, step: Step) -> bool:
        if "min" not in step.said or "max" not in step.said:
            return False
        low, high = step.number("min", 0), step.number("max", 0)
        if self.own is not None:
            if (low, high) == (0, 1) and self.own["kind"] == "percentiles":
                self.own["clip"] = True
                return True
            return (low, high) == (0, 1) and self.own["kind"] == "range"
        if self.window is not None or self.said() != "none":
            return False
        self.window = low, high
        return low < high


def _spread(one: list[float], other: list[float]) -> tuple[list[float], list[float]]:
    many = max(len(one), len(other))
    return (one * many if len(one) == 1 else one), (other * many if len(other) == 1 else other)


def normalize_key(steps: Sequence[Step], channels: int, flat: bool) -> tuple[Any, list[str]]:
    """Return `data.normalize`, and what it cannot say: then it is none, and images have to be prepared."""
    made = Normalising(channels, flat)
    for step in steps:
        if not made.add(step):
            names = ", ".join(one.name for one in steps)
            return "none", [
                f"{step.said.where}: cannot be said by data.normalize, which is none: prepare images by {names}"
            ]
    return made.said(), []
